"""BLAS routines that change a part of a column-major matrix in place, in float32 or float64.

NumPy cannot accumulate into such a part, and SciPy's BLAS functions hold the interpreter's lock, which would stop other
threads. The same functions called by the addresses that SciPy publishes do not.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

import numpy as np
from numba.extending import get_cython_function_address


def triangular(name: str, side: str, transposed: str, factor: float, L: np.ndarray, B: np.ndarray) -> None:
    """B := factor · op(L) B or B op(L), or with the inverse of L, for the lower triangle L."""
    if B.size:
        _blas(name, B, side, "L", transposed, "N", *B.shape, factor, L, _leading(L), B, _leading(B))


def product(left: str, right: str, factor: float, A: np.ndarray, B: np.ndarray, C: np.ndarray) -> None:
    """C += factor · op(A) op(B); `left` and `right`: N or T."""
    inner = A.shape[1] if left == "N" else len(A)
    if C.size and inner:
        _blas("gemm", C, left, right, *C.shape, inner, factor, A, _leading(A), B, _leading(B), 1.0, C, _leading(C))


def square(transposed: str, factor: float, A: np.ndarray, C: np.ndarray) -> None:
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
