"""The inverse of a symmetric positive definite matrix, in its own memory, at the speed of matrix products."""

from __future__ import annotations

import numpy as np
import torch

from rankbench.errors import NumericalError

PANEL = 1024


def spd_inverse_(A: np.ndarray, progress=lambda done, total: None) -> np.ndarray:
    """Overwrite symmetric positive definite A (n, n), float32 or float64, C-contiguous, with its inverse.

    Blocked Gauss-Jordan sweep on the lower triangle: a panel of pivots is inverted by Cholesky and swept out of the
    rest by one matrix product, n³ multiply-adds in all, as potrf + potri take, but each a large GEMM. Extra memory:
    two (n, PANEL) panels. For positive definite A no pivoting is needed (Higham 2002, ch. 14), and every pivot block
    is a Schur complement, so its Cholesky fails exactly when A is not positive definite to working precision.
    LAPACK's potrf crashes in common builds near n = 41,000; no call here is larger than a panel's.

    `progress(done, n)` is called after every panel. Raises NumericalError when A is not positive definite.
    """
    n = A.shape[0]
    M = torch.from_numpy(A)
    for start in range(0, n, PANEL):
        stop = min(start + PANEL, n)
        pivot = torch.tril(M[start:stop, start:stop])
        factor, info = torch.linalg.cholesky_ex(pivot + torch.tril(pivot, -1).T)
        if info.item():
            raise NumericalError(
                f"the matrix is not positive definite (row {start + info.item() - 1} of {n}, {A.dtype}); "
                "raise lam, or use dtype float64"
            )
        inverse = torch.cholesky_inverse(factor)
        # The panel's column, read from the lower triangle; its own rows are dealt with apart.
        column = torch.empty((n, stop - start), dtype=M.dtype)
        column[:start] = M[start:stop, :start].T
        column[start:stop] = 0
        column[stop:] = M[stop:, start:stop]
        scaled = column @ inverse
        for left in range(0, n, PANEL):
            right = min(left + PANEL, n)
            M[left:, left:right].addmm_(scaled[left:], column[left:right].T, alpha=-1)
        M[start:stop, :start] = scaled[:start].T
        M[start:stop, start:stop] = -inverse
        M[stop:, start:stop] = scaled[stop:]
        progress(stop, n)
    # The sweep leaves minus the inverse in the lower triangle.
    for start in range(0, n, PANEL):
        stop = min(start + PANEL, n)
        M[start:, start:stop].neg_()
        M[start:stop, stop:] = M[stop:, start:stop].T
        block = torch.tril(M[start:stop, start:stop])
        M[start:stop, start:stop] = block + torch.tril(block, -1).T
    return A
