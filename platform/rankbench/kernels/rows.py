"""Dot products of rows with items selected by index, and their gradients, without building a (B, n, d) tensor.

`tests/kernels/plain.py` states the same operations in plain PyTorch. There each vector is copied, the copy is read, and a
gradient of the same size is added to the table by index; here vectors are read from the cache. Every output row is computed by
one task, so the bits do not depend on the number of threads.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import normalize, pad

from rankbench.core.compiler import numba
from rankbench.core.devices import compiled
from rankbench.core.simd import LANES
from rankbench.kernels.parallel import in_parallel
from rankbench.kernels.sorted_pairs import dots, dots_back, sorted_pairs

_TINY = 1e-12  # the smallest length that a vector is divided by
_CHUNK = 1 << 24  # floats that the PyTorch path gathers at once


def gather_dot(rows: Tensor, table: Tensor, ids: Tensor) -> Tensor:
    """Compute rows[b] · table[ids[b, k]], (B, n), for rows (B, d), table (N, d) and ids (B, n) int64.

    Gradients flow to both `rows` and `table`.
    """
    return _GatherDot.apply(rows, table, ids, None)[0]


def gather_dots(rows: Tensor, table: Tensor, ids: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """`gather_dot`, and rows[b] · table[own[b]], (B,), for own (B,) int64, with one gradient of the table for both."""
    return _GatherDot.apply(rows, table, ids, own)


def ragged_dot(rows: Tensor, table: Tensor, row: Tensor, ids: Tensor) -> Tensor:
    """Compute rows[row[t]] · table[ids[t]], (T,), without gradients, for row and ids (T,) int64."""
    if compiled(rows.device):
        out = np.empty(len(ids), _array(rows).dtype)
        in_parallel(_ragged, len(ids), len(ids) * rows.shape[1], _array(rows), _array(table), row.numpy(), ids.numpy(), out)
        return torch.from_numpy(out)
    size = max(1, _CHUNK // rows.shape[1])
    parts = [(rows[r] * table[i]).sum(1) for r, i in zip(row.split(size), ids.split(size), strict=True)]
    return torch.cat(parts).detach() if parts else rows.new_empty(0)


def pair_dot(users: Tensor, items: Tensor, row: Tensor, ids: Tensor) -> Tensor:
    """Compute users[row[t]] · items[ids[t]], (T,), for row and ids (T,) int64. Gradients flow to `users` and `items`."""
    if not compiled(users.device):
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
        d_users, d_items = (torch.zeros_like(side, memory_format=torch.contiguous_format) for side in (users, items))
        arrays = _array(users), _array(items), row.numpy(), ids.numpy(), _array(grad)
        _add_pairs(*arrays, d_users.numpy(), d_items.numpy())
        return d_users, d_items, None, None


def _add_pairs(users, items, row, ids, grad, d_users, d_items) -> None:
    """Add the gradients of `pair_dot` to both arrays."""
    work = len(row) * users.shape[1]
    in_parallel(_pairs_back, len(users), work, items, row, ids, grad, d_users)
    in_parallel(_pairs_back, len(items), work, users, ids, row, grad, d_items)


def take_rows(table: Tensor, ids: Tensor) -> Tensor:
    """table[ids], (m, d), for ids (m,) int64. PyTorch adds the gradients of such rows one by one, which takes milliseconds."""
    return _TakeRows.apply(table, ids) if compiled(table.device) else table[ids]


class _TakeRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, table: Tensor, ids: Tensor) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.shape = table.shape
        return table.index_select(0, ids)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):
        (ids,) = ctx.saved_tensors
        given = _array(grad)
        out, ones = np.zeros(ctx.shape, given.dtype), np.ones(len(given), given.dtype)
        in_parallel(_pairs_back, len(out), given.size, given, ids.numpy(), np.arange(len(given)), ones, out)
        return torch.from_numpy(out), None


def unit_rows(table: Tensor) -> Tensor:
    """Divide rows by their lengths, (n, d), as `torch.nn.functional.normalize` does, in one pass per direction."""
    return _UnitRows.apply(table) if compiled(table.device) else normalize(table, dim=1, eps=_TINY)


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


def squared_lengths(table: Tensor) -> Tensor:
    """The squared lengths of rows, (n,)."""
    return _SquaredLengths.apply(table) if compiled(table.device) else table.square().sum(dim=1)


class _SquaredLengths(torch.autograd.Function):
    @staticmethod
    def forward(ctx, table: Tensor) -> Tensor:
        ctx.save_for_backward(table)
        given = _array(table)
        out = np.empty(len(given), given.dtype)
        in_parallel(_lengths, len(given), given.size, given, out)
        return torch.from_numpy(out)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> Tensor:
        given = _array(ctx.saved_tensors[0])
        out = np.empty_like(given)
        in_parallel(_lengths_back, len(given), given.size, given, _array(grad), out)
        return torch.from_numpy(out)


class _GatherDot(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows: Tensor, table: Tensor, ids: Tensor, own: Tensor | None) -> tuple[Tensor, Tensor | None]:
        ctx.save_for_backward(rows, table, ids, own)
        own_dots = None if own is None else ragged_dot(rows, table, torch.arange(len(rows), device=rows.device), own)
        if not compiled(rows.device):
            return torch.cat([(r[:, None] @ table[i].transpose(1, 2))[:, 0] for r, i in _chunks(rows, ids)]), own_dots
        ctx.pairs = sorted_pairs(ids.numpy(), len(table))
        left, right = padded(rows), padded(table)
        out = np.empty(ids.shape, left.dtype)
        arrays = left.reshape(-1), right.reshape(-1), left.shape[1], *ctx.pairs, out.reshape(-1)
        in_parallel(dots, len(ctx.pairs.starts) - 1, ids.numel(), *arrays)
        return torch.from_numpy(out), own_dots

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor, own_grad: Tensor | None):
        rows, table, ids, own = ctx.saved_tensors
        if not compiled(rows.device):
            d_rows, d_table = _plain_backward(rows, table, ids, grad)
            if own is not None:
                d_rows += own_grad[:, None] * table[own]
                d_table.index_add_(0, own, own_grad[:, None] * rows)
            return d_rows, d_table, None, None
        left, right, groups = padded(rows), padded(table), ctx.pairs.groups
        d_table, group_rows = np.zeros_like(right), np.zeros((len(groups) - 1, *left.shape), left.dtype)
        given = left.reshape(-1), right.reshape(-1), left.shape[1], groups, *ctx.pairs, _array(grad).reshape(-1)
        in_parallel(dots_back, len(groups) - 1, ids.numel(), *given, d_table.reshape(-1), group_rows.reshape(-1))
        d_rows = group_rows.sum(axis=0)
        if own is not None:
            _add_pairs(left, right, np.arange(len(left)), own.numpy(), _array(own_grad), d_rows, d_table)
        d = rows.shape[1]
        return torch.from_numpy(d_rows[:, :d]), torch.from_numpy(d_table[:, :d]), None, None


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


def padded(rows: Tensor) -> np.ndarray:
    """Rows (n, d), or chunks of rows (n, k, d), with zeros up to a multiple of LANES numbers; a copy only where d is none."""
    missing = -rows.shape[-1] % LANES
    return _array(pad(rows, (0, missing)) if missing else rows)


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


@numba.njit(nogil=True, cache=True, fastmath={"contract", "reassoc"})
def _lengths(table, out, start, stop):
    for r in range(start, stop):
        total = table.dtype.type(0)
        for t in range(table.shape[1]):
            total += table[r, t] * table[r, t]
        out[r] = total


@numba.njit(nogil=True, cache=True, fastmath={"contract"})
def _lengths_back(table, grad, out, start, stop):
    for r in range(start, stop):
        twice = grad[r] + grad[r]
        for t in range(table.shape[1]):
            out[r, t] = twice * table[r, t]


@numba.njit(nogil=True, cache=True, fastmath=True)
def _ragged(rows, table, row, ids, out, start, stop):
    d = rows.shape[1]
    for s in range(start, stop):
        p, q = rows[row[s]], table[ids[s]]
        total = p[0] * 0
        for t in range(d):
            total += p[t] * q[t]
        out[s] = total


@numba.njit(nogil=True, cache=True, fastmath=True)
def _pairs_back(others, own, other, grad, out, start, stop):
    """For rows start to stop of one table: add grad[s] · others[other[s]] to out[own[s]], for the pairs s of these rows."""
    for s in range(len(own)):
        if start <= own[s] < stop:
            gradient, vector, weight = out[own[s]], others[other[s]], grad[s]
            for t in range(len(gradient)):
                gradient[t] += weight * vector[t]
