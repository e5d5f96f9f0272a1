"""Sums of the rows of a table that an index lists, in registers, from rows of 32 or of 16 bits.

A table of 16 bits holds the bfloat16 form of float32 rows: a word of 32 bits has two numbers, 16 columns apart, so that a shift
and a mask give two vectors of float32, and the sums are those of float32. Half as many bytes are read, which is what such sums
take their time for. The row that comes `AHEAD` places later in the index is read early, because its address depends on nothing
but the index. An index therefore ends with AHEAD entries that are read without need.
"""
# LLVM's builder and values come without types.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Literal

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import overload

from rankbench.core.compiler import numba
from rankbench.core.simd import LANES, integer, kernel, prefetch

AHEAD = 16  # places of the index that are read before they are used: an index ends with as many zeros
LINE = 64  # bytes of a line of the cache
_WORD = ir.VectorType(ir.IntType(32), LANES)
_FLOATS = ir.VectorType(ir.FloatType(), LANES)

Precision = Literal["float32", "bfloat16"]


def empty_table(n: int, width: int, dtype: np.dtype, precision: Precision = "float32") -> np.ndarray:
    """A table for n rows of `width` numbers, with columns up to a multiple of what a vector holds; its rows are not set.

    `precision` is that of a float32 table; others keep their dtype. The table begins at a line of the cache, so that a row of
    64 numbers of 32 bits is read in four lines and not in five. NumPy asks for large pages of memory.
    """
    if precision == "bfloat16" and dtype == np.float32:
        shape, dtype = (n, -(-width // (2 * LANES)) * LANES), np.dtype(np.uint32)
    else:
        shape = n, -(-width // LANES) * LANES
    size = shape[0] * shape[1] * dtype.itemsize
    memory = np.empty(size + LINE, np.uint8)
    begin = -memory.ctypes.data % LINE
    return memory[begin : begin + size].view(dtype).reshape(shape)


def columns_of(table):
    """The number of columns of a table, a multiple of LANES; those beyond the width of its rows are zeros."""
    return table.shape[1] * (2 if table.dtype == np.uint32 else 1)


@overload(columns_of)
def _columns_of(table):
    if table.dtype == types.uint32:
        return lambda table: 2 * table.shape[1]
    return lambda table: table.shape[1]


def ends_with_zeros(indices: np.ndarray) -> np.ndarray:
    """A copy of an index, int32, that can be read `AHEAD` places beyond its end."""
    return np.concatenate([indices, np.zeros(AHEAD, np.int32)]).astype(np.int32)


def _packed(table) -> bool:
    return isinstance(table.element, ir.IntType)


def listed(builder, index, start, stop, table, stride, column, vectors: int):
    """Loop over the rows of a flat table that `index` lists from `start` to `stop`: the number of the place, and the row's
    vectors from `column` on.
    """

    def row_at(place):
        row = builder.load(builder.gep(index.data, [place]))
        return builder.add(builder.mul(builder.sext(row, ir.IntType(64)), stride), column)

    with cgutils.for_range(builder, builder.sub(stop, start)) as loop:
        place = builder.add(start, loop.index)
        later = builder.gep(table.data, [row_at(builder.add(place, integer(AHEAD)))])
        for line in range(0, vectors * LANES * table.align, LINE):
            prefetch(builder, later, line)
        first = row_at(place)
        yield loop.index, [table.load(builder.add(first, integer(v * LANES))) for v in range(vectors)]


def _sums(vectors: int):
    """Make a kernel that sets sums[at : at + ...] to the sum of `vectors` vectors of the listed rows, from `column` on."""

    def emit(builder, indices, start, stop, table, stride, column, sums, at):
        packed = _packed(table)
        totals = [cgutils.alloca_once_value(builder, sums.zero) for _ in range(vectors * (2 if packed else 1))]
        for _, row in listed(builder, indices, start, stop, table, stride, column, vectors):
            parts = [half for words in row for half in _halves(builder, words)] if packed else row
            for cell, vector in zip(totals, parts, strict=True):
                builder.store(builder.fadd(builder.load(cell), vector), cell)
        for number, cell in enumerate(totals):
            sums.store(builder.load(cell), builder.add(at, integer(number * LANES)))

    emit.__name__ = f"sums_of_{vectors}"
    return kernel(emit)


def _halves(builder, words):
    """The two float32 vectors of a vector of words."""
    low = builder.shl(words, ir.Constant(_WORD, [16] * LANES))
    high = builder.and_(words, ir.Constant(_WORD, [0xFFFF0000] * LANES))
    return [builder.bitcast(part, _FLOATS) for part in (low, high)]


@kernel
def _put(builder, table, first, values, n):
    """Write n vectors of `table` from `first` on, which hold values[: ...]."""
    size = 2 * LANES if _packed(table) else LANES
    with cgutils.for_range(builder, n) as loop:
        at = builder.mul(loop.index, integer(size))
        if _packed(table):
            low, high = (_rounded(builder, values.load(builder.add(at, integer(k)))) for k in (0, LANES))
            low = builder.lshr(low, ir.Constant(_WORD, [16] * LANES))
            vector = builder.or_(low, builder.and_(high, ir.Constant(_WORD, [0xFFFF0000] * LANES)))
        else:
            vector = values.load(at)
        table.store(vector, builder.add(first, builder.mul(loop.index, integer(LANES))))


def _rounded(builder, vector):
    """The bits of a float32 vector, with the upper 16 rounded to the nearest bfloat16, to even at ties. NaN remains NaN."""
    bits = builder.bitcast(vector, _WORD)
    odd = builder.and_(builder.lshr(bits, ir.Constant(_WORD, [16] * LANES)), ir.Constant(_WORD, [1] * LANES))
    return builder.add(bits, builder.add(odd, ir.Constant(_WORD, [0x7FFF] * LANES)))


_four, _two, _one = (_sums(vectors) for vectors in (4, 2, 1))


@numba.njit(nogil=True, cache=True)
def sum_rows(indices, start, stop, table, sums):
    """sums[c] = Σ_s table[indices[s], c] for start ≤ s < stop and all columns c; `indices` ends with AHEAD zeros."""
    stride, column = table.shape[1], 0
    factor = len(sums) // stride
    while column + 4 * LANES <= stride and factor == 1:
        _four(indices, start, stop, table, stride, column, sums, column)
        column += 4 * LANES
    while column + 2 * LANES <= stride:
        _two(indices, start, stop, table, stride, column, sums, column * factor)
        column += 2 * LANES
    while column < stride:
        _one(indices, start, stop, table, stride, column, sums, column * factor)
        column += LANES


@numba.njit(nogil=True, cache=True)
def put_row(table, row, values):
    """Set a row of a table to values[c] for all of its columns."""
    _put(table, row * table.shape[1], values, table.shape[1] // LANES)
