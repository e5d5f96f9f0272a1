import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toy import POSITIVES, C, row_b, tensor, whole

from rankbench.losses.quantile import Thresholds
from rankbench.losses.spec import Sizes
from rankbench.losses.talos import Talos, talos, thresholds

cosines = st.lists(st.floats(-1, 1), min_size=2, max_size=6)


def table(beta: float, p: Talos | None = None) -> Thresholds:
    state = thresholds(p or Talos(), Sizes(3, 10, 2), torch.Generator()).double()
    with torch.no_grad():
        state.beta.fill_(beta)
    return state


def of(p: Talos, beta, pos, *neg) -> float:
    return talos(row_b(pos=tensor([pos]), neg=tensor([neg])), p, table(beta)).item()


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


def eq_36(scores: torch.Tensor, positives, beta: float, tau: float) -> float:
    """The loss that Eq. 3.7 bounds: the share of the positives in the sum of activations."""
    activation = torch.sigmoid(scores - beta) ** (1 / tau)
    return -math.log(activation[positives].sum() / activation.sum())


@given(st.lists(st.floats(-1, 1), min_size=3, max_size=6), st.floats(-1, 1), st.floats(0.05, 1))
def test_over_the_whole_catalogue_it_bounds_the_share_of_the_positives(scores, beta, tau):
    p = Talos(tau=tau)
    mean = talos(whole(tensor(scores)), p, table(beta)).mean().item()
    assert eq_36(tensor(scores), POSITIVES, beta, tau) <= mean - math.log(2) + 1e-9


def test_the_gap_of_the_worked_example():
    assert eq_36(C, POSITIVES, 0.5, 0.1) == pytest.approx(0.3252484940, abs=1e-9)
    mean = talos(whole(C), Talos(tau=0.1), table(0.5)).mean().item()
    assert mean - math.log(2) - eq_36(C, POSITIVES, 0.5, 0.1) == pytest.approx(0.4337808305, abs=1e-9)


@given(cosines, st.floats(-1, 1), st.floats(-2, 2), st.floats(0.05, 1))
def test_scores_and_threshold_shift_together(scores, beta, shift, tau):
    p = Talos(tau=tau)
    shifted = of(p, beta + shift, *(x + shift for x in scores))
    assert shifted == pytest.approx(of(p, beta, *scores), rel=1e-9, abs=1e-9)


@given(cosines, st.floats(0.05, 1))
def test_a_threshold_far_below_leaves_the_count_of_negatives(scores, tau):
    assert of(Talos(tau=tau), -60, *scores) == pytest.approx(math.log(len(scores) - 1), abs=1e-6)


@given(cosines, st.floats(-1, 1), st.floats(0.05, 1))
def test_gradients_are_bounded_by_the_temperature(scores, beta, tau):
    pos, neg = tensor(scores[:1]).requires_grad_(), tensor([scores[1:]]).requires_grad_()
    talos(row_b(pos=pos, neg=neg), Talos(tau=tau), table(beta)).sum().backward()
    assert pos.grad.item() == pytest.approx(-1 / (1 + math.exp(scores[0] - beta)) / tau, rel=1e-9)
    assert neg.grad.abs().sum() <= 1 / tau + 1e-9


def test_scores_alone_do_not_shift():
    pos, neg = tensor([0.6]).requires_grad_(), row_b().neg.clone().requires_grad_()
    talos(row_b(pos=pos, neg=neg), Talos(tau=0.1), table(0.3)).sum().backward()
    assert (pos.grad.sum() + neg.grad.sum()).item() == pytest.approx(0.3856, abs=5e-5)


def test_parameters_reach_the_table():
    state = table(0.0, Talos(K=4, beta_lr=0.05))
    assert state.share == 0.4
    assert state.groups(1.0)[0]["lr"] == 0.05
