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

LAPACK_ORDER = 16_384  # largest n for LAPACK, whose potrf crashes in common builds near n = 41,000 (20,000 is known to work)
PANEL = 512
_COLUMNS = 1024  # width of one product: wide enough for full speed, narrow enough to follow the triangle

Progress = Callable[[int, int], None]


def spd_inverse_(A: np.ndarray, progress: Progress = lambda done, total: None) -> np.ndarray:
    """Overwrite symmetric positive definite A (n, n), float32 or float64, C-contiguous, with its inverse.

    LAPACK's potrf and potri up to LAPACK_ORDER, the same three steps by panels beyond: n³ flops, nearly all in
    large matrix products, and two (n, PANEL) panels of extra memory. `progress(done, total)` counts flops.
    Raises NumericalError when A is not positive definite to working precision.
    """
    n = A.shape[0]
    if n > LAPACK_ORDER:
        return inverse_by_panels_(A, progress)
    potrf, potri = lapack.get_lapack_funcs(("potrf", "potri"), (A,))
    # Aᵀ of a C array is a Fortran array, which LAPACK works on in place; its lower triangle is the upper one of A.
    factor, info = potrf(A.T, lower=True, overwrite_a=True, clean=False)
    if info:
        raise not_positive_definite(info - 1, n, A.dtype)
    potri(factor, lower=True, overwrite_c=True)
    mirror_upper(A)
    progress(n**3, n**3)
    return A


def inverse_by_panels_(A: np.ndarray, progress: Progress = lambda done, total: None) -> np.ndarray:
    """`spd_inverse_` without a LAPACK call larger than a panel: A = LLᵀ, M = L^-1, A^-1 = MᵀM, on the lower triangle."""
    n = A.shape[0]
    panels = [(start, min(start + PANEL, n)) for start in range(0, n, PANEL)]
    work = n**3
    for start, stop in panels:
        _cholesky_panel(A, start, stop)
        progress((n**3 - (n - stop) ** 3) // 3, work)
    for start, stop in panels:
        _inverse_panel(A, start, stop)
        progress((n**3 + stop**3) // 3, work)
    for start, stop in panels:
        _product_panel(A, start, stop)
        progress(work - (n - stop) ** 3 // 3, work)
    for start, stop in panels:
        A[start:stop, stop:] = A[stop:, start:stop].T
        A[start:stop, start:stop] = _symmetric(A[start:stop, start:stop])
    return A


def _cholesky_panel(A: np.ndarray, start: int, stop: int) -> None:
    """Column panel of L, and the update of all that lies right of it."""
    n = A.shape[0]
    potrf, trtri = lapack.get_lapack_funcs(("potrf", "trtri"), (A,))
    L, info = potrf(_symmetric(A[start:stop, start:stop]), lower=True)
    if info:
        raise not_positive_definite(start + info - 1, n, A.dtype)
    A[start:stop, start:stop] = L
    below = A[stop:, start:stop] @ trtri(L, lower=True)[0].T
    A[stop:, start:stop] = below
    for left in range(stop, n, _COLUMNS):
        right = min(left + _COLUMNS, n)
        _subtract_product(A[left:, left:right], below[left - stop :], below[left - stop : right - stop])


def _inverse_panel(A: np.ndarray, start: int, stop: int) -> None:
    """Row panel of M = L^-1: M_kk = L_kk^-1 and M_k = −M_kk L_k M above, where what lies above is M already."""
    trtri = lapack.get_lapack_funcs("trtri", (A,))
    M = trtri(np.tril(A[start:stop, start:stop]), lower=True)[0]
    A[start:stop, start:stop] = M
    # Products take whole column blocks: what they meet of the other triangle must be M's zeros.
    A[start:stop, stop : -(-stop // _COLUMNS) * _COLUMNS] = 0
    row = -(M @ A[start:stop, :start])
    for left in range(0, start, _COLUMNS):
        right = min(left + _COLUMNS, start)
        A[start:stop, left:right] = row[:, left:] @ A[left:start, left:right]


def _product_panel(A: np.ndarray, start: int, stop: int) -> None:
    """Row panel of MᵀM; the rows of M above are not needed any more."""
    column = A[start:, start:stop].copy()
    for left in range(0, stop, _COLUMNS):
        right = min(left + _COLUMNS, stop)
        A[start:stop, left:right] = column.T @ A[start:, left:right]


def not_positive_definite(row: int, n: int, dtype: np.dtype) -> NumericalError:
    """What to raise when the factorisation breaks down at `row`."""
    return NumericalError(f"the matrix is not positive definite (row {row} of {n}, {dtype}); raise lam, or use float64")


def _symmetric(block: np.ndarray) -> np.ndarray:
    """The symmetric matrix whose lower triangle is that of `block`."""
    return np.tril(block) + np.tril(block, -1).T


def _subtract_product(C: np.ndarray, A: np.ndarray, B: np.ndarray) -> None:
    """C -= A @ B.T in place. C: (m, w) rows of a larger matrix; A: (m, k), B: (w, k) contiguous.

    NumPy cannot accumulate into a strided block, so BLAS is called through the addresses SciPy publishes. BLAS counts
    by column: what is C by rows is Cᵀ by columns, hence Cᵀ -= B Aᵀ.
    """
    (m, w), k = C.shape, A.shape[1]
    scalar = np.ctypeslib.as_ctypes_type(C.dtype)
    minus_one, one = ctypes.byref(scalar(-1)), ctypes.byref(scalar(1))
    sizes = [_int(w), _int(m), _int(k)]
    product = [minus_one, B.ctypes.data, _int(k), A.ctypes.data, _int(k)]
    _gemm(C.dtype.char)(b"T", b"N", *sizes, *product, one, C.ctypes.data, _int(C.strides[0] // C.itemsize))


@cache
def _gemm(kind: str) -> Callable:
    """BLAS sgemm or dgemm as a function of pointers."""
    address = get_cython_function_address("scipy.linalg.cython_blas", {"f": "sgemm", "d": "dgemm"}[kind])
    number = ctypes.POINTER({"f": ctypes.c_float, "d": ctypes.c_double}[kind])
    integer, array = ctypes.POINTER(ctypes.c_int), ctypes.c_void_p
    flags, sizes = [ctypes.c_char_p] * 2, [integer] * 3
    return ctypes.CFUNCTYPE(None, *flags, *sizes, number, array, integer, array, integer, number, array, integer)(address)


def _int(value: int):
    return ctypes.byref(ctypes.c_int(value))
