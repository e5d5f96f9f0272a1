"""The operations on tiles, in place, by BLAS and LAPACK on column-major arrays of float32 or float64.

Of a diagonal tile only the lower triangle is read. A kernel divides its work into blocks of BLOCK rows or columns. One thread
computes each block, so the result has the same bits for any number of threads; BLAS itself must use one thread.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rankbench.core.thread_pool import each, slices
from rankbench.solvers.inverse.blas import product, square, triangular
from rankbench.solvers.inverse.linalg import cholesky_panel, inverse_panel, product_panel

BLOCK = 512


def cholesky(A: np.ndarray) -> None:
    """A := L with A = LLᵀ. Raises NotPositiveDefinite, with the row within the tile."""
    for own in slices(0, len(A), BLOCK):
        cholesky_panel(A, own)


def invert(L: np.ndarray) -> None:
    """L := L^-1."""
    for own in slices(0, len(L), BLOCK):
        inverse_panel(L, own, BLOCK)


def square_t(M: np.ndarray) -> None:
    """M := MᵀM."""
    for own in slices(0, len(M), BLOCK):
        product_panel(M, own, BLOCK)


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
