"""Sums over all items, and the k-th largest score, against an array of all scores, in value and gradient."""

import numpy as np
import plain as reference
import pytest
import torch
from numpy.testing import assert_allclose

from rankbench.kernels import catalogue_sum as module
from rankbench.kernels.catalogue_sum import catalogue_sum, kth_largest
from rankbench.kernels.score_tiles import EXP, ITEMS, RELU, SIGMOID, SIGMOID_POWER, SOFTPLUS, SOFTPLUS_OF_SIGMOID, USERS

FUNCTIONS = (EXP, SOFTPLUS, RELU, SIGMOID, SIGMOID_POWER, SOFTPLUS_OF_SIGMOID)
SQUARE = 2.5


def tables(m, n, d, dtype, seed=0):
    draw = torch.Generator().manual_seed(seed)
    U, V = (torch.randn(rows, d, dtype=torch.float64, generator=draw) / d**0.5 for rows in (m, n))
    shift = torch.randn(m, dtype=torch.float64, generator=draw)
    return [table.to(dtype) for table in (U, 2 * V, shift)]


def leaves_of(m, n, d, dtype, power):
    return [table.requires_grad_() for table in (*tables(m, n, d, dtype), torch.tensor(power, dtype=dtype))]


def slopes(total, leaves):
    """Gradients, 0 of a power that has none."""
    found = torch.autograd.grad(total, leaves, allow_unused=True)
    return [torch.zeros_like(leaf) if slope is None else slope for slope, leaf in zip(found, leaves, strict=True)]


def with_power(kind, power):
    """The power, with a gradient for the function that has it."""
    return power if kind == SOFTPLUS_OF_SIGMOID else power.detach()


@pytest.mark.parametrize("kind", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("left_out", [False, True])
@pytest.mark.parametrize("kept", [1 << 28, 1], ids=["slopes kept", "computed twice"])
def test_a_sum_is_that_of_an_array_of_all_scores(kind, dtype, left_out, kept, monkeypatch):
    """Numbers of users and items that fill no tile, and dimensions that fill no vector."""
    monkeypatch.setattr(module, "_KEPT", kept)
    rng = np.random.default_rng(1)
    for m, n, d in ((1, 1, 3), (USERS, ITEMS, 16), (2 * USERS + 5, 2 * ITEMS + 7, 88)):
        own = [np.sort(rng.permutation(n)[: rng.integers(0, min(n, 9))]) for _ in range(m)]
        indptr, indices = np.cumsum([0, *map(len, own)]).astype(np.int32), np.concatenate(own).astype(np.int32)
        leaves = U, V, shift, power = leaves_of(m, n, d, dtype, 4.0)
        power = with_power(kind, power)
        found = catalogue_sum(U, V, shift, kind, 1.3, power, (indptr, indices) if left_out else None, SQUARE)
        counts = torch.ones(m, n, dtype=torch.bool)
        for row, items in enumerate(own if left_out else []):
            counts[row, items] = False
        expected = reference.catalogue_sum(U, V, shift, kind, 1.3, power, counts, SQUARE)
        exact = {"rtol": 1e-12, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 2e-5, "atol": 2e-5}
        assert_allclose(found.detach(), expected.detach(), **exact)
        weight = torch.linspace(-1, 1, m, dtype=dtype)
        *mine, of_power = slopes((found * weight).sum(), leaves)
        *theirs, expected_of_power = slopes((expected * weight).sum(), leaves)
        for one, other in zip(mine, theirs, strict=True):
            assert_allclose(one, other, **exact)
        # The slope by the power is one sum over all users, which cancel out here: its error is that of its terms.
        terms = float(expected.detach().abs().sum())
        assert_allclose(of_power, expected_of_power, rtol=exact["rtol"], atol=exact["atol"] * max(1.0, terms))


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_what_a_device_without_the_kernels_computes_is_the_same(kind):
    left_out = (np.array([0, 1, 1, 3], np.int32), np.array([4, 0, 2], np.int32))
    leaves = leaves_of(3, 5, 2, torch.float64, 3.0)
    given = *leaves[:3], kind, 0.7, with_power(kind, leaves[3]), left_out, SQUARE
    found, expected = (form(*given) for form in (module._plain_sum, catalogue_sum))
    assert_allclose(found.detach(), expected.detach(), rtol=1e-12)
    for one, other in zip(slopes(found.sum(), leaves), slopes(expected.sum(), leaves), strict=True):
        assert_allclose(one, other, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_values_far_from_zero_are_finite_in_float32(kind):
    """Exponents are cut at 88, which no caller reaches; the others have no bound."""
    far = 80.0 if kind == EXP else 1e4
    U = torch.tensor([[-far], [-1.0], [0.0], [1.0], [far]], requires_grad=True)
    total = catalogue_sum(U, torch.ones(1, 1), torch.zeros(5), kind, 1.0, 10.0)
    assert torch.isfinite(total).all() and torch.isfinite(*torch.autograd.grad(total.sum(), U)).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_kth_largest_score_is_that_of_a_sort(dtype):
    U, V, _ = tables(USERS + 3, ITEMS + 11, 5, dtype)
    for k in (1, 4, len(V)):
        expected = (U @ V.T).sort(dim=1, descending=True).values[:, k - 1]
        assert_allclose(kth_largest(U, V, k), expected, rtol=1e-5 if dtype == torch.float32 else 1e-12)
