"""Block columns of the shifted Gram: to the bit the matrix that is inverted in memory, and the reference's up to rounding."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from small_systems import shifted_gram, some_data

from rankbench.core.errors import ConfigError
from rankbench.data.blocks import gram as dense_gram
from rankbench.fitting.method import Shift
from rankbench.solvers.inverse.shared import inverse
from rankbench.solvers.tiled.gram import ENTRY, ShiftedGram
from rankbench.solvers.tiled.grid import Grid


@given(
    n=st.integers(1, 20),
    tile=st.integers(1, 21),
    dtype=st.sampled_from([np.float32, np.float64]),
    entries=st.integers(0, 100),
    ridge=st.floats(0, 100),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_column_of_tiles_is_that_of_the_matrix(n, tile, dtype, entries, ridge, seed):
    X = some_data(30, n, seed=seed)
    shift = Shift(0.5, ridge)
    gram, grid = ShiftedGram(X, shift, np.dtype(dtype)), Grid(n, min(tile, n), np.dtype(dtype))
    # From memory for one item at a time to memory for all.
    workspace = np.empty(gram.least_workspace + entries * ENTRY, np.uint8)
    expected = inverse(dense_gram(X, dtype), shift, invert=lambda A, progress: A)
    assert_allclose(expected, shifted_gram(X, shift), rtol=1e-6)
    for k in range(grid.n_blocks):
        panel = np.full((grid.n_blocks - k, grid.tile**2), np.nan, dtype)
        gram.column(k, grid, panel, workspace)
        column = np.concatenate([grid.view(panel[i - k], (i, k)) for i in range(k, grid.n_blocks)])
        left = k * grid.tile
        below = np.tril_indices(len(column), m=column.shape[1])
        assert_array_equal(column[below], expected[left:, left : left + column.shape[1]][below])
        some = [i for i in range(k, grid.n_blocks) if seed >> i & 1] or [k]
        part = np.full((len(some), grid.tile**2), np.nan, dtype)
        gram.column(k, grid, part, workspace, some)
        for buffer, i in zip(part, some, strict=True):
            assert_array_equal(grid.view(buffer, (i, k)), grid.view(panel[i - k], (i, k)))


def test_float32_refuses_what_it_cannot_count():
    X = some_data(5, 3)
    X.indices = np.zeros(2**24, np.int32)
    with pytest.raises(ConfigError, match="use dtype=float64"):
        ShiftedGram(X, Shift(0, 1), np.dtype(np.float32))
