"""The in-place inverse of a symmetric positive definite matrix, at the speed of matrix products."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import lapack
from threadpoolctl import threadpool_limits

from rankbench.core.errors import NumericalError
from rankbench.core.thread_pool import each, slices
from rankbench.data.blocks import mirror_upper
from rankbench.solvers.inverse.blas import product

PANEL, SMALL_PANEL = 512, 256
SMALL_ORDER = 8192  # largest n for which SMALL_PANEL is faster


class NotPositiveDefinite(Exception):
    """Raised if the pivot of `row` is not positive."""

    def __init__(self, row: int):
        super().__init__(row)
        self.row = row


def spd_inverse_(A: np.ndarray, progress: Callable[[int, int], None] = lambda done, total: None) -> np.ndarray:
    """Overwrite symmetric positive definite A (n, n), float32 or float64, C-contiguous, with its inverse.

    A = LLᵀ, M = L^-1, A^-1 = MᵀM, by panels: n³ flops, nearly all in products of blocks, and two (n, panel) panels of extra
    memory. `progress(done, total)` counts flops. Each block is computed by one of numba's threads, and the blocks depend only
    on n, so the result has the same bits for any number of threads. Raises NumericalError if A is not positive definite to
    working precision.
    """
    n, width, lower = len(A), panel_width(len(A)), A.T  # column-major
    panels = slices(0, n, width)
    with threadpool_limits(1, "blas"):
        for own in panels:
            try:
                cholesky_panel(lower, own)
            except NotPositiveDefinite as error:
                raise not_positive_definite(error.row, n, A.dtype) from None
            progress((n**3 - (n - own.stop) ** 3) // 3, n**3)
        for own in panels:
            inverse_panel(lower, own, width)
            progress((n**3 + own.stop**3) // 3, n**3)
        for own in panels:
            product_panel(lower, own, width)
            progress(n**3 - (n - own.stop) ** 3 // 3, n**3)
    mirror_upper(A)
    return A


def panel_width(n: int) -> int:
    """Number of rows per panel, smaller for a small matrix, so that there are enough blocks for several threads."""
    return SMALL_PANEL if n <= SMALL_ORDER else PANEL


# The panels of column-major A, of which the lower triangle is read, and what a panel has written above it. One thread computes
# each block, and BLAS itself must use one.


def cholesky_panel(A: np.ndarray, own: slice) -> None:
    """Compute the columns `own` of L with A = LLᵀ, and update everything to the right of them. Raises NotPositiveDefinite."""
    potrf, trtri = lapack.get_lapack_funcs(("potrf", "trtri"), (A,))
    L, info = potrf(A[own, own], lower=True)
    if info:
        raise NotPositiveDefinite(own.start + info - 1)
    A[own, own], inverse = L, trtri(L, lower=True)[0]
    parts, below = slices(own.stop, len(A), len(L)), np.zeros((len(A) - own.stop, len(L)), A.dtype, order="F")

    def divide(rows: slice) -> None:
        part = below[rows.start - own.stop : rows.stop - own.stop]
        product("N", "T", 1.0, A[rows, own], inverse, part)
        A[rows, own] = part

    def update(block: tuple[slice, slice]) -> None:
        rows, columns = (below[part.start - own.stop : part.stop - own.stop] for part in block)
        product("N", "T", -1.0, rows, columns, A[block])

    each(divide, parts)
    each(update, [(rows, columns) for at, rows in enumerate(parts) for columns in parts[: at + 1]])


def inverse_panel(A: np.ndarray, own: slice, width: int) -> None:
    """Compute the rows `own` of M = L^-1: M_kk = L_kk^-1 and M_k = −M_kk L_k M, where the rows above already hold M."""
    trtri = lapack.get_lapack_funcs("trtri", (A,))
    M = trtri(np.tril(A[own, own]), lower=True)[0]
    A[own, own] = M  # including the zeros above its diagonal, which are read with the columns
    row, parts = np.zeros((len(M), own.start), A.dtype, order="F"), slices(0, own.start, width)

    def multiply(columns: slice) -> None:
        product("N", "N", -1.0, M, A[own, columns], row[:, columns])
        A[own, columns] = 0

    def add(columns: slice) -> None:
        product("N", "N", 1.0, row[:, columns.start :], A[columns.start : own.start, columns], A[own, columns])

    each(multiply, parts)
    each(add, parts)


def product_panel(A: np.ndarray, own: slice, width: int) -> None:
    """Compute the rows `own` of MᵀM, which overwrites rows of M that are no longer needed."""
    A[own, own] = np.tril(A[own, own])
    column = A[own.start :, own].copy(order="F")

    def multiply(columns: slice) -> None:
        part = np.zeros((column.shape[1], columns.stop - columns.start), A.dtype, order="F")
        product("T", "N", 1.0, column, A[own.start :, columns], part)
        A[own, columns] = part

    each(multiply, slices(0, own.stop, width))


def not_positive_definite(row: int, n: int, dtype: np.dtype) -> NumericalError:
    """The error to raise if the factorisation fails at `row`."""
    advice = "raise lam or p" + ", or use float64" * (dtype == np.float32)
    return NumericalError(f"the matrix is not positive definite (row {row} of {n}, {dtype}); {advice}")
