"""What is done to tiles, in place: BLAS and LAPACK on column-major arrays of float32 or float64.

Of a diagonal tile the lower triangle alone is read and written. SciPy's own BLAS functions hold the interpreter's lock, and a
thread that reads tiles ahead would wait for each product; called by their addresses they do not.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

import numpy as np
from numba.extending import get_cython_function_address
from scipy.linalg import lapack


class NotPositiveDefinite(Exception):
    """The pivot of `row`, counted in the tile, is not positive."""

    def __init__(self, row: int):
        super().__init__(row)
        self.row = row


def cholesky(A: np.ndarray) -> None:
    """A := L with A = LLᵀ. Raises NotPositiveDefinite."""
    potrf = lapack.get_lapack_funcs("potrf", (A,))
    _, info = potrf(A, lower=True, overwrite_a=True, clean=False)
    if info:
        raise NotPositiveDefinite(info - 1)


def invert(L: np.ndarray) -> None:
    """L := L^-1."""
    lapack.get_lapack_funcs("trtri", (L,))(L, lower=True, overwrite_c=True)


def square_t(M: np.ndarray) -> None:
    """M := MᵀM."""
    lapack.get_lapack_funcs("lauum", (M,))(M, lower=True, overwrite_c=True)


def divide_t(B: np.ndarray, L: np.ndarray) -> None:
    """B := B L^-T."""
    _triangular("trsm", "R", "T", 1.0, L, B)


def multiply_left_minus(B: np.ndarray, M: np.ndarray) -> None:
    """B := −M B."""
    _triangular("trmm", "L", "N", -1.0, M, B)


def multiply_left_t(B: np.ndarray, M: np.ndarray) -> None:
    """B := Mᵀ B."""
    _triangular("trmm", "L", "T", 1.0, M, B)


def multiply_right(B: np.ndarray, M: np.ndarray) -> None:
    """B := B M."""
    _triangular("trmm", "R", "N", 1.0, M, B)


def subtract_square(C: np.ndarray, A: np.ndarray) -> None:
    """C −= A Aᵀ."""
    _blas("syrk", C, "L", "N", len(C), A.shape[1], -1.0, A, len(A), 1.0, C, len(C))


def add_square_t(C: np.ndarray, A: np.ndarray) -> None:
    """C += Aᵀ A."""
    _blas("syrk", C, "L", "T", len(C), len(A), 1.0, A, len(A), 1.0, C, len(C))


def subtract_product_t(C: np.ndarray, A: np.ndarray, B: np.ndarray) -> None:
    """C −= A Bᵀ."""
    _blas("gemm", C, "N", "T", *C.shape, A.shape[1], -1.0, A, len(A), B, len(B), 1.0, C, len(C))


def add_product(C: np.ndarray, A: np.ndarray, B: np.ndarray) -> None:
    """C += A B."""
    _blas("gemm", C, "N", "N", *C.shape, A.shape[1], 1.0, A, len(A), B, len(B), 1.0, C, len(C))


def add_product_t(C: np.ndarray, A: np.ndarray, B: np.ndarray) -> None:
    """C += Aᵀ B."""
    _blas("gemm", C, "T", "N", *C.shape, len(A), 1.0, A, len(A), B, len(B), 1.0, C, len(C))


KERNELS: dict[str, Callable[..., None]] = {
    kernel.__name__: kernel
    for kernel in (
        cholesky, invert, square_t, divide_t, multiply_left_minus, multiply_left_t, multiply_right,
        subtract_square, add_square_t, subtract_product_t, add_product, add_product_t,
    )
}  # fmt: skip


def _triangular(name: str, side: str, transposed: str, factor: float, L: np.ndarray, B: np.ndarray) -> None:
    _blas(name, B, side, "L", transposed, "N", *B.shape, factor, L, len(L), B, len(B))


def _blas(name: str, like: np.ndarray, *arguments: str | int | float | np.ndarray) -> None:
    """Call a BLAS routine, which takes all by address, in the precision of `like`."""
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
