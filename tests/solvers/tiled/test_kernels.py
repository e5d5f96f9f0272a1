"""Every kernel against its definition in NumPy, in place, with nonsense in the triangle that nobody may look at."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from rankbench.core.threads import pinned
from rankbench.solvers.tiled import kernels
from rankbench.solvers.tiled.kernels import KERNELS

HEIGHT, WIDTH, INNER = 7, 5, 4


def tile(rng, *shape):
    return rng.standard_normal(shape)


def triangle(rng, n):
    """Lower triangular, far from singular."""
    return np.tril(rng.standard_normal((n, n)), -1) + np.diag(rng.uniform(1, 2, n))


def spd(rng, n):
    half = rng.standard_normal((n + 3, n))
    return half.T @ half + np.eye(n)


# name: (the tile, the other operands, the result). A square tile is one of the diagonal, and so is a square operand.
CASES = {
    "cholesky": lambda r: (A := spd(r, HEIGHT), [], np.linalg.cholesky(A)),
    "invert": lambda r: (L := triangle(r, HEIGHT), [], np.linalg.inv(L)),
    "square_t": lambda r: (M := triangle(r, HEIGHT), [], M.T @ M),
    "divide_t": lambda r: (B := tile(r, HEIGHT, WIDTH), [L := triangle(r, WIDTH)], B @ np.linalg.inv(L).T),
    "multiply_left_minus": lambda r: (B := tile(r, HEIGHT, WIDTH), [M := triangle(r, HEIGHT)], -M @ B),
    "multiply_left_t": lambda r: (B := tile(r, HEIGHT, WIDTH), [M := triangle(r, HEIGHT)], M.T @ B),
    "multiply_right": lambda r: (B := tile(r, HEIGHT, WIDTH), [M := triangle(r, WIDTH)], B @ M),
    "subtract_square": lambda r: (C := spd(r, HEIGHT), [A := tile(r, HEIGHT, INNER)], C - A @ A.T),
    "add_square_t": lambda r: (C := spd(r, HEIGHT), [A := tile(r, INNER, HEIGHT)], C + A.T @ A),
    "subtract_product_t": lambda r: (
        C := tile(r, HEIGHT, WIDTH), [A := tile(r, HEIGHT, INNER), B := tile(r, WIDTH, INNER)], C - A @ B.T,
    ),
    "add_product": lambda r: (
        C := tile(r, HEIGHT, WIDTH), [A := tile(r, HEIGHT, INNER), B := tile(r, INNER, WIDTH)], C + A @ B,
    ),
    "add_product_t": lambda r: (
        C := tile(r, HEIGHT, WIDTH), [A := tile(r, INNER, HEIGHT), B := tile(r, INNER, WIDTH)], C + A.T @ B,
    ),
}  # fmt: skip


def test_every_kernel_has_a_case():
    assert set(CASES) == set(KERNELS)


def as_tile(array, dtype):
    """Column-major; nonsense above the diagonal of a square one."""
    array = np.asfortranarray(array, dtype)
    if array.shape[0] == array.shape[1]:
        array[np.triu_indices(len(array), 1)] = np.nan
    return array


@pytest.mark.parametrize("block", [1, 2, 3, 512])
@pytest.mark.parametrize("dtype, error", [(np.float32, 2e-5), (np.float64, 1e-13)])
@pytest.mark.parametrize("name", CASES)
def test_it_does_what_it_says(name, dtype, error, block, monkeypatch):
    monkeypatch.setattr(kernels, "BLOCK", block)
    C, others, expected = CASES[name](np.random.default_rng(0))
    C, others = as_tile(C, dtype), [as_tile(other, dtype) for other in others]
    before = [other.copy() for other in others]
    KERNELS[name](C, *others)
    if C.shape[0] == C.shape[1]:
        C, expected = np.tril(C), np.tril(expected)
    assert_allclose(C, expected, rtol=error, atol=error * np.abs(expected).max())
    for other, old in zip(others, before, strict=True):
        assert_allclose(other, old, rtol=0)


@pytest.mark.parametrize("name", CASES)
def test_the_number_of_threads_changes_no_bit(name, monkeypatch):
    monkeypatch.setattr(kernels, "BLOCK", 2)
    results = []
    for threads in (1, 2, 3):
        C, others, _ = CASES[name](np.random.default_rng(0))
        C, others = as_tile(C, np.float32), [as_tile(other, np.float32) for other in others]
        with pinned(threads):
            KERNELS[name](C, *others)
        results.append(C)
    assert_array_equal(results[0], results[1])
    assert_array_equal(results[0], results[2])
