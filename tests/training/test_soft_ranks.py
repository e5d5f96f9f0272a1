"""SmoothI's soft indicators, compiled, against the same sums in PyTorch, which `tests/losses/test_smoothi.py` proves."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import example, given, settings

from rankbench.losses.others import ScoreTable
from rankbench.training.sampled_scores import SampledScores


def precision_and_gradients(table, pos, neg, K, tau, delta, together=False):
    pos, neg = pos.clone().requires_grad_(), neg.clone().requires_grad_()
    value = table(neg).smooth_precision(pos, K, tau, delta, together)
    weights = torch.linspace(0.5, 2, len(pos), dtype=pos.dtype)
    return [value.detach(), *torch.autograd.grad((weights * value).sum(), (pos, neg))]


@settings(deadline=None, max_examples=40)
@given(
    n=st.integers(1, 70),
    K=st.integers(1, 25),
    tau=st.floats(0.02, 1),
    delta=st.floats(0, 0.95),
    together=st.booleans(),
    equal=st.booleans(),
    seed=st.integers(0, 2**31),
)
@example(n=1, K=2, tau=1.0, delta=0.5, together=True, equal=False, seed=0)  # the factor c of the second rank is negative
@example(n=2, K=25, tau=0.5, delta=0.95, together=False, equal=False, seed=0)  # factors of 1e-32
def test_values_and_gradients_are_those_of_pytorch(n, K, tau, delta, together, equal, seed):
    generator = torch.Generator().manual_seed(seed)
    pos, neg = (2 * torch.rand(shape, generator=generator, dtype=torch.float64) - 1 for shape in ((5,), (5, n)))
    if equal:  # all scores of a row are its minimum
        neg = pos[:, None].expand(5, n).clone()
    plain, compiled = (
        precision_and_gradients(table, pos, neg, K, tau, delta, together) for table in (ScoreTable, SampledScores)
    )
    assert torch.allclose(compiled[0], plain[0], rtol=1e-11, atol=1e-14)
    if equal:  # the gradient of a minimum that several scores attain is a matter of convention; its sum is not
        totals = [(d_pos + d_neg.sum(dim=1)) for _, d_pos, d_neg in (plain, compiled)]
        assert torch.allclose(totals[1], totals[0], atol=1e-10)
    else:
        for a, b in zip(compiled[1:], plain[1:], strict=True):
            assert torch.allclose(a, b, rtol=1e-9, atol=1e-12 / tau)


@pytest.mark.parametrize("table", [ScoreTable, SampledScores])
def test_after_an_indicator_of_1_without_an_offset_all_items_are_alike(table):
    """The first rank takes the positive for certain, so that the factor of all scores is 0, and only the items count."""
    pos, neg = torch.ones(1, dtype=torch.float64), -torch.ones(1, 3, dtype=torch.float64)
    value, *_ = precision_and_gradients(table, pos, neg, K=3, tau=0.01, delta=0.0, together=True)
    assert value.item() == pytest.approx((1 + 1 / 4 + 1 / 4) / 3)


@pytest.mark.parametrize("n", [15, 16, 1024])
def test_float32_is_as_near_to_float64_as_pytorch(n):
    generator = torch.Generator().manual_seed(n)
    pos, neg = (2 * torch.rand(shape, generator=generator) - 1 for shape in ((64,), (64, n)))
    exact = precision_and_gradients(ScoreTable, pos.double(), neg.double(), 20, 0.1, 0.05)
    for found, right in zip(precision_and_gradients(SampledScores, pos, neg, 20, 0.1, 0.05), exact, strict=True):
        assert (found.double() - right).abs().max() <= 2e-5 * right.abs().max()
