"""One half step, written once for users and for items: every row of a side solved against the vectors of the other.

A row r of either side minimises, over its vector x, with the vectors y_c of the other side fixed,

    xᵀ (w0_r G + reg_r I) x − 2 t0_r h·x + Σ_c (w1_r v_c (x·y_c)² − 2 t1_r τ_c x·y_c),    G = Σ_c g_c y_c y_cᵀ,  h = Σ_c η_c y_c

where c runs over its interactions in the second sum and over all columns in G and h. For users v, τ, g and η are ones and the
row's own factors are the user's; for items it is the other way round. In the eigenbasis of G the first matrix is diagonal for
every row at once: without weights on interactions nothing is left to solve but a division (so RG² costs no K x K system a row),
and with them `exact.py` or `gradients.py` solves what remains.

Rows are sorted by their number of interactions and dealt in blocks of equal work. A row's answer does not depend on its block,
so the bits are the same for any number of blocks, here or on a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, Literal, NamedTuple

import numba
import numpy as np
import scipy.sparse as sp

from rankbench.core.errors import NumericalError
from rankbench.fitting.executors import BlockMap, threads_of
from rankbench.solvers.als.exact import solve_exact
from rankbench.solvers.als.gradients import solve_gradients, steps_are_cheaper
from rankbench.solvers.als.quadratic_loss import Problem
from rankbench.solvers.als.simd import LANES, gather_four, gather_one

Method = Literal["exact", "cg"]
BLOCK_CYCLES = 1.5e9  # half a second: a lost block costs no more, and a cluster's deadline for one is several times as long
CHUNK = 4096  # rows whose products are summed in float32 before the sum goes on in float64


@dataclass(frozen=True)
class Coefficients:
    """Of one side: a row's own factors (n_rows,) and those of the columns (n_cols,), as in this module's docstring."""

    w0: np.ndarray
    w1: np.ndarray
    t0: np.ndarray
    t1: np.ndarray
    reg: np.ndarray
    col_w0: np.ndarray | None = None
    col_w1: np.ndarray | None = None
    col_t0: np.ndarray | None = None
    col_t1: np.ndarray | None = None

    @property
    def diagonal(self) -> bool:
        """Whether interactions carry no weight of their own, so that one system serves all rows."""
        return not self.w1.any() or (self.col_w1 is not None and not self.col_w1.any())

    @property
    def proportion(self) -> float | None:
        """reg / w0, where that is one number for all rows that have either; None where it is not."""
        rows = self.w0 > 0
        if self.reg[~rows].any():
            return None
        ratio = self.reg[rows] / self.w0[rows]
        return float(ratio.mean()) if len(ratio) and np.ptp(ratio) <= 1e-12 * ratio.max() else None


def of_users(problem: Problem) -> Coefficients:
    return Coefficients(problem.all_weight, problem.weight, problem.all_target, problem.target, problem.reg_users)


def of_items(problem: Problem) -> Coefficients:
    ones = np.ones(len(problem.reg_items))
    all_target = problem.all_target if problem.item_all_target is None else problem.item_all_target
    return Coefficients(
        ones, ones, ones, ones, problem.reg_items, problem.all_weight, problem.weight, all_target, problem.target
    )


class Block(NamedTuple):
    """Some rows of a side: their numbers, their interactions as CSR, and their coefficients, of the factors' dtype."""

    rows: np.ndarray
    indptr: np.ndarray
    indices: np.ndarray
    w0: np.ndarray
    w1: np.ndarray
    t0: np.ndarray
    t1: np.ndarray
    reg: np.ndarray


class System(NamedTuple):
    """What all rows of a half step share: the rotated vectors of the columns and the Gram's eigenbasis."""

    Y: np.ndarray  # (n_cols + 1, K), K filled up to a multiple of LANES; the last row is zero
    ratio: np.ndarray
    spectrum: np.ndarray
    h: np.ndarray
    floor: float


class Side:
    """The rows of X, a 0/1 CSR matrix (n_rows, n_cols), cut into blocks that lie where `where` works."""

    def __init__(self, X: sp.csr_array, coefficients: Coefficients, dim: int, dtype: type, method: Method, where: BlockMap):
        self.shape, self.coefficients, self.dtype, self.where = (X.shape[0], dim), coefficients, np.dtype(dtype), where
        self.method = "sums" if coefficients.diagonal else method
        self.proportion = coefficients.proportion if self.method == "sums" else None
        if self.proportion is not None:
            coefficients = replace(coefficients, reg=np.zeros(X.shape[0]))
        blocks = cut(X, coefficients, dim, self.dtype, self.method, where.workers)
        self.places = [_slice(block.rows) for block in blocks]
        self.lengths = np.unique(np.diff(X.indptr))
        self.blocks = [where.put(block) for block in blocks]
        # Room that is used again in every step: fresh memory costs as much as the product that fills it.
        self._columns = self._rotated = None

    def solve(self, Y: np.ndarray, x: np.ndarray | None = None, steps: int = 0) -> np.ndarray:
        """The rows' vectors (n_rows, dim) for the columns' vectors Y (n_cols, dim). `x`: where gradient steps start.

        Raises NumericalError when a vector is not finite.
        """
        dim = Y.shape[1]
        padded = dim + -dim % LANES
        if self._columns is None:
            self._columns = np.zeros((len(Y) + 1, padded), self.dtype)
            self._rotated = np.empty((self.shape[0], padded), self.dtype)
        system, basis = share(Y, self.coefficients, self.method == "sums", self.proportion, self._columns)
        rotated = np.empty_like(self._rotated) if basis is None else self._rotated
        method, begin = self.method, None
        if method == "cg" and not any(steps_are_cheaper(m, padded, steps) for m in self.lengths):
            method = "exact"
        if method == "cg":
            begin = self.where.put(multiply(x, basis, np.empty_like(self._rotated)))
        for index, answer in self.where.map(solve_block, self.blocks, self.where.put(system), method, begin, steps):
            rotated[self.places[index]] = answer
        # Not by block: how a product is rounded may depend on its shape.
        out = rotated[:, :dim] if basis is None else multiply(rotated, basis.T, np.empty(self.shape, self.dtype))
        if not np.isfinite(out).all():
            row = int(np.flatnonzero(~np.isfinite(out).all(axis=1))[0])
            raise NumericalError(f"the vector of row {row} is not finite; raise lam, or use dtype float64")
        return np.ascontiguousarray(out)


def cut(X: sp.csr_array, on: Coefficients, dim: int, dtype: np.dtype, method: str, workers: int) -> list[Block]:
    """Blocks of about equal work, but for sums longest rows first; all but the last hold a multiple of LANES rows.

    A block is at most BLOCK_CYCLES of work, and there are several for each worker, so that they end together.
    """
    lengths = np.diff(X.indptr)
    # Sums need no company of equal length, and neighbours are placed faster than strangers.
    order = np.arange(len(lengths)) if method == "sums" else np.argsort(-lengths, kind="stable")
    work = np.cumsum(row_work(lengths[order], dim, method))
    target = max(min(work[-1] / ((4 if method == "sums" else 8) * workers), BLOCK_CYCLES), 1.0)
    # A block ends where its work is full, at the next multiple of LANES.
    ends = np.searchsorted(work, np.arange(target, work[-1], target), side="right")
    ends = np.unique(np.append(np.minimum((ends + LANES - 1) // LANES * LANES, len(order)), len(order)))
    coefficients = [on.w0, np.sqrt(on.w1), on.t0, on.t1, on.reg]
    if method != "sums":
        coefficients[3] = np.divide(on.t1, coefficients[1], out=np.zeros(len(on.t1)), where=on.w1 > 0)
    blocks, start = [], 0
    for end in ends:
        if end == start:
            continue
        rows = order[start:end]
        mine = X[rows]
        own = (np.ascontiguousarray(each[rows], dtype) for each in coefficients)
        blocks.append(Block(rows, mine.indptr.astype(np.int64), mine.indices.astype(np.int32), *own))
        start = end
    return blocks


def _slice(rows: np.ndarray) -> np.ndarray | slice:
    """Rows one after another as a slice, which is copied to without looking up each."""
    in_a_row = len(rows) and rows[-1] - rows[0] == len(rows) - 1 and (np.diff(rows) == 1).all()
    return slice(int(rows[0]), int(rows[-1]) + 1) if in_a_row else rows


def row_work(lengths: np.ndarray, dim: int, method: str) -> np.ndarray:
    """About how many cycles a row of so many interactions takes, (n_rows,). It decides what a block is, and nothing else."""
    lengths = lengths.astype(np.float64)
    if method == "sums":
        return (lengths / 2 + 5) * dim
    small = np.minimum(lengths, dim)
    return lengths * dim * (1 + small / 50) + small**3 / 96 + 10 * dim


def share(
    Y: np.ndarray, on: Coefficients, sums: bool, proportion: float | None, rotated: np.ndarray
) -> tuple[System, np.ndarray | None]:
    """The system of a half step, from the columns' vectors Y (n_cols, dim), and the basis (dim, K): x = basis @ rotated x.

    `rotated` (n_cols + 1, K), zero in the last row and beyond dim, is overwritten with the system's Y. With a `proportion` of
    ridge and weight the rows' one system is solved here: Y becomes Y (G + proportion I)^-1, and the basis is None.
    """
    dim, dtype, padded = Y.shape[1], Y.dtype, rotated.shape[1]
    G, total = moments(Y, on.col_w0, on.col_t0)
    if not np.isfinite(G).all():
        raise NumericalError("the factors have grown beyond what a float can hold; raise lam, or use dtype float64")
    spectrum, basis = np.linalg.eigh(G)
    floor = 10 * dim * float(np.finfo(dtype).eps)
    spectrum, turn = np.maximum(spectrum, 0), basis
    if proportion is not None:
        d = spectrum + proportion
        turn = (basis * np.divide(1, d, out=np.zeros(dim), where=d > floor * d.max())) @ basis.T
        spectrum = np.ones(dim)
    h = turn.T @ total
    scale, ratio = on.col_t1, np.ones(len(Y))
    if not sums and on.col_w1 is not None:
        scale = np.sqrt(on.col_w1)
        ratio = np.divide(on.col_t1, scale, out=np.zeros(len(Y)), where=scale > 0)
    same = scale is None or np.ptp(scale) == 0
    multiply(Y, (turn * (scale[0] if same and scale is not None else 1)).astype(dtype), rotated[:-1, :dim])
    if not same:
        rotated[:-1] *= scale[:, None].astype(dtype)
    extra = np.zeros(padded - dim)
    vectors = (np.append(each, extra).astype(dtype) for each in (spectrum, h))
    system = System(rotated, ratio.astype(dtype), *vectors, floor)
    return system, None if proportion is not None else np.hstack([basis, np.zeros((dim, len(extra)))]).astype(dtype)


def moments(Y: np.ndarray, weights: np.ndarray | None, targets: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Σ_c weights_c y_c y_cᵀ (dim, dim) and Σ_c targets_c y_c (dim,), float64; without weights or targets all are one."""
    ones = np.ones(len(Y), Y.dtype) if targets is None else targets.astype(Y.dtype)
    scale = None if weights is None else weights[:, None].astype(Y.dtype)

    def part(rows: slice) -> tuple[np.ndarray, np.ndarray]:
        mine = Y[rows]
        return mine.T @ (mine if scale is None else mine * scale[rows]), ones[rows] @ mine

    gram, total = np.zeros((Y.shape[1], Y.shape[1])), np.zeros(Y.shape[1])
    for each, sums in in_chunks(part, len(Y)):
        gram += each
        total += sums
    return (gram + gram.T) / 2, total


def multiply(A: np.ndarray, B: np.ndarray, out: np.ndarray) -> np.ndarray:
    """A @ B for a long A and a small B."""
    for _ in in_chunks(lambda rows: np.matmul(A[rows], B, out=out[rows]), len(A)):
        pass
    return out


def in_chunks(function: Callable[[slice], Any], n_rows: int) -> Iterator[Any]:
    """function(rows) of chunk after chunk, in order. A thread takes one each: BLAS's own threads wait in a loop after every
    product, and would hold the processors that the blocks need next. Chunks of one size round alike for any number of threads.
    """
    chunks = [slice(start, min(start + CHUNK, n_rows)) for start in range(0, n_rows, CHUNK)]
    if len(chunks) == 1:
        yield function(chunks[0])
    else:
        yield from threads_of(numba.get_num_threads()).map(function, chunks)


def solve_block(block: Block, system: System, method: str, begin: np.ndarray | None, steps: int) -> np.ndarray:
    """The rotated vectors (len(block.rows), K) of a block. Pure, so that it may run anywhere, and twice."""
    _, *rows = block
    Y, ratio, spectrum, h, floor = system
    x = np.empty((len(block.rows), Y.shape[1]), Y.dtype)
    if method == "sums":
        add_rows(block.indptr, block.indices, block.t0, block.t1, h, Y, x)
        divide(x, block.w0, block.reg, spectrum, Y.dtype.type(floor))
    elif method == "cg":
        x[:] = begin[block.rows]
        solve_gradients(*rows, Y, ratio, spectrum, h, Y.dtype.type(floor), steps, x)
    else:
        solve_exact(*rows, Y, ratio, spectrum, h, Y.dtype.type(floor), x)
    return x


@numba.njit(nogil=True, cache=True)
def add_rows(indptr, indices, t0, t1, h, Y, out):
    """out_r = t0_r h + t1_r Σ_c y_c."""
    K, four = Y.shape[1], 4 * LANES
    flat, result = Y.reshape(-1), out.reshape(-1)
    for row in range(len(indptr) - 1):
        for k in range(0, K - K % four, four):
            gather_four(flat, K, indices, indptr[row], indptr[row + 1], k, result, row * K + k)
        for k in range(K - K % four, K, LANES):
            gather_one(flat, K, indices, indptr[row], indptr[row + 1], k, result, row * K + k)
        x = out[row]
        for k in range(K):
            x[k] = t0[row] * h[k] + t1[row] * x[k]


@numba.njit(nogil=True, cache=True)
def divide(x, w0, reg, spectrum, floor):
    """x_r / (w0_r · spectrum + reg_r), and 0 where nothing determines it: in a row without weight and without interactions."""
    top = spectrum.max()
    for row in range(len(x)):
        least = floor * (w0[row] * top + reg[row])
        for k in range(len(spectrum)):
            d = w0[row] * spectrum[k] + reg[row]
            x[row, k] = x[row, k] / d if d > least else d * 0


def objective(problem: Problem, parts: list[Any], where: BlockMap, P: np.ndarray, Q: np.ndarray) -> float:
    """The problem's value at factors P (n_users, dim), Q (n_items, dim), without the (n_users, n_items) matrix.

    `parts`: blocks of users, as a Side of users holds them.
    """
    (users, user_sums), (items, item_sums) = moments(P, problem.all_weight, problem.all_target), moments(Q, None, None)
    over_all = np.sum(users * items) - 2 * user_sums @ item_sums
    p, q = where.put(P), where.put(Q)
    # The number of blocks depends on the workers, so the sum is over users.
    found = sorted(where.map(_over_interactions, parts, p, q, problem.weight, problem.target), key=itemgetter(0))
    by_user = np.zeros(len(P))
    for _, (rows, values) in found:
        by_user[rows] = values
    over_interactions = by_user.sum()
    penalty = problem.reg_users @ _squares(P) + problem.reg_items @ _squares(Q)
    return float(over_all + over_interactions + penalty + problem.constant)


def _squares(Y: np.ndarray) -> np.ndarray:
    return np.einsum("ck,ck->c", Y, Y, dtype=np.float64)


def _over_interactions(
    block: Block, P: np.ndarray, Q: np.ndarray, weight: np.ndarray, target: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The rows of a block (m,) and for each of them the loss of its interactions (m,), float64."""
    rows = block.rows
    return rows, _losses(block.indptr, block.indices, P[rows], Q, weight[rows], target[rows])


@numba.njit(nogil=True, cache=True, fastmath=True)
def _losses(indptr, indices, P, Q, weight, target):
    values = np.zeros(len(P))
    for row in range(len(P)):
        p = P[row]
        for s in range(indptr[row], indptr[row + 1]):
            q = Q[indices[s]]
            y = p[0] * 0
            for k in range(len(p)):
                y += p[k] * q[k]
            values[row] += weight[row] * y * y - 2 * target[row] * y
    return values
