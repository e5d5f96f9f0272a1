"""The in-place inverse of a symmetric positive definite matrix, at the speed of matrix products."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import lapack
from threadpoolctl import threadpool_limits

from rankbench.core.errors import NumericalError
from rankbench.data.blocks import mirror_upper
from rankbench.fitting.thread_pool import each, slices
from rankbench.solvers.inverse.blas import product

PANEL, SMALL_PANEL = 512, 256
SMALL_ORDER = 8192  # largest n for which SMALL_PANEL is faster

Progress = Callable[[int, int], None]


def spd_inverse_(A: np.ndarray, progress: Progress = lambda done, total: None) -> np.ndarray:
    """Overwrite symmetric positive definite A (n, n), float32 or float64, C-contiguous, with its inverse.

    A = LLᵀ, M = L^-1, A^-1 = MᵀM, on the lower triangle, by panels: n³ flops, nearly all in products of blocks, and two
    (n, panel) panels of extra memory. `progress(done, total)` counts flops. Each block is computed by one of numba's
    threads, and the blocks depend only on n, so the result has the same bits for any number of threads.
    Raises NumericalError if A is not positive definite to working precision.
    """
    n, width = A.shape[0], panel_width(A.shape[0])
    panels = [(start, min(start + width, n)) for start in range(0, n, width)]
    with threadpool_limits(1, "blas"):
        for start, stop in panels:
            _cholesky_panel(A, start, stop)
            progress((n**3 - (n - stop) ** 3) // 3, n**3)
        for start, stop in panels:
            _inverse_panel(A, start, stop, width)
            progress((n**3 + stop**3) // 3, n**3)
        for start, stop in panels:
            _product_panel(A, start, stop, width)
            progress(n**3 - (n - stop) ** 3 // 3, n**3)
    mirror_upper(A.T)
    return A


def panel_width(n: int) -> int:
    """Number of rows per panel, smaller for a small matrix, so that there are enough blocks for several threads."""
    return SMALL_PANEL if n <= SMALL_ORDER else PANEL


def _cholesky_panel(A: np.ndarray, start: int, stop: int) -> None:
    """Compute a column panel of L, and update everything to the right of it."""
    n = A.shape[0]
    potrf, trtri = lapack.get_lapack_funcs(("potrf", "trtri"), (A,))
    L, info = potrf(_symmetric(A[start:stop, start:stop]), lower=True)
    if info:
        raise not_positive_definite(start + info - 1, n, A.dtype)
    A[start:stop, start:stop] = L
    inverse, parts = np.ascontiguousarray(trtri(L, lower=True)[0].T), slices(stop, n, stop - start)
    below = np.empty((n - stop, stop - start), A.dtype)

    def divide(rows: slice) -> None:
        np.matmul(A[rows, start:stop], inverse, out=below[rows.start - stop : rows.stop - stop])
        A[rows, start:stop] = below[rows.start - stop : rows.stop - stop]

    def update(block: tuple[slice, slice]) -> None:
        rows, columns = (below[part.start - stop : part.stop - stop] for part in block)
        product("T", "N", -1.0, columns.T, rows.T, A[block].T)  # A[block] -= rows @ columns.T, transposed

    each(divide, parts)
    each(update, [(rows, columns) for at, rows in enumerate(parts) for columns in parts[: at + 1]])


def _inverse_panel(A: np.ndarray, start: int, stop: int, width: int) -> None:
    """Compute a row panel of M = L^-1: M_kk = L_kk^-1 and M_k = −M_kk L_k M, where the rows above already hold M."""
    trtri = lapack.get_lapack_funcs("trtri", (A,))
    M = trtri(np.tril(A[start:stop, start:stop]), lower=True)[0]
    A[start:stop, start:stop] = M  # including the zeros above its diagonal, which are read with the columns
    M, row = -np.ascontiguousarray(M), np.empty((stop - start, start), A.dtype)
    parts = slices(0, start, width)

    def multiply(columns: slice) -> None:
        np.matmul(M, A[start:stop, columns], out=row[:, columns])

    def add(columns: slice) -> None:
        np.matmul(row[:, columns.start :], A[columns.start : start, columns], out=A[start:stop, columns])

    each(multiply, parts)
    each(add, parts)


def _product_panel(A: np.ndarray, start: int, stop: int, width: int) -> None:
    """Compute a row panel of MᵀM, which overwrites rows of M that are no longer needed."""
    column = A[start:, start:stop].copy()

    def multiply(columns: slice) -> None:
        A[start:stop, columns] = column.T @ A[start:, columns]

    each(multiply, slices(0, stop, width))


def not_positive_definite(row: int, n: int, dtype: np.dtype) -> NumericalError:
    """The error to raise if the factorisation fails at `row`."""
    return NumericalError(f"the matrix is not positive definite (row {row} of {n}, {dtype}); raise lam, or use float64")


def _symmetric(block: np.ndarray) -> np.ndarray:
    """The symmetric matrix that has the lower triangle of `block`."""
    return np.tril(block) + np.tril(block, -1).T
