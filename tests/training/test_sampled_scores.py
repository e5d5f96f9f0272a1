"""The compiled log-sum-exp of sampled scores against PyTorch's."""

import pytest
import torch
from numpy.testing import assert_allclose

from rankbench.losses.others import ScoreTable
from rankbench.training.sampled_scores import SampledScores

TOLERANCE = {torch.float32: {"rtol": 1e-5, "atol": 1e-7}, torch.float64: {"rtol": 1e-13, "atol": 1e-14}}


def forth_and_back(form, values, tau):
    leaf = values.detach().clone().requires_grad_()
    result = form(leaf).logsumexp(tau)
    weight = torch.linspace(-1, 2, len(values), dtype=values.dtype)
    return result.detach(), *torch.autograd.grad(result, leaf, weight)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("tau", [1.0, 0.1])
@pytest.mark.parametrize("shape", [(1, 1), (5, 15), (4, 16), (3, 17), (300, 230)], ids=str)
def test_it_is_pytorchs_forth_and_back(shape, tau, dtype):
    values = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2)).to(dtype)
    found, expected = forth_and_back(SampledScores, values, tau), forth_and_back(ScoreTable, values.double(), tau)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == dtype
        assert_allclose(one.double(), other, **TOLERANCE[dtype])


@pytest.mark.parametrize("size", [1e4, -1e4, 1e30])
def test_large_scores_stay_finite(size):
    values = torch.linspace(0.5, 1, 40).repeat(2, 1) * size
    found, gradient = forth_and_back(SampledScores, values, 0.1)
    assert_allclose(found, torch.logsumexp(values.double() / 0.1, 1), rtol=1e-6)
    assert_allclose(gradient.sum(dim=1), torch.tensor([-1.0, 2.0]) / 0.1, rtol=1e-5)


def test_a_score_that_is_not_a_number_gives_none():
    for place in (0, 7, 18):
        values = torch.zeros(2, 19)
        values[1, place] = torch.nan
        found = SampledScores(values).logsumexp()
        assert torch.isfinite(found[0]) and torch.isnan(found[1])


def test_views_are_read_as_they_are():
    values = torch.randn(7, 40, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    for view in (values.T, values[:, ::2], values[:1].expand(5, 40)):
        assert_allclose(SampledScores(view).logsumexp(0.3), ScoreTable(view).logsumexp(0.3), rtol=1e-13)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", [(1, 1), (5, 15), (3, 17), (300, 230)], ids=str)
def test_sums_above_a_shift_are_pytorchs(shape, dtype):
    draw = torch.Generator().manual_seed(2)
    values, weight = (torch.randn(shape, dtype=torch.float64, generator=draw).to(dtype) for _ in range(2))
    shift = torch.randn(shape[0], dtype=torch.float64, generator=draw).to(dtype)
    shift[0] = values[0, 0]  # a score at the shift is not above it
    for given in (None, weight, weight[:1]):
        found = SampledScores(values).above(shift, given)
        y = values.double() - shift.double()[:, None]
        w = torch.ones(()) if given is None else given.double()
        for one, other in zip(found, ((w * y.clamp(min=0)).sum(1), (w * y).sum(1), (w * (y > 0)).sum(1)), strict=True):
            assert one.dtype == dtype
            assert_allclose(one.double(), other, rtol=1e-4 if dtype == torch.float32 else 1e-12, atol=1e-5)
