import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toy import POSITIVES, C, row_b, state_of, tensor, whole

from rankbench.losses.sl_at_k import SampledThresholds, SLAtK, kth_largest, sl_at_k
from rankbench.losses.spec import Ragged


def table(p: SLAtK, beta: float = 0.0) -> SampledThresholds:
    return state_of(SampledThresholds, p, beta=beta)


@pytest.mark.worked("sl-at-k")
def test_worked_numbers():
    pos = tensor([0.6]).requires_grad_()
    for detach, slope in [(False, -2.7057745813), (True, -2.6664201913)]:
        p = SLAtK(tau_d=0.2, tau_w=2.25, detach_weight=detach)
        value = sl_at_k(row_b(pos=pos), p, table(p, 0.3))
        assert value.item() == pytest.approx(-0.1897243392, abs=1e-9)
        (gradient,) = torch.autograd.grad(value.sum(), pos)
        assert gradient.item() == pytest.approx(slope, abs=1e-9)
    lse = torch.logsumexp((row_b().neg - 0.6) / 0.2, dim=1).item()
    assert value.item() / lse == pytest.approx(0.5332840383, abs=1e-9)  # the weight
    p = SLAtK(tau_d=0.2, tau_w=2.25)
    assert sl_at_k(whole(C), p, table(p, 0.5)).sum().item() == pytest.approx(1.4038630216, abs=1e-9)


def test_the_quantile_is_that_of_the_positives_and_the_sampled():
    s = row_b(neg=C[None, [3, 5]], all_positives=Ragged(C[POSITIVES], torch.zeros(2, dtype=torch.int64)))
    assert kth_largest(s, 2).tolist() == [0.3]  # that of all items is 0.5
    s = row_b(neg=C[None, [1, 3, 4, 5]], all_positives=Ragged(C[POSITIVES], torch.zeros(2, dtype=torch.int64)))
    assert kth_largest(s, 2).tolist() == [0.5]


@given(
    st.lists(st.lists(st.floats(-1, 1), max_size=5), min_size=1, max_size=4), st.integers(1, 9), st.integers(1, 4), st.randoms()
)
def test_the_quantile_of_each_row_is_that_of_a_sort(positives, K, n, random):
    neg = [[random.uniform(-1, 1) for _ in range(n)] for _ in positives]
    pairs = [(x, row) for row, values in enumerate(positives) for x in values]
    random.shuffle(pairs)
    ragged = Ragged(tensor([x for x, _ in pairs]), torch.tensor([row for _, row in pairs], dtype=torch.int64))
    expected = [sorted(a + b, reverse=True)[min(K, len(a + b)) - 1] for a, b in zip(positives, neg, strict=True)]
    assert kth_largest(row_b(neg=tensor(neg), all_positives=ragged), K).tolist() == expected


def test_thresholds_are_refreshed_in_every_t_beta_th_epoch_after_use():
    p = SLAtK(K=2, tau_d=0.2, T_beta=3)
    state = table(p, 0.25)
    s = whole(C, negatives="other")
    used, left = [], []
    for epoch in range(1, 8):
        state.begin_epoch(epoch)
        value = sl_at_k(s, p, state)
        used.append(next(beta for beta in (0.25, 0.5) if torch.equal(value, sl_at_k(s, p, table(p, beta)))))
        left.append(state.beta.tolist())
    assert used == [0.25, 0.25, 0.25, 0.5, 0.5, 0.5, 0.5]
    assert left == [[0.25] * 3] * 2 + [[0.5, 0.25, 0.25]] * 5  # users 1 and 2 have no row


@pytest.mark.parametrize("n_rows", [3, 300_000])  # so many that an indexed write is shared among threads
def test_of_a_users_rows_the_last_one_decides(n_rows):
    state = table(SLAtK(K=1))
    last = torch.arange(1, n_rows + 1, dtype=torch.float64)[:, None]
    users = torch.full((n_rows,), 2)
    users[1] = 0
    state.refresh(row_b(users=users, neg=last, all_positives=Ragged(tensor([]), torch.tensor([], dtype=torch.int64))))
    assert state.beta.tolist() == [2.0, 0.0, n_rows]


def test_the_threshold_is_saved_and_not_trained():
    state = table(SLAtK(), 0.4)
    assert state.state_dict()["beta"].tolist() == [0.4] * 3
    assert list(state.parameters()) == []
