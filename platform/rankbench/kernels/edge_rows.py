"""Weighted sums of the rows of a table that an index lists, and their products with one row, in registers.

A row has chunks of equal width, a multiple of LANES, and each listed row a weight or a product for every chunk, those of chunk
k in a buffer's places from k · pitch on. Tables are given flat, with their `stride`: numba counts the references to a view of
an array, and threads would wait for each other's counts. `neighbours.py` says how an index ends.
"""
# LLVM's builder and values come without types.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import numpy as np
from numba.core import cgutils
from torch import Tensor

from rankbench.core.compiler import numba
from rankbench.core.simd import LANES, Numbers, fma, integer, kernel, plus, prefetch, spread, total
from rankbench.kernels.neighbours import AHEAD, LINE, listed
from rankbench.kernels.rows import padded

SEGMENT = 64  # rows that stay in the fastest cache while they are read twice


def chunked(rows: Tensor, chunks: int) -> np.ndarray:
    """Rows (n, chunks · c), whose chunks are filled with zeros up to a multiple of LANES; a copy only where c is not."""
    out = padded(rows.unflatten(1, (chunks, -1)))
    return out.reshape(len(out), chunks * out.shape[2])


def unchunked(rows: Tensor, chunks: int, width: int) -> Tensor:
    """The first width/chunks columns of each chunk of `rows`, (n, width)."""
    return rows if rows.shape[1] == width else rows.unflatten(1, (chunks, -1))[:, :, : width // chunks].flatten(1)


def _places(builder, place, pitch, column, stride, chunks, vectors: int):
    """Where a buffer has the first number of the chunk that each of the vectors from `column` on is part of."""
    width = builder.sdiv(stride, chunks)
    numbers = [builder.sdiv(builder.add(column, integer(v * LANES)), width) for v in range(vectors)]
    return [plus(builder, place, number, pitch) for number in numbers]


def _add(vectors: int):
    def emit(builder, ends, start, stop, weights, place, pitch, chunks, flat, stride, column, sums, at):
        sums_at = [builder.add(builder.add(at, column), integer(v * LANES)) for v in range(vectors)]
        cells = [cgutils.alloca_once_value(builder, sums.load(own)) for own in sums_at]
        of_chunk = _places(builder, place, pitch, column, stride, chunks, vectors)
        for e, row in listed(builder, ends, start, stop, flat, stride, column, vectors):
            for cell, vector, own in zip(cells, row, of_chunk, strict=True):
                weight = builder.load(builder.gep(weights.data, [builder.add(own, e)]))
                builder.store(fma(builder, spread(builder, flat.type, weight), vector, builder.load(cell)), cell)
        for cell, own in zip(cells, sums_at, strict=True):
            sums.store(builder.load(cell), own)

    emit.__name__ = f"add_{vectors}"
    return kernel(emit)


def _dot(vectors: int, groups: int):
    """Add the products of `vectors` vectors, of which each of the `groups` lies in a chunk of its own, to those in `dots`."""

    def emit(builder, ends, start, stop, own, at, chunks, flat, stride, column, dots, place, pitch):
        size, first = vectors // groups, builder.add(at, column)
        given = [own.load(builder.add(first, integer(v * LANES))) for v in range(vectors)]
        of_chunk = _places(builder, place, pitch, column, stride, chunks, vectors)
        for e, row in listed(builder, ends, start, stop, flat, stride, column, vectors):
            for group in range(0, vectors, size):
                products = builder.fmul(given[group], row[group])
                for v in range(group + 1, group + size):
                    products = fma(builder, given[v], row[v], products)
                cell = builder.gep(dots.data, [builder.add(of_chunk[group], e)])
                builder.store(builder.fadd(builder.load(cell), total(builder, products)), cell)

    emit.__name__ = f"dot_{vectors}_{groups}"
    return kernel(emit)


_add_four, _add_one = _add(4), _add(1)
_dot_four, _dot_four_chunks, _dot_one = _dot(4, 1), _dot(4, 4), _dot(1, 1)


@numba.njit(nogil=True, cache=True)
def add_rows(ends, start, stop, weights, place, pitch, chunks, flat, stride, sums, at):
    """Add Σ_s w_sk row(ends[s]) for start ≤ s < stop to sums[at : at + stride], for each chunk k, with the weights
    w_sk = weights[place + k · pitch + s − start].
    """
    column = 0
    while column + 4 * LANES <= stride:
        _add_four(ends, start, stop, weights, place, pitch, chunks, flat, stride, column, sums, at)
        column += 4 * LANES
    while column < stride:
        _add_one(ends, start, stop, weights, place, pitch, chunks, flat, stride, column, sums, at)
        column += LANES


@numba.njit(nogil=True, cache=True)
def dot_rows(ends, start, stop, own, at, chunks, flat, stride, dots, place, pitch):
    """Set dots[place + k · pitch + s − start] to the product of chunk k of own[at : at + stride] and of row(ends[s]), for
    start ≤ s < stop.
    """
    for k in range(chunks):
        for e in range(place + k * pitch, place + k * pitch + stop - start):
            dots[e] = 0
    column, whole = 0, (stride // chunks) % (4 * LANES) == 0
    while column + 4 * LANES <= stride:
        if whole:
            _dot_four(ends, start, stop, own, at, chunks, flat, stride, column, dots, place, pitch)
        else:
            _dot_four_chunks(ends, start, stop, own, at, chunks, flat, stride, column, dots, place, pitch)
        column += 4 * LANES
    while column < stride:
        _dot_one(ends, start, stop, own, at, chunks, flat, stride, column, dots, place, pitch)
        column += LANES


@numba.njit(nogil=True, cache=True)
def longest(indptr, begin, end):
    """The largest number of entries of the rows begin to end, as a multiple of LANES."""
    most = 0
    for row in range(begin, end):
        most = max(most, indptr[row + 1] - indptr[row])
    return (most + LANES - 1) // LANES * LANES


@numba.njit(nogil=True, cache=True)
def longest_of(indptr, nodes, begin, end):
    """`longest` for the rows nodes[begin : end]."""
    most = 0
    for at in range(begin, end):
        most = max(most, longest(indptr, nodes[at], nodes[at] + 1))
    return most


@kernel
def _exp(builder, values, at, n):
    number = Numbers(builder, values.type)
    with cgutils.for_range(builder, n) as loop:
        place = builder.add(at, builder.mul(loop.index, integer(LANES)))
        values.store(number.exp(values.load(place)), place)


@numba.njit(nogil=True, cache=True)
def exp_of(values, at, n):
    """Set n numbers of `values` from `at` on to their exponentials, and also those up to the next multiple of LANES."""
    _exp(values, at, (n + LANES - 1) // LANES)


@kernel
def _read_early(builder, flat, at, n):
    """Ask for n vectors from `at` on, which are read soon."""
    with cgutils.for_range(builder, n) as loop:
        place = builder.add(at, builder.mul(loop.index, integer(LANES)))
        for line in range(0, LANES * flat.align, LINE):
            prefetch(builder, builder.gep(flat.data, [place]), line)


@numba.njit(nogil=True, cache=True)
def list_some(ends, start, stop, place, listed, flat, stride):
    """List the places ≥ 0 of the entries of an index from `start` to `stop`, and return their number. The first rows are read
    early.
    """
    n = 0
    for s in range(start, stop):
        at = place[ends[s]]
        if at >= 0:
            listed[n] = at
            n += 1
            if n <= AHEAD:
                _read_early(flat, at * stride, stride // LANES)
    return n
