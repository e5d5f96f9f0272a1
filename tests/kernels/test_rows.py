"""Gather-dot, ragged dot, unit rows and squared lengths against the reference, on both paths."""

import numpy as np
import plain as reference
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from torch.nn.functional import normalize

from rankbench.core import devices
from rankbench.core.threads import pinned
from rankbench.kernels import parallel
from rankbench.kernels import rows as kernels
from rankbench.kernels.rows import gather_dot, ragged_dot, squared_lengths, take_rows, unit_rows

TOLERANCE = {torch.float64: {"rtol": 1e-12, "atol": 1e-12}, torch.float32: {"rtol": 2e-5, "atol": 2e-5}}
BOTH = pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)
# (B, n), items, d: one bucket of items; exactly one, and one more; several, and enough pairs for threads.
SHAPES = [((1, 1), 1, 1), ((7, 5), 9, 3), ((40, 6), 512, 4), ((40, 6), 513, 4), ((700, 100), 1500, 5)]
EVERY_SHAPE = pytest.mark.parametrize(("shape", "n_items", "d"), SHAPES)


def drawn(shape, n_items, d, dtype=torch.float64):
    """(rows, table, ids, grad); half of the ids are one of three items, so that many meet at the same one."""
    rng = np.random.default_rng(3)
    ids = rng.integers(0, n_items, shape)
    popular = rng.integers(0, n_items, 3)
    ids = np.where(rng.random(shape) < 0.5, rng.choice(popular, shape), ids)
    ids.flat[-1] = n_items - 1
    numbers = (torch.tensor(rng.normal(size=size), dtype=dtype) for size in ((shape[0], d), (n_items, d), shape))
    rows, table, grad = numbers
    return rows, table, torch.from_numpy(ids), grad


def forth_and_back(function, rows, table, ids, grad):
    """(dots, gradient of the rows, gradient of the table)."""
    rows, table = (leaf.detach().clone().requires_grad_() for leaf in (rows, table))
    dots = function(rows, table, ids)
    return dots.detach(), *torch.autograd.grad(dots, (rows, table), grad)


def expected_of(rows, table, ids, grad):
    """The same from the reference, in float64."""
    return forth_and_back(reference.gather_dot, rows.double(), table.double(), ids, grad.double())


@BOTH
@EVERY_SHAPE
def test_gather_dot_is_the_sum_over_gathered_vectors_forth_and_back(shape, n_items, d, dtype):
    given = drawn(shape, n_items, d, dtype)
    for found, expected in zip(forth_and_back(gather_dot, *given), expected_of(*given), strict=True):
        assert found.dtype == dtype
        # Hundreds of gradients meet at a popular item, and float32 rounds each addition.
        assert_allclose(found.double(), expected, **TOLERANCE[dtype] | {"atol": TOLERANCE[dtype]["atol"] * shape[0] ** 0.5})


def test_the_number_of_threads_changes_no_bit_of_unit_rows():
    """Of more numbers than the fits have by which `tests/contracts/test_threads.py` shows this of the other operations."""
    table, results = torch.randn(11_000, 7, generator=torch.Generator().manual_seed(1)), []
    assert table.numel() >= parallel._SMALL
    for n in (1, 3):
        with pinned(n):
            leaf = table.clone().requires_grad_()
            unit = unit_rows(leaf)
            results.append([unit.detach(), *torch.autograd.grad((unit**3).sum(), leaf)])
    for found, expected in zip(*results, strict=True):
        assert_array_equal(found, expected)


@pytest.mark.parametrize("chunk", [1, 50, 1 << 24], ids=["a row a chunk", "some rows", "one chunk"])
def test_the_plain_path_is_the_same_function(chunk, monkeypatch):
    monkeypatch.setattr(devices, "_COMPILED", False)
    monkeypatch.setattr(kernels, "_CHUNK", chunk)
    given = drawn((7, 5), 9, 3)
    for found, expected in zip(forth_and_back(gather_dot, *given), expected_of(*given), strict=True):
        assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


@BOTH
@pytest.mark.parametrize("n", [0, 1, 23])
def test_ragged_dot_is_a_dot_product_a_pair(n, dtype, monkeypatch):
    monkeypatch.setattr(kernels, "_CHUNK", 12)
    rng = np.random.default_rng(1)
    rows, table = (torch.tensor(rng.normal(size=(size, 3)), dtype=dtype) for size in (4, 9))
    row, ids = (torch.from_numpy(rng.integers(0, size, n)) for size in (4, 9))
    expected = (rows.double()[row] * table.double()[ids]).sum(dim=1)
    dots = ragged_dot(rows.requires_grad_(), table, row, ids)
    assert dots.dtype == dtype and not dots.requires_grad
    assert_allclose(dots.double(), expected, **TOLERANCE[dtype])
    monkeypatch.setattr(devices, "_COMPILED", False)
    plain = ragged_dot(rows, table, row, ids)
    assert not plain.requires_grad
    assert_allclose(plain, expected, **TOLERANCE[dtype])


@BOTH
def test_unit_rows_are_normalised_rows_forth_and_back(dtype, monkeypatch):
    rng = np.random.default_rng(2)
    table = torch.tensor(rng.normal(size=(30, 5)) * 10.0 ** rng.integers(-6, 7, (30, 1)), dtype=dtype)
    grad = torch.tensor(rng.normal(size=(30, 5)), dtype=dtype)
    leaves = [each.clone().requires_grad_() for each in (table, table.double(), table)]
    unit, expected = unit_rows(leaves[0]), normalize(leaves[1], dim=1)
    monkeypatch.setattr(devices, "_COMPILED", False)
    plain = unit_rows(leaves[2])
    for value, weight in ((unit, grad), (expected, grad.double()), (plain, grad)):
        value.backward(weight)
    for value, leaf in ((unit, leaves[0]), (plain, leaves[2])):
        assert_allclose(value.detach(), expected.detach(), **TOLERANCE[dtype])
        # Relative to the length of the row: what is taken away is nearly what is there.
        size = leaves[1].detach().norm(dim=1, keepdim=True)
        assert_allclose(leaf.grad * size, leaves[1].grad * size, **TOLERANCE[dtype])


@BOTH
def test_squared_lengths_and_their_gradient_are_those_of_pytorch(dtype, monkeypatch):
    draw = torch.Generator().manual_seed(3)
    table, grad = (torch.randn(*shape, generator=draw, dtype=dtype) for shape in ((33, 19), (33,)))
    leaf, exact, plain = (each.clone().requires_grad_() for each in (table, table.double(), table))
    found, expected = squared_lengths(leaf), exact.square().sum(dim=1)
    monkeypatch.setattr(devices, "_COMPILED", False)
    there = squared_lengths(plain)
    for value, weight in ((found, grad), (expected, grad.double()), (there, grad)):
        value.backward(weight)
    for value, of in ((found, leaf), (there, plain)):
        assert_allclose(value.detach(), expected.detach(), **TOLERANCE[dtype])
        assert_allclose(of.grad, exact.grad, **TOLERANCE[dtype])


def test_rows_without_numbers_have_the_length_zero():
    table = torch.ones(3, 4)[:, :0].requires_grad_()
    lengths = squared_lengths(table)
    lengths.sum().backward()
    assert lengths.tolist() == [0, 0, 0] and table.grad.shape == (3, 0)
    # Compiled, the loop would read beyond the row without an error.
    out = np.full(3, np.nan)
    kernels._lengths.py_func(np.ones((3, 0)), out, 0, 3)
    assert out.tolist() == [0, 0, 0]


@BOTH
@pytest.mark.parametrize("n", [0, 1, 23, 5000])
def test_chosen_rows_have_the_gradient_of_an_index(n, dtype, monkeypatch):
    draw = torch.Generator().manual_seed(8)
    table = torch.randn(40, 17, generator=draw, dtype=dtype, requires_grad=True)
    ids = torch.randint(0, 40, (n,), generator=draw)
    weight = torch.randn(n, 17, generator=draw, dtype=dtype)
    found, expected = take_rows(table, ids), table.detach()[ids]
    assert_array_equal(found.detach(), expected)
    (gradient,) = torch.autograd.grad(found, table, weight)
    by_hand = torch.zeros(40, 17, dtype=torch.float64).index_put((ids,), weight.double(), accumulate=True)
    assert_allclose(gradient.double(), by_hand, **TOLERANCE[dtype] | {"atol": 1e-4 if dtype == torch.float32 else 1e-12})
    monkeypatch.setattr(devices, "_COMPILED", False)
    assert_array_equal(take_rows(table, ids).detach(), expected)


def test_views_expanded_gradients_and_rows_of_zeros_are_read_as_they_are():
    rows, table, ids, _ = drawn((6, 4), 9, 6)
    turned, every_other, weight = rows.T.contiguous().T, table[:, ::2], torch.tensor(0.5, dtype=torch.float64).expand(6, 4)
    given = turned[:, :3], every_other, ids, weight
    for found, expected in zip(forth_and_back(gather_dot, *given), expected_of(*given), strict=True):
        assert_allclose(found, expected, rtol=1e-12)
    leaf = torch.zeros(2, 3, requires_grad=True)
    unit_rows(leaf).sum().backward()  # a gradient without memory of its own
    assert not unit_rows(leaf).any() and torch.isfinite(leaf.grad).all()
