"""Adam on rows against PyTorch's two: the dense one where every row is touched, SparseAdam where some are."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from rankbench.core import devices
from rankbench.training.adam import BETAS, EPS, DenseAdam, RowAdam

N, D, STEPS = 11, 3, 8
PATHS = pytest.mark.usefixtures("path")


@pytest.fixture(params=[True, False], ids=["kernel", "plain"])
def path(request, monkeypatch):
    monkeypatch.setattr(devices, "_COMPILED", request.param)


def start(dtype=torch.float64):
    return torch.randn(N, D, dtype=torch.float64, generator=torch.Generator().manual_seed(8)).to(dtype)


def steps(everything=False):
    """(rows, gradient (r, d), rate) of each step; without `everything`, other rows each time, in any order."""
    rng = np.random.default_rng(2)
    for step in range(STEPS):
        rows = np.arange(N) if everything else rng.permutation(N)[: 1 + step % 5]
        yield torch.from_numpy(rows), torch.from_numpy(rng.normal(size=(len(rows), D))), 0.1 / (1 + step)


@PATHS
@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
def test_touching_every_row_is_adam(weight_decay):
    table, theirs = start(), start().requires_grad_()
    mine = RowAdam(table, weight_decay)
    other = torch.optim.Adam([theirs], betas=BETAS, eps=EPS, weight_decay=weight_decay)
    for rows, grad, rate in steps(everything=True):
        mine.step(rows, grad, rate)
        theirs.grad, other.param_groups[0]["lr"] = grad, rate
        other.step()
        assert_allclose(table, theirs.detach(), rtol=1e-12, atol=1e-12)


@PATHS
def test_touching_some_rows_is_sparse_adam():
    """But for the place of eps, which here has the dense one's: with none to speak of the two agree."""
    table, theirs = start(), start().requires_grad_()
    mine, other = RowAdam(table, eps=1e-30), torch.optim.SparseAdam([theirs], betas=BETAS, eps=1e-30)
    for rows, grad, rate in steps():
        mine.step(rows, grad, rate)
        theirs.grad = torch.sparse_coo_tensor(rows[None], grad, (N, D), check_invariants=True)
        other.param_groups[0]["lr"] = rate
        other.step()
        assert_allclose(table, theirs.detach(), rtol=1e-12, atol=1e-12)


@PATHS
def test_decay_is_added_to_the_gradient_of_touched_rows_and_the_others_stay():
    decayed, by_hand = start(), start()
    first, second = RowAdam(decayed, 0.3), RowAdam(by_hand)
    for rows, grad, rate in steps():
        rest = np.setdiff1d(np.arange(N), rows)
        before = decayed.clone()
        second.step(rows, grad + 0.3 * by_hand[rows], rate)
        first.step(rows, grad, rate)
        assert_allclose(decayed, by_hand, rtol=1e-12)
        assert_array_equal(decayed[rest], before[rest])
        assert (decayed[rows] != before[rows]).any(dim=1).all()


def test_both_paths_agree_in_float32(monkeypatch):
    kernel, plain = start(torch.float32), start(torch.float32)
    for table, compiled in ((kernel, True), (plain, False)):
        monkeypatch.setattr(devices, "_COMPILED", compiled)
        optimizer = RowAdam(table, 0.01)
        for rows, grad, rate in steps():
            optimizer.step(rows, grad.float(), rate)
        assert table.dtype == torch.float32 and optimizer.arrays()["second"].dtype == np.float32
    assert_allclose(kernel, plain, rtol=1e-5, atol=1e-6)


@PATHS
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_gradient_that_is_not_finite_spoils_its_own_vector_alone(dtype, bad):
    """And raises nothing: the trainer reads the loss, and says in which epoch."""
    table, grad = start(dtype), torch.ones(2, D, dtype=dtype)
    grad[1, 1] = bad
    RowAdam(table).step(torch.tensor([4, 7]), grad, 0.1)
    assert not table[7, 1].isfinite()
    assert np.isfinite(np.delete(table.numpy(), 7, axis=0)).all()
    assert_allclose(table[4], start(dtype)[4] - 0.1, rtol=1e-5)


def two_groups(tables):
    return DenseAdam([{"params": [tables[0]], "lr": 0.1, "weight_decay": 0.2}, {"params": [tables[1]], "lr": 0.01}])


def test_the_dense_one_takes_its_factor_of_each_groups_own_rate():
    mine, theirs = ([start().requires_grad_(), start().requires_grad_()] for _ in range(2))
    optimizer = two_groups(mine)
    other = torch.optim.Adam([{"params": [theirs[0]], "weight_decay": 0.2}, {"params": [theirs[1]]}], betas=BETAS, eps=EPS)
    for factor in (1.0, 0.5, 0.5, 0.1):
        ((mine[0].sin() * mine[1]).sum() * factor).backward()
        optimizer.step(factor)
        assert mine[0].grad is None
        other.param_groups[0]["lr"], other.param_groups[1]["lr"] = 0.1 * factor, 0.01 * factor
        other.zero_grad()
        ((theirs[0].sin() * theirs[1]).sum() * factor).backward()
        other.step()
        for found, expected in zip(mine, theirs, strict=True):
            assert_allclose(found.detach(), expected.detach(), rtol=1e-12)


def test_before_its_first_step_the_dense_one_has_nothing_to_restore():
    two_groups([start().requires_grad_(), start().requires_grad_()]).restore({})
