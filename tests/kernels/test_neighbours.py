"""Sums of listed rows against NumPy, and 16-bit rows against PyTorch's bfloat16."""

import numba
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rankbench.kernels.neighbours import columns_of, empty_table, ends_with_zeros, put_row, sum_rows

KINDS = [(np.float64, "float32"), (np.float32, "float32"), (np.float32, "bfloat16")]


@numba.njit
def stored(rows, table, sums):
    for r in range(len(rows)):
        sums[: rows.shape[1]] = rows[r]
        put_row(table, r, sums)


@numba.njit
def summed(indptr, indices, table, out, sums):
    for r in range(len(out)):
        sum_rows(indices, indptr[r], indptr[r + 1], table, sums)
        out[r] = sums


def table_of(rows, dtype, precision, n_more=0):
    table = empty_table(len(rows) + n_more, rows.shape[1], np.dtype(dtype), precision)
    stored(rows, table, np.zeros(columns_of(table), dtype))
    return table


def sums_of(table, lists, dtype):
    indptr = np.concatenate([[0], np.cumsum([len(each) for each in lists])])
    out = np.empty((len(lists), columns_of(table)), dtype)
    summed(indptr, ends_with_zeros(np.concatenate(lists)), table, out, np.empty(columns_of(table), dtype))
    return out


@pytest.mark.parametrize(("dtype", "precision"), KINDS)
@given(width=st.integers(1, 140), lists=st.lists(st.lists(st.integers(0, 6), max_size=20), min_size=1, max_size=5))
def test_sums_are_those_of_the_rows_that_a_table_has(dtype, precision, width, lists):
    rows = np.random.default_rng(width).normal(size=(7, width)).astype(dtype)
    out = sums_of(table_of(rows, dtype, precision), [np.array(each, int) for each in lists], dtype)
    held = rows.astype(np.float64)
    if precision == "bfloat16":
        held = torch.from_numpy(rows).bfloat16().double().numpy()
    expected = np.array([held[each].sum(axis=0) for each in lists]).reshape(len(lists), width)
    np.testing.assert_allclose(out[:, :width], expected, rtol=0, atol=1e-14 if dtype == np.float64 else 1e-5)
    assert not out[:, width:].any()


def test_a_16_bit_row_is_rounded_as_by_pytorch():
    ties = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0xBF817FFF, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x80000000], np.uint32)
    rows = np.concatenate([ties, np.random.default_rng(0).integers(0, 2**31, 200).astype(np.uint32)]).view(np.float32)[:, None]
    rows[-1] = np.nan
    found = sums_of(table_of(rows, np.float32, "bfloat16"), [np.array([r]) for r in range(len(rows))], np.float32)[:, 0]
    np.testing.assert_array_equal(found, torch.from_numpy(rows[:, 0]).bfloat16().float().numpy())


@pytest.mark.parametrize("rows", [3, 9000])
def test_a_table_begins_at_a_line_of_the_cache(rows):
    table = empty_table(rows, 64, np.dtype(np.float32))
    assert table.ctypes.data % 64 == 0 and table.shape == (rows, 64) and table.flags.writeable
