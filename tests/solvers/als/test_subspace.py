"""Sweeps over subspaces (iALS++) and steps of conjugate gradients against plain NumPy, row by row."""

import numpy as np
import pytest
import reference
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from rankbench.fitting.executors import ThreadMap
from rankbench.solvers.als import half_step as module
from rankbench.solvers.als.gradients import solve_gradients, steps_are_cheaper
from rankbench.solvers.als.half_step import Coefficients, HalfStep
from rankbench.solvers.als.subspace import dealt, solve_subspaces, sweep_is_cheaper


def problem(seed, n_rows, n_cols, K, dtype=np.float64):
    """Rows of every length, as the arguments that all solvers share; a start; and each row's system and right side."""
    rng = np.random.default_rng(seed)
    R = (rng.random((n_rows, n_cols)) < np.linspace(1, 0, n_rows)[:, None]).astype(np.float32)
    X = sp.csr_array(R)
    Y = np.vstack([rng.normal(size=(n_cols, K)), np.zeros((1, K))]).astype(dtype)
    w0, w1, t0, t1, reg = (rng.random(n_rows).astype(dtype) + dtype(0.1) for _ in range(5))
    ratio, spectrum, h = (rng.random(n).astype(dtype) for n in (n_cols, K, K))
    x = rng.normal(size=(n_rows, K)).astype(dtype)
    y = Y[:-1].astype(np.float64)
    systems = [np.diag(w0[r] * spectrum + reg[r]) + w1[r] ** 2.0 * y.T @ (R[r][:, None] * y) for r in range(n_rows)]
    rights = [t0[r] * h + w1[r] * t1[r] * y.T @ (R[r] * ratio) for r in range(n_rows)]
    shared = (X.indptr.astype(np.int64), X.indices.astype(np.int32), w0, w1, t0, t1, reg, Y, ratio, spectrum, h, dtype(1e-12))
    return shared, x, systems, rights


def swept(A, b, x, size):
    """The definition: solve for each block of x with all others held."""
    x = x.astype(np.float64)
    for k in range(0, len(x), size):
        block = slice(k, k + size)
        x[block] += np.linalg.solve(A[block, block], (b - A @ x)[block])
    return x


def stepped(A, b, x, steps, diagonal):
    """The textbook's preconditioned conjugate gradients."""
    x = x.astype(np.float64)
    r = b - A @ x
    p = r / diagonal
    for _ in range(steps):
        length = (r @ (r / diagonal)) / (p @ A @ p)
        x, after = x + length * p, r - length * A @ p
        p = after / diagonal + (after @ (after / diagonal)) / (r @ (r / diagonal)) * p
        r = after
    return x


@pytest.mark.parametrize(("K", "size"), [(16, 16), (48, 32), (64, 16), (80, 128)])
@pytest.mark.parametrize(("dtype", "apart"), [(np.float64, 1e-10), (np.float32, 2e-4)])
def test_a_sweep_is_that_of_the_definition(K, size, dtype, apart):
    shared, x, systems, rights = problem(0, 40, 90, K, dtype)
    expected = np.array([swept(*each, size) for each in zip(systems, rights, x, strict=True)])
    solve_subspaces(*shared, size, x)
    assert_allclose(x, expected, atol=apart * np.abs(expected).max(), rtol=0)


@pytest.mark.parametrize("K", [16, 208])
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_steps_are_those_of_the_textbook(K, steps):
    shared, x, systems, rights = problem(1, 40, 90, K)
    _, _, w0, _, _, _, reg, _, _, spectrum, _, _ = shared
    diagonals = w0[:, None] * spectrum + reg[:, None]
    expected = np.array([stepped(A, b, u, steps, d) for A, b, u, d in zip(systems, rights, x, diagonals, strict=True)])
    solve_gradients(*shared, steps, x)
    assert_allclose(x, expected, atol=1e-10 * np.abs(expected).max(), rtol=0)


@pytest.mark.parametrize(("solver", "effort"), [("subspace", 16), ("cg", 4)])
@settings(max_examples=4)
@given(seed=st.integers(0, 10**6), dim=st.sampled_from([16, 40, 100]), columns=st.booleans(), single=st.booleans())
def test_repeated_half_steps_come_to_the_exact_solution(solver, effort, seed, dim, columns, single):
    """Also where the dimension is no multiple of a vector's, and where rows of different lengths have different solvers."""
    rng = np.random.default_rng(seed)
    n_rows, n_cols = 32, 400
    X = sp.csr_array((rng.random((n_rows, n_cols)) < np.linspace(0, 0.5, n_rows)[:, None]).astype(np.float32))
    own = [rng.random(n_rows) + 0.1 for _ in range(5)]
    on = Coefficients(*own, *([rng.random(n_cols) + 0.1 for _ in range(4)] if columns else [None] * 4))
    dtype = np.float32 if single else np.float64
    Y, x = rng.normal(size=(n_cols, dim)), rng.normal(size=(n_rows, dim)).astype(dtype)
    expected = reference.half_step(X, on, Y)
    step = HalfStep(X, on, dim, dtype, solver, ThreadMap(1))
    for _ in range(40):
        x = step.solve(Y.astype(dtype), x, effort)
    assert_allclose(x, expected, atol=(2e-3 if single else 1e-6) * (1 + np.abs(expected).max()), rtol=0)


@pytest.mark.parametrize(("solver", "cheaper", "effort"), [("cg", steps_are_cheaper, 3), ("subspace", sweep_is_cheaper, 16)])
def test_each_row_has_one_solver_whatever_its_block(solver, cheaper, effort):
    rng = np.random.default_rng(3)
    X = sp.csr_array((rng.random((200, 300)) < np.linspace(0, 1, 200)[:, None] ** 3).astype(np.float32))
    on = Coefficients(*(np.ones(200) for _ in range(5)))
    whole = {}
    for workers in (1, 3, 8):
        chosen = {}
        for block in HalfStep(X, on, 64, np.float32, solver, ThreadMap(workers)).blocks:
            parts = module.runs(block, solver, 64, effort)
            assert [rows.start for rows, _ in parts] == [0, *(rows.stop for rows, _ in parts[:-1])]
            assert parts[-1][0].stop == len(block.rows)
            chosen |= {int(row): by for rows, by in parts for row in block.rows[rows]}
        whole = whole or chosen
        assert chosen == whole
    assert set(whole.values()) == {"exact", solver}
    assert_array_equal(cheaper(np.array([1, 300]), 64, effort), [False, True])
    assert_array_equal(dealt(6, 2), [0, 3, 1, 4, 2, 5])
    assert sorted(dealt(100, 16)) == list(range(100))
