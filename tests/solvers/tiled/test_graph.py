"""The task graph: a panel fetches each tile of others once, and the work is n³ flops. `test_inverse.py` runs it."""

import pytest

from rankbench.solvers.tiled.graph import HELD, flops, panels, steps


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
