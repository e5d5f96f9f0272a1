"""Half steps against the reference for rows of every length; the bits do not depend on blocks or threads."""

import numpy as np
import pytest
import reference
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from rankbench.core.errors import NumericalError
from rankbench.fitting.executors import ThreadMap
from rankbench.solvers.als import half_step as module
from rankbench.solvers.als.half_step import Coefficients, HalfStep, moments, of_users
from rankbench.solvers.als.quadratic_loss import QuadraticLoss


def rows(n_rows, n_cols, rng):
    """Rows of every length from none to all columns."""
    return sp.csr_array((rng.random((n_rows, n_cols)) < np.linspace(0, 1, n_rows)[:, None]).astype(np.float32))


def coefficients(n_rows, n_cols, rng, weighted=True, columns=True):
    own = [rng.random(n_rows) + 0.1 for _ in range(5)]
    if not weighted:
        own[1] = np.zeros(n_rows)
    of_columns = [rng.random(n_cols) + 0.1 for _ in range(4)] if columns else [None] * 4
    return Coefficients(*own, *of_columns)


@settings(max_examples=30)
@given(
    seed=st.integers(0, 10**6),
    shape=st.tuples(st.integers(1, 50), st.integers(1, 80)),
    dim=st.sampled_from([1, 3, 15, 16, 17, 32, 40]),
    weighted=st.booleans(),
    columns=st.booleans(),
)
def test_any_half_step_is_that_of_the_reference(seed, shape, dim, weighted, columns):
    rng = np.random.default_rng(seed)
    X, on = rows(*shape, rng), coefficients(*shape, rng, weighted, columns)
    Y = rng.normal(size=(shape[1], dim))
    expected = reference.half_step(X, on, Y)
    assert_allclose(HalfStep(X, on, dim, np.float64, "exact", ThreadMap(1)).solve(Y), expected, rtol=1e-7, atol=1e-9)
    single = HalfStep(X, on, dim, np.float32, "exact", ThreadMap(1)).solve(Y.astype(np.float32))
    assert_allclose(single, expected, rtol=5e-3, atol=2e-4 * (1 + np.abs(expected).max()))


@pytest.mark.parametrize(("method", "effort"), [("exact", 0), ("cg", 3), ("subspace", 32)])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.fault("F13")
def test_the_bits_are_the_same_for_any_blocks_and_threads(method, effort, weighted, monkeypatch, figure):
    rng = np.random.default_rng(1)
    X, on = rows(400, 300, rng), coefficients(400, 300, rng, weighted)
    Y, start = (rng.normal(size=(n, 256)).astype(np.float32) for n in (300, 400))
    results = []
    for workers, cycles in [(1, 1e12), (1, 3e5), (2, 1e6), (7, 1e12), (64, 1e12)]:
        monkeypatch.setattr(module, "BLOCK_CYCLES", cycles)
        step = HalfStep(X, on, 256, np.float32, method, ThreadMap(workers))
        results.append((len(step.blocks), step.solve(Y, start, effort)))
    assert len({blocks for blocks, _ in results}) > 2
    for _, solution in results[1:]:
        assert_array_equal(solution, results[0][1])
    figure(f"a half step in {len({blocks for blocks, _ in results})} numbers of blocks: the same bits")


def test_blocks_hold_every_row_once_and_about_the_same_work():
    rng = np.random.default_rng(2)
    X = rows(5000, 60, rng)
    step = HalfStep(X, coefficients(5000, 60, rng), 32, np.float32, "exact", ThreadMap(4))
    blocks = [block.rows for block in step.blocks]
    assert sorted(np.concatenate(blocks)) == list(range(5000))
    assert all(len(rows) % module.LANES == 0 for rows in blocks[:-1])
    lengths = np.diff(X.indptr)
    work = [module.row_work(lengths[rows], 32, "exact").sum() for rows in blocks[:-1]]
    assert len(work) >= 8 and max(work) < 2 * min(work)


@pytest.mark.parametrize("smallest", [0.1, 0.003])
def test_directions_that_only_the_rows_items_determine_are_kept_in_single_precision(smallest):
    """Singular values of Y from 1 to `smallest`, and next to no ridge: the Gram has few digits of the last ones."""
    rng, n_rows, n_cols, dim = np.random.default_rng(0), 60, 200, 32
    X = sp.csr_array((rng.random((n_rows, n_cols)) < 0.15).astype(np.float32))
    Y = np.linalg.qr(rng.normal(size=(n_cols, dim)))[0] * np.geomspace(1, smallest, dim)
    each, ridge = np.ones(n_rows), np.full(n_rows, 1e-7)
    on = of_users(QuadraticLoss(each, 0 * each, 4 * each, 5 * each, ridge, np.full(n_cols, 1e-7), 0.0))
    exact = reference.half_step(X, on, Y) @ Y.T
    found = HalfStep(X, on, dim, np.float32, "exact", ThreadMap(1)).solve(Y.astype(np.float32)) @ Y.T
    assert np.abs(found - exact).max() < 2e-6 * np.abs(exact).max()


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_moments_of_more_rows_than_a_chunk_and_what_is_not_finite():
    rng, n = np.random.default_rng(4), 2 * module.CHUNK + 5
    Y, weights, targets = rng.normal(size=(n, 6)), rng.random(n), rng.normal(size=n)
    for w, t in ((weights, targets), (None, None)):
        gram, total = moments(Y, w, t)
        assert_allclose(gram, (Y.T * (1 if w is None else w)) @ Y, rtol=1e-12)
        assert_allclose(total, Y.T @ (np.ones(n) if t is None else t), rtol=1e-10)
    X, on = rows(20, 10, rng), coefficients(20, 10, rng)
    Y = np.where(np.arange(40).reshape(10, 4) == 9, np.inf, 1).astype(np.float32)
    with pytest.raises(NumericalError, match="raise lam"):
        HalfStep(X, on, 4, np.float32, "exact", ThreadMap(1)).solve(Y)
