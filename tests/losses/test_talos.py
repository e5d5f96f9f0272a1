import pytest
from toy import C, row_b, state_of, tensor, whole

from rankbench.losses.quantile import Thresholds
from rankbench.losses.talos import Talos, talos


def table(beta: float) -> Thresholds:
    return state_of(Thresholds, Talos(), beta=beta)


@pytest.mark.worked("talos")
def test_worked_numbers():
    worked = {
        "none": -0.2997569965,
        "quantile": -0.1791215993,
        "outside": 0.0510735829,
        "denominator": 6.2366996252,
    }
    for ablation, expected in worked.items():
        p = Talos(tau=0.1, K=2, ablation=ablation)
        assert talos(row_b(), p, table(0.3)).item() == pytest.approx(expected, abs=1e-9), ablation
    p = Talos(tau=0.1)
    assert talos(whole(C), p, table(0.5)).mean().item() == pytest.approx(1.4521765051, abs=1e-9)
    assert talos(whole(C, negatives="other"), p, table(0.5)).mean().item() == pytest.approx(0.1707903614, abs=1e-9)


def test_scores_alone_do_not_shift():
    pos, neg = tensor([0.6]).requires_grad_(), row_b().neg.clone().requires_grad_()
    talos(row_b(pos=pos, neg=neg), Talos(tau=0.1), table(0.3)).sum().backward()
    assert (pos.grad.sum() + neg.grad.sum()).item() == pytest.approx(0.3856, abs=5e-5)


def test_parameters_reach_the_table():
    state = state_of(Thresholds, Talos(K=4, beta_lr=0.05))
    assert state.share == 0.4
    assert state.groups(1.0)[0]["lr"] == 0.05
