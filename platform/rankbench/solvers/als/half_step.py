"""One half step of alternating least squares: the vectors of all users for fixed items, or of all items for fixed users.

The fixed side supplies the columns c, the other side the rows r. Each row minimises over its vector x

    xᵀ (w0_r G + reg_r I) x − 2 t0_r h·x + Σ_c (w1_r v_c (x·y_c)² − 2 t1_r τ_c x·y_c),    G = Σ_c g_c y_c y_cᵀ,  h = Σ_c η_c y_c

where the second sum runs over the row's interactions, and G and h run over all columns. When the rows are users, v, τ, g and η
are ones and w0, w1, t0 and t1 belong to the user; when the rows are items, it is the other way round.
`tests/solvers/als/reference.py` solves the same equations in twenty lines of NumPy: read it first. The code here is faster
because it works in the eigenbasis of G, where the first matrix is diagonal for all rows at once. If interactions carry no
weights, only a division is left (RG² needs no K x K system per row); otherwise `exact.py` or `gradients.py` solves the rest.

Rows are sorted by their number of interactions and grouped into blocks of equal work. The solution of a row does not depend on
its block, so the bits are the same for any number of blocks, in one process or on a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from rankbench.core.compiler import numba
from rankbench.core.errors import NumericalError
from rankbench.core.thread_pool import by_threads, slices
from rankbench.fitting.executors import BlockMap
from rankbench.solvers.als.exact import exact_cycles, solve_exact
from rankbench.solvers.als.gradients import solve_gradients, steps_are_cheaper
from rankbench.solvers.als.quadratic_loss import QuadraticLoss
from rankbench.solvers.als.simd import LANES, gather
from rankbench.solvers.als.subspace import dealt, solve_subspaces, sweep_is_cheaper

BLOCK_CYCLES = 1.5e9  # half a second: the most that a lost block costs; a cluster waits several times as long for a block
# Solvers that start at a row's last vector, and where each takes fewer cycles than an exact solve.
STARTED = {"cg": solve_gradients, "subspace": solve_subspaces}
CHEAPER = {"cg": steps_are_cheaper, "subspace": sweep_is_cheaper}
CHUNK = 4096  # rows whose products are summed in float32; the sums of chunks are added in float64


@dataclass(frozen=True)
class Coefficients:
    """The coefficients of the rows (n_rows,) and of the columns (n_cols,), named as in this module's docstring.

    A column coefficient that is None stands for ones.
    """

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
        """Whether interactions carry no weights, so that all rows share one system up to its diagonal."""
        return not self.w1.any() or (self.col_w1 is not None and not self.col_w1.any())

    @property
    def proportion(self) -> float | None:
        """The ratio reg / w0 if it is the same for all rows, else None. Rows where both are zero do not count."""
        rows = self.w0 > 0
        if self.reg[~rows].any():
            return None
        ratio = self.reg[rows] / self.w0[rows]
        return float(ratio.mean()) if len(ratio) and np.ptp(ratio) <= 1e-12 * ratio.max() else None


def of_users(loss: QuadraticLoss) -> Coefficients:
    """The coefficients of the half step that solves for users."""
    return Coefficients(loss.all_weight, loss.weight, loss.all_target, loss.target, loss.reg_users)


def of_items(loss: QuadraticLoss) -> Coefficients:
    """The coefficients of the half step that solves for items."""
    ones = np.ones(len(loss.reg_items))
    all_target = loss.all_target if loss.item_all_target is None else loss.item_all_target
    return Coefficients(ones, ones, ones, ones, loss.reg_items, loss.all_weight, loss.weight, all_target, loss.target)


class Block(NamedTuple):
    """Some rows of a half step: their indices, their interactions as CSR, and their coefficients in the factors' dtype."""

    rows: np.ndarray
    indptr: np.ndarray
    indices: np.ndarray
    w0: np.ndarray
    w1: np.ndarray
    t0: np.ndarray
    t1: np.ndarray
    reg: np.ndarray


class System(NamedTuple):
    """What all rows of a half step share: the columns' vectors rotated into the eigenbasis of the Gram, and its eigenvalues."""

    Y: np.ndarray  # (n_cols + 1, K), where K is padded to a multiple of LANES; the last row is zero
    ratio: np.ndarray
    spectrum: np.ndarray
    h: np.ndarray
    floor: np.floating[Any]  # a number of the factors' dtype, relative to the largest element of a diagonal


class HalfStep:
    """The half step over the rows of X, a 0/1 CSR matrix (n_rows, n_cols), cut into blocks that are stored with `executor`.

    `solver` is exact, cg or subspace, and does not matter where interactions carry no weights.
    """

    def __init__(self, X: sp.csr_array, coefficients: Coefficients, dim: int, dtype: type, solver: str, executor: BlockMap):
        self.shape, self.coefficients, self.dtype, self.executor = (X.shape[0], dim), coefficients, np.dtype(dtype), executor
        self.solver = "sums" if coefficients.diagonal else solver
        self.proportion = coefficients.proportion if self.solver == "sums" else None
        if self.proportion is not None:
            coefficients = replace(coefficients, reg=np.zeros(X.shape[0]))
        blocks = cut(X, coefficients, dim, self.dtype, self.solver, executor.workers)
        # The rows of "sums" follow one another: as slices they are assigned to without a lookup per row.
        self.positions = [slice(rows[0], rows[-1] + 1) if self.solver == "sums" else rows for rows, *_ in blocks]
        self.lengths = np.unique(np.diff(X.indptr))
        self.blocks = [executor.put(block) for block in blocks]
        # Buffers that are reused in every step: allocating memory costs as much as the product that fills it.
        self.width = dim + -dim % LANES
        self._columns = np.zeros((X.shape[1] + 1, self.width), self.dtype)
        self._rotated = np.empty((X.shape[0], self.width), self.dtype)

    def solve(self, Y: np.ndarray, x: np.ndarray | None = None, effort: int = 0) -> np.ndarray:
        """Solve for the rows' vectors (n_rows, dim), given the columns' vectors Y (n_cols, dim).

        `x` (n_rows, dim) is where conjugate gradients and sweeps over subspaces start, and `effort` is the number of steps, or
        the dimension of the subspaces. Rows that an exact solve is cheaper for are solved exactly.

        Raises NumericalError when a vector is not finite.
        """
        dim, solver, begin = self.shape[1], self.solver, None
        if solver in CHEAPER and not CHEAPER[solver](self.lengths, self.width, effort).any():
            solver = "exact"
        order = dealt(dim, effort) if solver == "subspace" else None
        system, basis = share(Y, self.coefficients, solver == "sums", self.proportion, self._columns, order)
        rotated = np.empty_like(self._rotated) if basis is None else self._rotated
        if solver in CHEAPER:
            begin = self.executor.put(multiply(x, basis, np.empty_like(self._rotated)))
        for index, solution in self.executor.map(solve_block, self.blocks, self.executor.put(system), solver, begin, effort):
            rotated[self.positions[index]] = solution
        # The rows are rotated back together: the rounding of a product may depend on its shape, and so on the block.
        out = rotated[:, :dim] if basis is None else multiply(rotated, basis.T, np.empty(self.shape, self.dtype))
        if not np.isfinite(out).all():
            row = int(np.flatnonzero(~np.isfinite(out).all(axis=1))[0])
            raise NumericalError(f"the vector of row {row} of {len(out):,} is not finite; raise lam, or use dtype float64")
        return np.ascontiguousarray(out)


def cut(X: sp.csr_array, on: Coefficients, dim: int, dtype: np.dtype, solver: str, workers: int) -> list[Block]:
    """Cut the rows into blocks of about equal work. All blocks but the last have a multiple of LANES rows.

    A block is at most BLOCK_CYCLES of work, and there are several blocks per worker, so that all workers finish at about the
    same time. Rows are sorted by decreasing length, except for the solver "sums".
    """
    lengths = np.diff(X.indptr)
    # Sums gain nothing from rows of similar length, and results of consecutive rows are copied faster.
    order = np.arange(len(lengths)) if solver == "sums" else np.argsort(-lengths, kind="stable")
    work = np.cumsum(row_work(lengths[order], dim, solver))
    target = max(min(work[-1] / ((4 if solver == "sums" else 8) * workers), BLOCK_CYCLES), 1.0)
    # A block ends at the first multiple of LANES rows at which its work reaches the target.
    ends = np.searchsorted(work, np.arange(target, work[-1], target), side="right")
    ends = np.unique(np.append(np.minimum((ends + LANES - 1) // LANES * LANES, len(order)), len(order)))
    coefficients = [on.w0, np.sqrt(on.w1), on.t0, on.t1, on.reg]
    if solver != "sums":
        coefficients[3] = np.divide(on.t1, coefficients[1], out=np.zeros(len(on.t1)), where=on.w1 > 0)
    blocks, start = [], 0
    for end in ends:
        if end == start:
            continue
        rows = order[start:end]
        interactions = X[rows]
        own = (np.ascontiguousarray(each[rows], dtype) for each in coefficients)
        blocks.append(Block(rows, interactions.indptr.astype(np.int64), interactions.indices.astype(np.int32), *own))
        start = end
    return blocks


def row_work(lengths: np.ndarray, dim: int, solver: str) -> np.ndarray:
    """Approximate number of processor cycles for rows with `lengths` interactions, (n_rows,). Used only to cut blocks."""
    lengths = lengths.astype(np.float64)
    if solver == "sums":
        return (lengths / 2 + 5) * dim
    if solver in CHEAPER:
        return (lengths + 10) * dim + 500
    return exact_cycles(lengths, dim)


def share(
    Y: np.ndarray, on: Coefficients, sums: bool, proportion: float | None, rotated: np.ndarray, order: np.ndarray | None = None
) -> tuple[System, np.ndarray | None]:
    """Compute the shared system from the columns' vectors Y (n_cols, dim), and the basis (dim, K) with x = basis @ rotated x.

    `rotated` (n_cols + 1, K), which must be zero in its last row and beyond column dim, is overwritten with the system's Y. If
    `proportion` is given, all rows have the same system, and it is solved here: Y becomes Y (G + proportion I)^-1, and the
    basis is None. `order` (dim,) is that of the eigenvectors, by ascending eigenvalue if it is None.
    """
    dim, dtype, padded = Y.shape[1], Y.dtype, rotated.shape[1]
    G, total = moments(Y, on.col_w0, on.col_t0)
    if not np.isfinite(G).all():
        raise NumericalError("the factors overflow the range of their dtype; raise lam, or use dtype float64")
    spectrum, basis = np.linalg.eigh(G)
    if order is not None:
        spectrum, basis = spectrum[order], basis[:, order]
    floor = dim * float(np.finfo(dtype).eps)
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
    system = System(rotated, ratio.astype(dtype), *vectors, dtype.type(floor))
    return system, None if proportion is not None else np.hstack([basis, np.zeros((dim, len(extra)))]).astype(dtype)


def moments(Y: np.ndarray, weights: np.ndarray | None, targets: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Σ_c weights_c y_c y_cᵀ (dim, dim) and Σ_c targets_c y_c (dim,), float64. None stands for ones."""
    ones = np.ones(len(Y), Y.dtype) if targets is None else targets.astype(Y.dtype)
    scale = None if weights is None else weights[:, None].astype(Y.dtype)

    def part(rows: slice) -> tuple[np.ndarray, np.ndarray]:
        chunk = Y[rows]
        return chunk.T @ (chunk if scale is None else chunk * scale[rows]), ones[rows] @ chunk

    gram, total = np.zeros((Y.shape[1], Y.shape[1])), np.zeros(Y.shape[1])
    for each, sums in in_chunks(part, len(Y)):
        gram += each
        total += sums
    return (gram + gram.T) / 2, total


def multiply(A: np.ndarray, B: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Compute A @ B into `out`, for an A with many rows and a small B."""
    for _ in in_chunks(lambda rows: np.matmul(A[rows], B, out=out[rows]), len(A)):
        pass
    return out


def in_chunks(function: Callable[[slice], Any], n_rows: int) -> Iterator[Any]:
    """Yield function(rows) for chunks of rows, in order, computed by one thread per chunk.

    The threads of BLAS are not used: they spin after every product and would occupy the processors that the blocks need next.
    Since the size of a chunk is fixed, results are rounded alike for any number of threads. What overflows is infinite, without
    a warning: callers refuse such results.
    """

    def quiet(rows: slice) -> Any:
        with np.errstate(over="ignore", invalid="ignore"):
            return function(rows)

    return by_threads(quiet, slices(0, n_rows, CHUNK))


def solve_block(block: Block, system: System, solver: str, begin: np.ndarray | None, effort: int) -> np.ndarray:
    """Solve for the rotated vectors (len(block.rows), K) of a block. The function is pure and may run anywhere, even twice."""
    Y = system.Y
    x = np.empty((len(block.rows), Y.shape[1]), Y.dtype)
    if solver == "sums":
        add_rows(block.indptr, block.indices, block.t0, block.t1, system.h, Y, x)
        divide(x, block.w0, block.reg, system.spectrum, system.floor)
        return x
    if begin is not None:
        x[:] = begin[block.rows]
    for rows, by in runs(block, solver, Y.shape[1], effort):
        own = (block.indptr[rows.start : rows.stop + 1], block.indices, *(each[rows] for each in block[3:]))
        if by == "exact":
            solve_exact(*own, *system, x[rows])
        else:
            STARTED[by](*own, *system, effort, x[rows])
    return x


def runs(block: Block, solver: str, K: int, effort: int) -> list[tuple[slice, str]]:
    """Cut a block into runs of rows with one solver each: `solver`, or "exact" where that is cheaper.

    The rows of a block are sorted by length. Groups of LANES rows have one solver, so that blocks do not change which.
    """
    n_rows = len(block.rows)
    if solver not in CHEAPER:
        return [(slice(0, n_rows), solver)]
    lengths, firsts = np.diff(block.indptr), np.arange(0, n_rows, LANES)
    longest, shortest = lengths[firsts], lengths[np.minimum(firsts + LANES, n_rows) - 1]
    cheaper = CHEAPER[solver](longest, K, effort) & CHEAPER[solver](shortest, K, effort)
    starts = [0, *(firsts[1:][np.diff(cheaper)]).tolist()]
    stops = [*starts[1:], n_rows]
    return [
        (slice(start, stop), solver if cheaper[start // LANES] else "exact") for start, stop in zip(starts, stops, strict=True)
    ]


@numba.njit(nogil=True, cache=True)
def add_rows(indptr, indices, t0, t1, h, Y, out):
    """out_r = t0_r h + t1_r Σ_c y_c."""
    K, flat, result = Y.shape[1], Y.reshape(-1), out.reshape(-1)
    for row in range(len(indptr) - 1):
        gather(flat, K, indices, indptr[row], indptr[row + 1], result, row * K)
        x = out[row]
        for k in range(K):
            x[k] = t0[row] * h[k] + t1[row] * x[k]


@numba.njit(nogil=True, cache=True)
def divide(x, w0, reg, spectrum, floor):
    """Overwrite x_r with x_r / (w0_r · spectrum + reg_r), or with 0 where the divisor is 0 up to rounding."""
    top = spectrum.max()
    for row in range(len(x)):
        least = floor * (w0[row] * top + reg[row])
        for k in range(len(spectrum)):
            d = w0[row] * spectrum[k] + reg[row]
            x[row, k] = x[row, k] / d if d > least else d * 0


def objective(loss: QuadraticLoss, parts: list[Any], executor: BlockMap, P: np.ndarray, Q: np.ndarray) -> float:
    """The value of the loss at P (n_users, dim), Q (n_items, dim), computed without an (n_users, n_items) matrix.

    `parts` are the blocks of the half step that solves for users.
    """
    (users, user_sums), (items, item_sums) = moments(P, loss.all_weight, loss.all_target), moments(Q, None, None)
    over_all = np.sum(users * items) - 2 * user_sums @ item_sums
    p, q = executor.put(P), executor.put(Q)
    # The number of blocks depends on the workers, so values are summed by user, not by block.
    by_user = np.zeros(len(P))
    for _, (rows, values) in executor.map(_over_interactions, parts, p, q, loss.weight, loss.target):
        by_user[rows] = values
    penalty = loss.reg_users @ squares(P) + loss.reg_items @ squares(Q)
    return float(over_all + by_user.sum() + penalty + loss.constant)


def squares(Y: np.ndarray) -> np.ndarray:
    """The squared lengths of vectors (n, dim), (n,) float64."""
    return np.einsum("ck,ck->c", Y, Y, dtype=np.float64)


def _over_interactions(
    block: Block, P: np.ndarray, Q: np.ndarray, weight: np.ndarray, target: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The rows of a block (m,) and the loss of each row's interactions (m,), float64."""
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
