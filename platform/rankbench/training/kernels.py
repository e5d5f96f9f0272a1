"""Dot products of rows with items selected by index, and their gradients, without building a (B, n, d) tensor.

`reference.py` states the same operations in plain PyTorch. There each vector is copied, the copy is read, and a gradient of the
same size is added to the table by index; here vectors are read from the cache. Every output row is computed by one task, so the
bits do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numba
import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import normalize

from rankbench.fitting.executors import threads_of

_BUCKET = 9  # 2^9 item vectors of 64 floats, and their gradients, fit into the cache of one core
_SMALL = 1 << 16  # number of pairs below which starting a thread costs more than it saves
_TINY = 1e-12  # the smallest length that a vector is divided by
_CHUNK = 1 << 24  # floats that the PyTorch path gathers at once


def gather_dot(rows: Tensor, table: Tensor, ids: Tensor) -> Tensor:
    """Compute rows[b] · table[ids[b, k]], (B, n), for rows (B, d), table (N, d) and ids (B, n) int64.

    Gradients flow to both `rows` and `table`.
    """
    return _GatherDot.apply(rows, table, ids)


def ragged_dot(rows: Tensor, table: Tensor, row: Tensor, ids: Tensor) -> Tensor:
    """Compute rows[row[t]] · table[ids[t]], (T,), without gradients, for row and ids (T,) int64."""
    if rows.device.type == "cpu":
        out = np.empty(len(ids), _array(rows).dtype)
        _ragged(_array(rows), _array(table), row.numpy(), ids.numpy(), out)
        return torch.from_numpy(out)
    size = max(1, _CHUNK // rows.shape[1])
    parts = [(rows[r] * table[i]).sum(1) for r, i in zip(row.split(size), ids.split(size), strict=True)]
    return torch.cat(parts).detach() if parts else rows.new_empty(0)


def pair_dot(users: Tensor, items: Tensor, row: Tensor, ids: Tensor) -> Tensor:
    """Compute users[row[t]] · items[ids[t]], (T,), for row and ids (T,) int64. Gradients flow to `users` and `items`."""
    if users.device.type != "cpu":
        return (users[row] * items[ids]).sum(dim=1)
    return _PairDot.apply(users, items, row, ids)


class _PairDot(torch.autograd.Function):
    @staticmethod
    def forward(ctx, users: Tensor, items: Tensor, row: Tensor, ids: Tensor) -> Tensor:
        ctx.save_for_backward(users, items, row, ids)
        return ragged_dot(users, items, row, ids)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        users, items, row, ids = ctx.saved_tensors
        d_users, d_items = torch.zeros_like(users), torch.zeros_like(items)
        arrays = _array(users), _array(items), row.numpy(), ids.numpy(), _array(grad.contiguous())
        _pairs_back(*arrays, d_users.numpy(), d_items.numpy())
        return d_users, d_items, None, None


def unit_rows(table: Tensor) -> Tensor:
    """Divide rows by their lengths, (n, d), as `torch.nn.functional.normalize` does, in one pass per direction."""
    return _UnitRows.apply(table) if table.device.type == "cpu" else normalize(table, dim=1, eps=_TINY)


class _UnitRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, table: Tensor) -> Tensor:
        given = _array(table)
        out, length = np.empty_like(given), np.empty(len(given), given.dtype)
        in_parallel(_unit, len(given), given.size, given, given.dtype.type(_TINY), out, length)
        out, length = torch.from_numpy(out), torch.from_numpy(length)
        ctx.save_for_backward(out, length)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> Tensor:
        out, length = (tensor.numpy() for tensor in ctx.saved_tensors)
        given = _array(grad)
        result = np.empty_like(given)
        in_parallel(_unit_back, len(given), given.size, out, length, given, given.dtype.type(_TINY), result)
        return torch.from_numpy(result)


class _GatherDot(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows: Tensor, table: Tensor, ids: Tensor) -> Tensor:
        ctx.save_for_backward(rows, table, ids)
        if rows.device.type != "cpu":
            return torch.cat([(r[:, None] @ table[i].transpose(1, 2))[:, 0] for r, i in _chunks(rows, ids)])
        out = np.empty(ids.shape, _array(rows).dtype)
        in_parallel(_dots, ids.shape[0], ids.numel(), _array(rows), _array(table), ids.numpy(), out)
        return torch.from_numpy(out)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        rows, table, ids = ctx.saved_tensors
        if rows.device.type != "cpu":
            return *_plain_backward(rows, table, ids, grad), None
        given, numbers = _array(grad.contiguous()), ids.numpy()
        d_rows = d_table = None
        if ctx.needs_input_grad[0]:
            d_rows = np.zeros(rows.shape, given.dtype)
            in_parallel(_to_rows, ids.shape[0], ids.numel(), _array(table), numbers, given, d_rows)
            d_rows = torch.from_numpy(d_rows)
        if ctx.needs_input_grad[1]:
            d_table = np.zeros(table.shape, given.dtype)
            starts, order = _buckets(numbers.reshape(-1), len(d_table))
            pairs = _array(rows), numbers.reshape(-1), given.reshape(-1), numbers.shape[1], starts, order
            in_parallel(_to_table, len(starts) - 1, ids.numel(), *pairs, d_table)
            d_table = torch.from_numpy(d_table)
        return d_rows, d_table, None


def _plain_backward(rows: Tensor, table: Tensor, ids: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    d_rows, d_table, start = [], torch.zeros_like(table), 0
    for r, i in _chunks(rows, ids):
        g = grad[start : start + len(r)]
        start += len(r)
        d_rows.append((g[:, None] @ table[i])[:, 0])
        d_table.index_add_(0, i.reshape(-1), (g[:, :, None] * r[:, None]).reshape(-1, r.shape[1]))
    return torch.cat(d_rows), d_table


def _chunks(rows: Tensor, ids: Tensor):
    size = max(1, _CHUNK // max(1, ids.shape[1] * rows.shape[1]))
    return zip(rows.split(size), ids.split(size), strict=True)


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().contiguous().numpy()


def in_parallel(kernel: Callable, n: int, work: int, *arrays) -> None:
    """Call kernel(*arrays, start, stop) over 0 .. n, divided into one part per thread."""
    n_threads = numba.get_num_threads() if work >= _SMALL else 1
    cuts = np.linspace(0, n, n_threads + 1).astype(np.int64)
    parts = list(pairwise(cuts))
    tasks = [threads_of(n_threads - 1).submit(kernel, *arrays, *part) for part in parts[1:]]
    kernel(*arrays, *parts[0])
    for task in tasks:
        task.result()


@numba.njit(nogil=True, cache=True, fastmath=True, error_model="numpy")
def _unit(table, tiny, out, length, start, stop):
    d = table.shape[1]
    for r in range(start, stop):
        row, total = table[r], tiny * 0
        for t in range(d):
            total += row[t] * row[t]
        length[r] = max(np.sqrt(total), tiny)
        scale = (tiny / tiny) / length[r]
        for t in range(d):
            out[r, t] = row[t] * scale


@numba.njit(nogil=True, cache=True, fastmath=True, error_model="numpy")
def _unit_back(unit, length, grad, tiny, out, start, stop):
    """(g − (g · u) u) / ‖v‖. Vectors shorter than `tiny` are not treated separately, although their length is constant."""
    d = unit.shape[1]
    for r in range(start, stop):
        u, g, along = unit[r], grad[r], tiny * 0
        for t in range(d):
            along += g[t] * u[t]
        scale = (tiny / tiny) / length[r]
        for t in range(d):
            out[r, t] = (g[t] - along * u[t]) * scale


@numba.njit(nogil=True, cache=True, fastmath=True)
def _dots(rows, table, ids, out, start, stop):
    n, d = ids.shape[1], rows.shape[1]
    for b in range(start, stop):
        p = rows[b]
        for k in range(n):
            q = table[ids[b, k]]
            total = p[0] * 0
            for t in range(d):
                total += p[t] * q[t]
            out[b, k] = total


@numba.njit(nogil=True, cache=True, fastmath=True)
def _ragged(rows, table, row, ids, out):
    d = rows.shape[1]
    for s in range(len(ids)):
        p, q = rows[row[s]], table[ids[s]]
        total = p[0] * 0
        for t in range(d):
            total += p[t] * q[t]
        out[s] = total


@numba.njit(nogil=True, cache=True, fastmath=True)
def _pairs_back(users, items, row, ids, grad, d_users, d_items):
    for s in range(len(ids)):
        u, i, weight = row[s], ids[s], grad[s]
        p, q, own, other = users[u], items[i], d_users[u], d_items[i]
        for t in range(len(p)):
            own[t] += weight * q[t]
            other[t] += weight * p[t]


@numba.njit(nogil=True, cache=True, fastmath=True)
def _to_rows(table, ids, grad, out, start, stop):
    n, d = ids.shape[1], table.shape[1]
    for b in range(start, stop):
        gradient = out[b]
        for k in range(n):
            q, weight = table[ids[b, k]], grad[b, k]
            for t in range(d):
                gradient[t] += weight * q[t]


@numba.njit(nogil=True, cache=True)
def _buckets(ids, n_items):
    """Positions in `ids` (pairs,) grouped into buckets of neighbouring items: the start of each bucket, and the positions."""
    n_buckets = (n_items >> _BUCKET) + 1
    starts = np.zeros(n_buckets + 1, np.int64)
    for s in range(len(ids)):
        starts[(ids[s] >> _BUCKET) + 1] += 1
    starts = np.cumsum(starts)
    fill, order = starts[:-1].copy(), np.empty(len(ids), np.int32)
    for s in range(len(ids)):
        bucket = ids[s] >> _BUCKET
        order[fill[bucket]] = s
        fill[bucket] += 1
    return starts, order


@numba.njit(nogil=True, cache=True, fastmath=True)
def _to_table(rows, ids, grad, n, starts, order, out, start, stop):
    d = rows.shape[1]
    for s in range(starts[start], starts[stop]):
        pair = order[s]
        weight = grad[pair]
        p, gradient = rows[pair // n], out[ids[pair]]
        for t in range(d):
            gradient[t] += weight * p[t]
