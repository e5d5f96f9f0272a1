import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toy import POSITIVES, C, row_b, tensor

from rankbench.losses.smoothi import SmoothI, smoothi_at_k


def of(p: SmoothI, pos, *neg) -> float:
    return smoothi_at_k(row_b(pos=tensor([pos]), neg=tensor([neg])), p).item()


def each_of_c(p: SmoothI, which) -> list[float]:
    """The loss of C's list with one item of it at a time as the relevant one."""
    return [of(p, C[i].item(), *(x for j, x in enumerate(C.tolist()) if j != i)) for i in which]


@pytest.mark.worked("smoothi-at-k")
def test_worked_numbers():
    p = SmoothI(K=2, tau=1 / 5, delta=0.1)
    assert smoothi_at_k(row_b(), p).item() == pytest.approx(0.6614060695, abs=1e-9)
    assert 1 - smoothi_at_k(row_b(), SmoothI(K=1, tau=1 / 5, delta=0.1)).item() == pytest.approx(0.5880151, abs=1e-7)
    # With several relevant items, precision is the sum over them.
    assert 1 - sum(1 - x for x in each_of_c(p, POSITIVES)) == pytest.approx(0.4375316865, abs=1e-9)


def test_lowering_all_scores_by_the_positive_is_the_loss_of_the_program_of_talos():
    """By hand: one factor for the whole row; and a rank alone is the same softmax in both forms."""
    p = SmoothI(K=2, tau=0.2, delta=0.1, lowers="all")
    scores = (tensor([0.6, 0.5, 0.1, -0.3, -0.8]) + 0.8) / 0.2
    first = torch.softmax(scores, dim=0)[0]
    second = torch.softmax(scores * (1 - first - 0.1), dim=0)[0]
    value = of(p, 0.6, 0.5, 0.1, -0.3, -0.8)
    assert value == pytest.approx(1 - (first + second).item() / 2, abs=1e-12) and value == pytest.approx(0.5188821278, abs=1e-9)
    assert of(SmoothI(K=1, lowers="all"), 0.6, 0.5) == of(SmoothI(K=1), 0.6, 0.5)


def test_is_a_miss_of_precision_at_low_temperature():
    p = SmoothI(K=2, tau=1 / 2000, delta=0.1)
    assert 1 - sum(1 - x for x in each_of_c(p, POSITIVES)) == pytest.approx(0.5, abs=1e-12)


@given(st.integers(1, 8), st.floats(0.02, 1), st.floats(0, 0.3))
def test_each_place_is_given_once(K, tau, delta):
    p = SmoothI(K=K, tau=tau, delta=delta)
    assert sum(1 - x for x in each_of_c(p, range(6))) == pytest.approx(1, abs=1e-9)


def test_the_gradient_treats_what_was_taken_as_a_constant():
    """At K = 2, dI²/dy is that of softmax(S c / τ) with c fixed at its value."""
    y = tensor([0.6, 0.5, 0.1, -0.3, -0.8]).requires_grad_()
    p = SmoothI(K=2, tau=0.2, delta=0.1)

    def first(y):
        return torch.softmax((y - y.min()) / 0.2, dim=0)

    taken = first(y).detach()

    def fixed(y):
        second = torch.softmax((y - y.min()) / 0.2 * (1 - taken - 0.1), dim=0)
        return 1 - (first(y)[0] + second[0]) / 2

    assert torch.autograd.gradcheck(fixed, y)
    (expected,) = torch.autograd.grad(fixed(y), y)
    (actual,) = torch.autograd.grad(smoothi_at_k(row_b(pos=y[:1], neg=y[None, 1:]), p).sum(), y)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-15)
