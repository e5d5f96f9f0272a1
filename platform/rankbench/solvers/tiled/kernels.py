"""The operations on tiles, in place, by BLAS and LAPACK on column-major arrays of float32 or float64.

Of a diagonal tile only the lower triangle is read and written. A kernel divides its work into blocks of BLOCK rows or columns.
One thread computes each block, so the result has the same bits for any number of threads; BLAS itself must use one thread.
SciPy's BLAS functions hold the interpreter's lock, which would stop the thread that reads tiles ahead; the same functions
called by address do not.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

import numpy as np
from numba.extending import get_cython_function_address
from scipy.linalg import lapack

from rankbench.solvers.inverse.linalg import blocks, each

BLOCK = 512


class NotPositiveDefinite(Exception):
    """Raised if the pivot of `row`, counted within the tile, is not positive."""

    def __init__(self, row: int):
        super().__init__(row)
        self.row = row


def cholesky(A: np.ndarray) -> None:
    """A := L with A = LLᵀ. Raises NotPositiveDefinite."""
    potrf = lapack.get_lapack_funcs("potrf", (A,))
    for rows in blocks(0, len(A), BLOCK):
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
    for rows in blocks(0, len(L), BLOCK):
        left = slice(0, rows.start)
        D, _ = trtri(L[rows, rows].copy(order="F"), lower=True, overwrite_c=True)
        L[rows, rows] = D
        multiply_left_minus(L[rows, left], D)
        row = L[rows, left].copy(order="F")

        def column(columns: slice, rows=rows, left=left, row=row) -> None:
            own, after = L[rows, columns], slice(columns.stop, left.stop)
            _triangular("trmm", "R", "N", 1.0, L[columns, columns], own)
            _product("N", "N", 1.0, row[:, after], L[after, columns], own)

        each(column, blocks(0, left.stop, BLOCK))


def square_t(M: np.ndarray) -> None:
    """M := MᵀM."""
    lauum = lapack.get_lapack_funcs("lauum", (M,))
    for rows in blocks(0, len(M), BLOCK):
        left, below = slice(0, rows.start), slice(rows.stop, len(M))
        D = M[rows, rows].copy(order="F")
        multiply_left_t(M[rows, left], D)
        M[rows, rows], _ = lauum(D, lower=True, overwrite_c=True)
        add_square_t(M[rows, rows], M[below, rows])
        add_product_t(M[rows, left], M[below, rows], M[below, left])


def divide_t(B: np.ndarray, L: np.ndarray) -> None:
    """B := B L^-T."""
    each(lambda rows: _triangular("trsm", "R", "T", 1.0, L, B[rows]), blocks(0, len(B), BLOCK))


def multiply_left_minus(B: np.ndarray, M: np.ndarray) -> None:
    """B := −M B."""
    each(lambda columns: _triangular("trmm", "L", "N", -1.0, M, B[:, columns]), blocks(0, B.shape[1], BLOCK))


def multiply_left_t(B: np.ndarray, M: np.ndarray) -> None:
    """B := Mᵀ B."""
    each(lambda columns: _triangular("trmm", "L", "T", 1.0, M, B[:, columns]), blocks(0, B.shape[1], BLOCK))


def multiply_right(B: np.ndarray, M: np.ndarray) -> None:
    """B := B M."""
    each(lambda rows: _triangular("trmm", "R", "N", 1.0, M, B[rows]), blocks(0, len(B), BLOCK))


def subtract_square(C: np.ndarray, A: np.ndarray) -> None:
    """C −= A Aᵀ."""

    def column(columns: slice) -> None:
        below = slice(columns.stop, len(C))
        _square("N", -1.0, A[columns], C[columns, columns])
        _product("N", "T", -1.0, A[below], A[columns], C[below, columns])

    each(column, blocks(0, len(C), BLOCK))


def add_square_t(C: np.ndarray, A: np.ndarray) -> None:
    """C += Aᵀ A."""

    def column(columns: slice) -> None:
        below = slice(columns.stop, len(C))
        _square("T", 1.0, A[:, columns], C[columns, columns])
        _product("T", "N", 1.0, A[:, below], A[:, columns], C[below, columns])

    each(column, blocks(0, len(C), BLOCK))


def subtract_product_t(C: np.ndarray, A: np.ndarray, B: np.ndarray) -> None:
    """C −= A Bᵀ."""
    each(lambda columns: _product("N", "T", -1.0, A, B[columns], C[:, columns]), blocks(0, C.shape[1], BLOCK))


def add_product(C: np.ndarray, A: np.ndarray, B: np.ndarray) -> None:
    """C += A B."""
    each(lambda columns: _product("N", "N", 1.0, A, B[:, columns], C[:, columns]), blocks(0, C.shape[1], BLOCK))


def add_product_t(C: np.ndarray, A: np.ndarray, B: np.ndarray) -> None:
    """C += Aᵀ B."""
    each(lambda columns: _product("T", "N", 1.0, A, B[:, columns], C[:, columns]), blocks(0, C.shape[1], BLOCK))


KERNELS: dict[str, Callable[..., None]] = {
    kernel.__name__: kernel
    for kernel in (
        cholesky, invert, square_t, divide_t, multiply_left_minus, multiply_left_t, multiply_right,
        subtract_square, add_square_t, subtract_product_t, add_product, add_product_t,
    )
}  # fmt: skip


def _triangular(name: str, side: str, transposed: str, factor: float, L: np.ndarray, B: np.ndarray) -> None:
    """B := factor · op(L) B or B op(L), or with the inverse of L, for the lower triangle L."""
    if B.size:
        _blas(name, B, side, "L", transposed, "N", *B.shape, factor, L, _leading(L), B, _leading(B))


def _product(left: str, right: str, factor: float, A: np.ndarray, B: np.ndarray, C: np.ndarray) -> None:
    """C += factor · op(A) op(B); `left` and `right`: N or T."""
    inner = A.shape[1] if left == "N" else len(A)
    if C.size and inner:
        _blas("gemm", C, left, right, *C.shape, inner, factor, A, _leading(A), B, _leading(B), 1.0, C, _leading(C))


def _square(transposed: str, factor: float, A: np.ndarray, C: np.ndarray) -> None:
    """The lower triangle of C += factor · A Aᵀ, or of Aᵀ A where `transposed` is T."""
    inner = A.shape[1] if transposed == "N" else len(A)
    if C.size and inner:
        _blas("syrk", C, "L", transposed, len(C), inner, factor, A, _leading(A), 1.0, C, _leading(C))


def _leading(A: np.ndarray) -> int:
    """Number of elements from one column to the next, if columns are contiguous. NumPy may state less for a single column."""
    return max(A.strides[1] // A.itemsize, len(A), 1)


def _blas(name: str, like: np.ndarray, *arguments: str | int | float | np.ndarray) -> None:
    """Call a BLAS routine in the precision of `like`; all arguments are passed by address."""
    number = np.ctypeslib.as_ctypes_type(like.dtype)
    _routine({"f": "s", "d": "d"}[like.dtype.char] + name, len(arguments))(*(_address(each, number) for each in arguments))


def _address(value: str | int | float | np.ndarray, number: type):
    if isinstance(value, np.ndarray):
        return value.ctypes.data
    if isinstance(value, str):
        return value.encode("ascii")
    return ctypes.byref(ctypes.c_int(value) if isinstance(value, int) else number(value))


@cache
def _routine(name: str, n_arguments: int) -> Callable[..., None]:
    address = get_cython_function_address("scipy.linalg.cython_blas", name)
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * n_arguments)(address)
