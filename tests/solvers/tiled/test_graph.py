"""The task graph: run with plain NumPy it gives the inverse, a panel meets finished panels alone, and the work is n³ flops."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from rankbench.solvers.tiled.graph import CHOLESKY, HELD, flops, panels, steps


def low(A):
    return np.tril(A)


# What each name means, written apart from the kernels. Tiles are full here; where a triangle is meant, it is cut out.
MEANING = {
    "cholesky": lambda C: np.linalg.cholesky(low(C) + low(C).T - np.diag(np.diagonal(C))),
    "invert": lambda C: np.linalg.inv(low(C)),
    "square_t": lambda C: low(C).T @ low(C),
    "divide_t": lambda C, L: C @ np.linalg.inv(low(L)).T,
    "multiply_left_minus": lambda C, M: -low(M) @ C,
    "multiply_left_t": lambda C, M: low(M).T @ C,
    "multiply_right": lambda C, M: C @ low(M),
    "subtract_square": lambda C, A: C - A @ A.T,
    "add_square_t": lambda C, A: C + A.T @ A,
    "subtract_product_t": lambda C, A, B: C - A @ B.T,
    "add_product": lambda C, A, B: C + A @ B,
    "add_product_t": lambda C, A, B: C + A.T @ B,
}


@given(n=st.integers(1, 14), tile=st.integers(1, 14), seed=st.integers(0, 2**32 - 1))
def test_the_tasks_in_their_order_give_the_inverse(n, tile, seed):
    half = np.random.default_rng(seed).standard_normal((n + 3, n))
    A = half.T @ half + np.eye(n)
    n_blocks = -(-n // tile)
    rows = [slice(i * tile, (i + 1) * tile) for i in range(n_blocks)]
    finished = {}
    for panel in panels(n_blocks):
        begin = {(i, j): A[rows[i], rows[j]] for i, j in panel.tiles} if panel.phase == CHOLESKY else finished
        mine = {tile: begin[tile].copy() for tile in panel.tiles}
        for task in panel.tasks():
            # A tile of this panel is the one being made; from the others comes what finished panels left.
            operands = [mine[tile] if tile in mine else finished[tile] for tile in task.reads]
            mine[task.out] = MEANING[task.op](mine[task.out], *operands)
        finished |= mine
    found = np.zeros((n, n))
    for (i, j), block in finished.items():
        found[rows[i], rows[j]] = block
    assert_allclose(low(found), low(np.linalg.inv(A)), atol=1e-9)


@pytest.mark.parametrize("n, tile", [(1, 1), (7, 7), (12, 3), (13, 3), (29, 4)])
def test_the_work_is_n_cubed(n, tile):
    n_blocks = -(-n // tile)
    side = [min(tile, n - i * tile) for i in range(n_blocks)]
    assert sum(flops(task, side.__getitem__) for panel in panels(n_blocks) for task in panel.tasks()) == pytest.approx(n**3)


@pytest.mark.parametrize("n_blocks", [1, 2, 3, 8])
def test_a_panel_fetches_each_tile_once_and_holds_those_used_last(n_blocks):
    total = 0
    for panel in panels(n_blocks):
        every, last = [], []
        for task, fetched, _ in steps(panel):
            others = [tile for tile in task.reads if tile not in panel.tiles]
            assert len(others) <= HELD and set(fetched) == set(others) - set(last)
            last = ([tile for tile in last if tile not in others] + others)[-HELD:]
            every += fetched
        assert len(every) == len(set(every))
        total += len(every)
    # Σ k (n_blocks − k) for L, Σ k (k + 1)/2 for M, Σ (k + 1)(n_blocks − 1 − k) for C.
    assert total == (n_blocks**3 - n_blocks) // 2
