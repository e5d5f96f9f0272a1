"""The inverse of a symmetric positive definite matrix, in its own memory, at the speed of matrix products."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

import numpy as np
from numba.extending import get_cython_function_address
from scipy.linalg import lapack

from rankbench.data.blocks import mirror_upper
from rankbench.errors import NumericalError

LAPACK_ORDER = 16_384  # largest n for LAPACK; it is quicker on small systems, and known to work up to 20,000
PANEL = 512
_COLUMNS = 1024  # width of one product: wide enough for full speed, narrow enough to follow the triangle


def spd_inverse_(A: np.ndarray, progress: Callable[[int, int], None] = lambda done, total: None) -> np.ndarray:
    """Overwrite symmetric positive definite A (n, n), float32 or float64, C-contiguous, with its inverse.

    LAPACK's potrf and potri up to LAPACK_ORDER, `sweep_inverse_` beyond. O(n³) time; a few (n, PANEL) panels of memory.
    `progress(done, n)` is called as rows are done. Raises NumericalError when A is not positive definite.
    """
    n = A.shape[0]
    if n > LAPACK_ORDER:
        return sweep_inverse_(A, progress)
    potrf, potri = lapack.get_lapack_funcs(("potrf", "potri"), (A,))
    # Aᵀ of a C array is a Fortran array, which LAPACK works on in place; its lower triangle is the upper one of A.
    factor, info = potrf(A.T, lower=True, overwrite_a=True, clean=False)
    if info:
        raise _not_positive_definite(info - 1, n, A.dtype)
    potri(factor, lower=True, overwrite_c=True)
    mirror_upper(A)
    progress(n, n)
    return A


def sweep_inverse_(A: np.ndarray, progress: Callable[[int, int], None] = lambda done, total: None) -> np.ndarray:
    """`spd_inverse_` for any n, without LAPACK calls larger than a panel: its potrf crashes in common builds near
    n = 41,000.

    Blocked Gauss-Jordan sweep on the lower triangle: a panel of pivots is inverted by Cholesky and swept out of the
    rest by matrix products, n³ multiply-adds in all, as potrf + potri take, but all of them in large GEMMs. For positive
    definite A no pivoting is needed (Higham 2002, ch. 14), and every pivot block is a Schur complement, so its Cholesky
    fails exactly when A is not positive definite to working precision.
    """
    n = A.shape[0]
    for start in range(0, n, PANEL):
        stop = min(start + PANEL, n)
        inverse = _small_inverse(A[start:stop, start:stop], start, n)
        # The panel's column of the symmetric matrix, read from the lower triangle; its own rows are dealt with apart.
        column = np.empty((n, stop - start), A.dtype)
        column[:start] = A[start:stop, :start].T
        column[start:stop] = 0
        column[stop:] = A[stop:, start:stop]
        scaled = column @ inverse
        for left in range(0, n, _COLUMNS):
            right = min(left + _COLUMNS, n)
            _subtract_product(A[left:, left:right], scaled[left:], column[left:right])
        A[start:stop, :start] = scaled[:start].T
        A[start:stop, start:stop] = -inverse
        A[stop:, start:stop] = scaled[stop:]
        progress(stop, n)
    # The sweep leaves minus the inverse in the lower triangle.
    for start in range(0, n, PANEL):
        stop = min(start + PANEL, n)
        np.negative(A[start:, start:stop], out=A[start:, start:stop])
        A[start:stop, stop:] = A[stop:, start:stop].T
        A[start:stop, start:stop] = _from_lower(A[start:stop, start:stop])
    return A


def _small_inverse(pivot: np.ndarray, start: int, n: int) -> np.ndarray:
    """The inverse of a pivot block, of which the lower triangle is read. C-contiguous."""
    potrf, potri = lapack.get_lapack_funcs(("potrf", "potri"), (pivot,))
    factor, info = potrf(_from_lower(pivot), lower=True)
    if info:
        raise _not_positive_definite(start + info - 1, n, pivot.dtype)
    return np.ascontiguousarray(_from_lower(potri(factor, lower=True)[0]))


def _not_positive_definite(row: int, n: int, dtype: np.dtype) -> NumericalError:
    return NumericalError(
        f"the matrix is not positive definite (row {row} of {n}, {dtype}); raise lam, or use dtype float64"
    )


def _from_lower(block: np.ndarray) -> np.ndarray:
    """The symmetric matrix whose lower triangle is that of `block`."""
    lower = np.tril(block)
    return lower + np.tril(block, -1).T


def _subtract_product(C: np.ndarray, A: np.ndarray, B: np.ndarray) -> None:
    """C -= A @ B.T in place. C: (m, w) rows of a larger matrix; A: (m, k), B: (w, k) contiguous.

    NumPy cannot accumulate into a strided block, so BLAS is called through the addresses SciPy publishes. BLAS counts by
    column: what is C by rows is Cᵀ by columns, hence Cᵀ -= B Aᵀ.
    """
    (m, w), k = C.shape, A.shape[1]
    scalar = np.ctypeslib.as_ctypes_type(C.dtype)
    _gemm(C.dtype.char)(
        b"T", b"N", _int(w), _int(m), _int(k), ctypes.byref(scalar(-1)), B.ctypes.data, _int(k), A.ctypes.data, _int(k),
        ctypes.byref(scalar(1)), C.ctypes.data, _int(C.strides[0] // C.itemsize),
    )  # fmt: skip


@cache
def _gemm(kind: str) -> Callable:
    """BLAS sgemm or dgemm as a function of pointers."""
    address = get_cython_function_address("scipy.linalg.cython_blas", {"f": "sgemm", "d": "dgemm"}[kind])
    number = ctypes.POINTER({"f": ctypes.c_float, "d": ctypes.c_double}[kind])
    integer, array = ctypes.POINTER(ctypes.c_int), ctypes.c_void_p
    flags, sizes = [ctypes.c_char_p] * 2, [integer] * 3
    return ctypes.CFUNCTYPE(None, *flags, *sizes, number, array, integer, array, integer, number, array, integer)(
        address
    )


def _int(value: int):
    return ctypes.byref(ctypes.c_int(value))
