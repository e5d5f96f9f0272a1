"""The driver on paper: it does the tasks of a real run, and its times obey what no schedule can beat."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_systems import SHIFT, some_data
from test_flow import PLENTY, Here

from rankbench.core.errors import StorageError
from rankbench.fitting.flow import Flow
from rankbench.fitting.simulated_pool import Hardware
from rankbench.solvers.tiled.flow import Placement, cluster_tile
from rankbench.solvers.tiled.inverse import tiled_inverse
from rankbench.solvers.tiled.simulation import simulate


@given(nodes=st.integers(1, 300), n_blocks=st.integers(1, 40))
def test_tiles_are_spread_over_all_nodes_and_a_row_or_column_over_some(nodes, n_blocks):
    placement = Placement(nodes)
    assert placement.rows * placement.columns == nodes and placement.rows <= placement.columns
    tiles = [(i, j) for i in range(n_blocks) for j in range(i + 1)]
    found = placement.by_node(tiles)
    assert sorted(tile for some in found.values() for tile in some) == sorted(tiles)
    for k in range(n_blocks):
        assert len(placement.by_node([(k, j) for j in range(k + 1)])) <= placement.columns
        assert len(placement.by_node([(i, k) for i in range(k, n_blocks)])) <= placement.rows


@pytest.mark.parametrize("nodes", [1, 2, 3, 4])
def test_the_operations_are_those_of_a_real_run(tmp_path, unflushed, nodes):
    here = Here((1,) * nodes)
    flow = Flow(here)
    tiled_inverse(some_data(90, 40, seed=1), SHIFT, tmp_path, PLENTY, np.float32, tile=8, flow=flow)
    paper = simulate(40, Hardware(nodes, 1, 1e9, 10.0, 1e9), tile=8)
    assert paper.arithmetic * nodes * 1e9 == pytest.approx(40**3, rel=0.3)
    # Combination depends on time, but what is read in all does not, nor who works: each node has something to do.
    assert {node for node, _, _ in here.ran} == set(range(nodes))
    assert 3 * 15 <= paper.tasks <= flow.n_tasks + here.most


def test_one_node_sends_nothing_and_more_nodes_at_least_their_share():
    alone, four = (simulate(20_000, Hardware(nodes, 16, 128e9, 10.0, 1e11), tile=2048) for nodes in (1, 4))
    assert alone.sent == 0
    assert four.sent > 4 * 20_000**2  # three phases, in each of which half of the matrix goes to another row or column
    assert four.arithmetic == pytest.approx(alone.arithmetic / 4)
    assert four.seconds > max(four.arithmetic, four.sent / 4 / 1.25e9)
    assert four.seconds < alone.seconds
    assert simulate(20_000, Hardware(4, 16, 128e9, 20.0, 2e11), tile=2048).seconds < four.seconds
    with pytest.raises(StorageError, match="more nodes, or nodes with more memory"):
        simulate(20_000, Hardware(4, 16, 0.5e9, 10.0, 1e11), tile=2048)


@given(n=st.integers(1, 1_000_000), nodes=st.integers(1, 256), cores=st.sampled_from([1, 2, 16, 64]))
def test_there_are_tiles_for_all_and_not_too_many(n, nodes, cores):
    threads = 4 if cores >= 8 else 1
    tile = cluster_tile(n, nodes * cores // threads, threads)
    assert 1 <= tile <= max(n, 512) and -(-n // tile) <= 170
