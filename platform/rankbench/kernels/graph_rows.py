"""Loops over the nodes of a graph that compute rows of Σ_l c_l Â^l E, of its gradients, and Adam's steps with them.

`models/propagation.py` states the recurrence with h̃ = D^-1/2 h, which these loops store: the neighbours' rows are added without
weights. `scale` is D^-1/2, (n_nodes,). A call is for users or for items: E has the vectors of the nodes from `offset` on. Each
row is written by one task. Numbers are passed in the dtype of E, so that none is converted to float64. Rows are not
viewed but indexed: numba counts the references to a view, and threads would wait for each other's counts.
"""

from __future__ import annotations

import numpy as np

from rankbench.core.compiler import numba
from rankbench.kernels.neighbours import AHEAD, columns_of, put_row, sum_rows


# Of the fast-math rules only `contract` is used: others let the compiler drop a NaN, which must reach the trainer.
@numba.njit(nogil=True, cache=True, fastmath={"contract"})
def first_rows(begin, end, stride, offset, E, scale, weight, table):
    """Every `stride`-th row of h̃ ← D^-1/2 weight E from `begin` to `end`."""
    values = np.zeros(columns_of(table), E.dtype)
    for row in range(begin, end, stride):
        given = weight * scale[row]
        for k in range(E.shape[1]):
            values[k] = given * E[row - offset, k]
        put_row(table, row, values)


@numba.njit(nogil=True, cache=True, fastmath={"contract"})
def next_rows(begin, end, stride, offset, E, indptr, indices, scale, weight, h, table):
    """Every `stride`-th row of h̃ ← D^-1/2 weight E + D^-1 Σ h̃ from `begin` to `end`."""
    total = np.empty(columns_of(h), E.dtype)
    for row in range(begin, end, stride):
        sum_rows(indices, indptr[row], indptr[row + 1], h, total)
        given, taken = weight * scale[row], scale[row] * scale[row]
        for k in range(E.shape[1]):
            total[k] = given * E[row - offset, k] + taken * total[k]
        put_row(table, row, total)


@numba.njit(nogil=True, cache=True, fastmath={"contract"})
def last_rows(begin, end, stride, offset, E, out, indptr, indices, scale, weight, h):
    """Every `stride`-th row of weight E + D^-1/2 Σ h̃ from `begin` to `end`, as the same row of `out` as of E."""
    total = np.empty(columns_of(h), E.dtype)
    for row in range(begin, end, stride):
        sum_rows(indices, indptr[row], indptr[row + 1], h, total)
        for k in range(E.shape[1]):
            out[row - offset, k] = weight * E[row - offset, k] + scale[row] * total[k]


@numba.njit(nogil=True, cache=True, fastmath={"contract"})
def chosen_rows(begin, end, offset, E, nodes, out, indptr, indices, scale, weight, h):
    """The rows nodes[begin : end] of weight E + D^-1/2 Σ h̃ as the rows `begin` to `end` of `out`."""
    total = np.empty(columns_of(h), E.dtype)
    for at in range(begin, end):
        row = nodes[at]
        sum_rows(indices, indptr[row], indptr[row + 1], h, total)
        for k in range(E.shape[1]):
            out[at, k] = weight * E[row - offset, k] + scale[row] * total[k]


@numba.njit(nogil=True, cache=True, fastmath={"contract"})
def few_gradients(begin, end, nodes, scale, weight, G, few):
    """Rows 1 + `begin` to 1 + `end` of `few`: h̃ ← D^-1/2 weight G, of the rows `nodes` alone. Row 0 is not read."""
    values = np.zeros(columns_of(few), G.dtype)
    for at in range(begin, end):
        given = weight * scale[nodes[at]]
        for k in range(G.shape[1]):
            values[k] = given * G[at, k]
        put_row(few, at + 1, values)


@numba.njit(nogil=True, cache=True)
def _sum_of(row, indptr, indices, place, few, h, ends, total):
    """The sum of h̃ over the neighbours of a row; if `few`, h̃ has the rows that `place` names."""
    start, stop = indptr[row], indptr[row + 1]
    if not few:
        sum_rows(indices, start, stop, h, total)
        return
    n = 0
    for s in range(start, stop):
        ends[n] = place[indices[s]]
        n += ends[n] != 0
    for s in range(n, n + AHEAD):
        ends[s] = 0
    sum_rows(ends, 0, n, h, total)


@numba.njit(nogil=True, cache=True, fastmath={"contract"})
def next_gradients(begin, end, indptr, indices, scale, place, most, few, h, weight, G, table):
    """Rows `begin` to `end` of h̃ ← D^-1/2 weight G + D^-1 Σ h̃. Row place[r] − 1 of G is node r's, if place[r] is not 0."""
    total, ends = np.empty(columns_of(h), G.dtype), np.empty(most + AHEAD, np.int32)
    for row in range(begin, end):
        _sum_of(row, indptr, indices, place, few, h, ends, total)
        given, taken = weight * scale[row], scale[row] * scale[row]
        for k in range(len(total)):
            total[k] *= taken
        if place[row]:
            for k in range(G.shape[1]):
                total[k] += given * G[place[row] - 1, k]
        put_row(table, row, total)


# With Python's error model every division is checked for zero, and the loop over a vector is not vectorised.
@numba.njit(nogil=True, cache=True, fastmath={"contract"}, error_model="numpy")
def adam_rows(begin, end, offset, E, first, second, indptr, indices, scale, place, most, few, h, own, weight, adam, start):
    """Adam's step of the nodes `begin` to `end`, whose gradient is own + D^-1/2 Σ h̃ and the penalty, and then their rows of
    `start`: h̃ ← D^-1/2 weight E.

    Row place[r] − 1 of `own` is that of node r, if place[r] is not 0. `adam` are one minus the decay rates of
    the moments `first` and `second`, the rate, eps and the penalty.
    """
    c1, c2, rate, eps, penalty = adam
    width = E.shape[1]
    total, ends = np.zeros(columns_of(h), E.dtype), np.empty(most + AHEAD, np.int32)
    for row in range(begin, end):
        _sum_of(row, indptr, indices, place, few, h, ends, total)
        at = row - offset
        for k in range(width):
            total[k] = scale[row] * total[k] + penalty * E[at, k]
        if place[row]:
            for k in range(width):
                total[k] += own[place[row] - 1, k]
        to_start = weight * scale[row]
        for k in range(width):
            m = first[at, k] + (total[k] - first[at, k]) * c1
            v = second[at, k] + (total[k] * total[k] - second[at, k]) * c2
            first[at, k], second[at, k] = m, v
            E[at, k] -= rate * m / (np.sqrt(v) + eps)
            total[k] = to_start * E[at, k]
        put_row(start, row, total)
