"""The operations on tiles, in place, by BLAS and LAPACK on column-major arrays of float32 or float64.

Of a diagonal tile only the lower triangle is read and written. A kernel divides its work into blocks of BLOCK rows or columns.
One thread computes each block, so the result has the same bits for any number of threads; BLAS itself must use one thread.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import lapack

from rankbench.fitting.thread_pool import each, slices
from rankbench.solvers.inverse.blas import product, square, triangular

BLOCK = 512


class NotPositiveDefinite(Exception):
    """Raised if the pivot of `row`, counted within the tile, is not positive."""

    def __init__(self, row: int):
        super().__init__(row)
        self.row = row


def cholesky(A: np.ndarray) -> None:
    """A := L with A = LLᵀ. Raises NotPositiveDefinite."""
    potrf = lapack.get_lapack_funcs("potrf", (A,))
    for rows in slices(0, len(A), BLOCK):
        D = A[rows, rows].copy(order="F")
        D, info = potrf(D, lower=True, overwrite_a=True, clean=False)
        if info:
            raise NotPositiveDefinite(rows.start + info - 1)
        A[rows, rows], below = D, A[rows.stop :, rows]
        divide_t(below, D)
        subtract_square(A[rows.stop :, rows.stop :], below)


def invert(L: np.ndarray) -> None:
    """L := L^-1."""
    trtri = lapack.get_lapack_funcs("trtri", (L,))
    for rows in slices(0, len(L), BLOCK):
        left = slice(0, rows.start)
        D, _ = trtri(L[rows, rows].copy(order="F"), lower=True, overwrite_c=True)
        L[rows, rows] = D
        multiply_left_minus(L[rows, left], D)
        row = L[rows, left].copy(order="F")

        def column(columns: slice, rows=rows, left=left, row=row) -> None:
            own, after = L[rows, columns], slice(columns.stop, left.stop)
            triangular("trmm", "R", "N", 1.0, L[columns, columns], own)
            product("N", "N", 1.0, row[:, after], L[after, columns], own)

        each(column, slices(0, left.stop, BLOCK))


def square_t(M: np.ndarray) -> None:
    """M := MᵀM."""
    lauum = lapack.get_lapack_funcs("lauum", (M,))
    for rows in slices(0, len(M), BLOCK):
        left, below = slice(0, rows.start), slice(rows.stop, len(M))
        D = M[rows, rows].copy(order="F")
        multiply_left_t(M[rows, left], D)
        M[rows, rows], _ = lauum(D, lower=True, overwrite_c=True)
        add_square_t(M[rows, rows], M[below, rows])
        add_product_t(M[rows, left], M[below, rows], M[below, left])


def divide_t(B: np.ndarray, L: np.ndarray) -> None:
    """B := B L^-T."""
    each(lambda rows: triangular("trsm", "R", "T", 1.0, L, B[rows]), slices(0, len(B), BLOCK))


def multiply_left_minus(B: np.ndarray, M: np.ndarray) -> None:
    """B := −M B."""
    each(lambda columns: triangular("trmm", "L", "N", -1.0, M, B[:, columns]), slices(0, B.shape[1], BLOCK))


def multiply_left_t(B: np.ndarray, M: np.ndarray) -> None:
    """B := Mᵀ B."""
    each(lambda columns: triangular("trmm", "L", "T", 1.0, M, B[:, columns]), slices(0, B.shape[1], BLOCK))


def multiply_right(B: np.ndarray, M: np.ndarray) -> None:
    """B := B M."""
    each(lambda rows: triangular("trmm", "R", "N", 1.0, M, B[rows]), slices(0, len(B), BLOCK))


def subtract_square(C: np.ndarray, A: np.ndarray) -> None:
    """C −= A Aᵀ."""

    def column(columns: slice) -> None:
        below = slice(columns.stop, len(C))
        square("N", -1.0, A[columns], C[columns, columns])
        product("N", "T", -1.0, A[below], A[columns], C[below, columns])

    each(column, slices(0, len(C), BLOCK))


def add_square_t(C: np.ndarray, A: np.ndarray) -> None:
    """C += Aᵀ A."""

    def column(columns: slice) -> None:
        below = slice(columns.stop, len(C))
        square("T", 1.0, A[:, columns], C[columns, columns])
        product("T", "N", 1.0, A[:, below], A[:, columns], C[below, columns])

    each(column, slices(0, len(C), BLOCK))


def subtract_product_t(C: np.ndarray, A: np.ndarray, B: np.ndarray) -> None:
    """C −= A Bᵀ."""
    each(lambda columns: product("N", "T", -1.0, A, B[columns], C[:, columns]), slices(0, C.shape[1], BLOCK))


def add_product(C: np.ndarray, A: np.ndarray, B: np.ndarray) -> None:
    """C += A B."""
    each(lambda columns: product("N", "N", 1.0, A, B[:, columns], C[:, columns]), slices(0, C.shape[1], BLOCK))


def add_product_t(C: np.ndarray, A: np.ndarray, B: np.ndarray) -> None:
    """C += Aᵀ B."""
    each(lambda columns: product("T", "N", 1.0, A, B[:, columns], C[:, columns]), slices(0, C.shape[1], BLOCK))


KERNELS: dict[str, Callable[..., None]] = {
    kernel.__name__: kernel
    for kernel in (
        cholesky, invert, square_t, divide_t, multiply_left_minus, multiply_left_t, multiply_right,
        subtract_square, add_square_t, subtract_product_t, add_product, add_product_t,
    )
}  # fmt: skip
