"""The system of the Gram matrix that low-rank solvers share, and its top eigenvectors, with one dense matrix in memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from rankbench.core.errors import NumericalError
from rankbench.core.rng import stream
from rankbench.core.thread_pool import by_threads, slices
from rankbench.data.blocks import gram
from rankbench.fitting.method import Shift, require_interactions
from rankbench.fitting.recommenders import LowRankRecommender
from rankbench.solvers.inverse.shared import inverse

ROWS = 1024  # rows that a thread multiplies at once; the same for any number of threads, so that the bits do not depend on it
FLOAT64_ITEMS = 4096  # largest n_items whose inverse is kept in float64


@dataclass(frozen=True)
class System:
    """C = (G + Λ)^-1 for G = XᵀX and Λ = p/(1−p) diag(G) + λI, over the items with training interactions.

    `items` (n,) are their positions among all items. `X` (n_users, n), float64 CSR, applies G in time O(nnz). `C` (n, n) is
    float64 up to FLOAT64_ITEMS items and float32 beyond. `counts` and `Lam` (n,), float64, are the diagonals of G and Λ.
    """

    items: np.ndarray
    X: sp.csr_array
    C: np.ndarray
    counts: np.ndarray
    Lam: np.ndarray

    @property
    def tolerance(self) -> float:
        """Relative tolerance for iterative methods, which is above the rounding errors of C."""
        return 1e-10 if self.C.dtype == np.float64 else 1e-4

    def G_times(self, M: np.ndarray) -> np.ndarray:
        """G M for M (n,) or (n, m), float64."""
        return self.X.T @ (self.X @ M)

    def C_times(self, M: np.ndarray) -> np.ndarray:
        """C M for M (n,) or (n, m), in float64 apart from the product, which several threads compute by blocks of rows."""
        M = M.astype(self.C.dtype, copy=False)
        parts = by_threads(lambda rows: self.C[rows] @ M, slices(0, len(self.C), ROWS))
        return np.concatenate(list(parts)).astype(np.float64, copy=False)

    def model(self, n_items: int, U: np.ndarray, V: np.ndarray, alpha: np.ndarray) -> LowRankRecommender:
        """W = UVᵀ + diag(alpha) over all items, with zeros for those that are not in the system."""

        def spread(rows: np.ndarray) -> np.ndarray:
            out = np.zeros((n_items, *rows.shape[1:]))
            out[self.items] = rows
            return out

        return LowRankRecommender(spread(U), spread(V), spread(alpha))


def system(X: sp.csr_array, p: float, lam: float, invert: bool = True) -> System:
    """Build the system from X (n_users, n_items), 0/1 CSR, by inverting its Gram matrix in place. Without `invert`, C is zero:
    where Λ is, the free diagonal needs C only times Λ, and G need not have an inverse.

    Raises DataError if X is empty, and NumericalError if G + Λ is not positive definite.
    """
    require_interactions(X)
    items = np.flatnonzero(np.bincount(X.indices, minlength=X.shape[1]))
    X = X[:, items] if len(items) < X.shape[1] else X
    XtX = gram(X, np.float64 if len(items) <= FLOAT64_ITEMS else np.float32)
    shift = Shift(p / (1 - p), lam)
    C = inverse(XtX, shift) if invert else np.zeros((len(items), len(items)))
    return System(items, X.astype(np.float64), C, XtX.counts, XtX.counts * shift.odds + shift.ridge)


def top_eigenvectors(system: System, k: int, seed: int) -> np.ndarray:
    """V (n, min(k, n)) float64, orthonormal: the eigenvectors of GCG for its largest eigenvalues, those first.

    Since G = C^-1 − Λ, GCG = G − Λ + ΛCΛ, which takes one dense product per step of Lanczos and rounds less than GCG.
    Raises NumericalError if Lanczos does not converge.
    """
    n, Lam = len(system.counts), system.Lam
    k = min(k, n)

    def times(M: np.ndarray) -> np.ndarray:
        scale = Lam if M.ndim == 1 else Lam[:, None]
        return system.G_times(M) - scale * M + scale * system.C_times(scale * M)

    # Measured: from k = n/16 on, a full decomposition is faster than Lanczos, if three further (n, n) arrays are affordable.
    if (16 if n <= FLOAT64_ITEMS else 4) * k >= n:
        M = Lam[:, None] * system.C
        M *= Lam
        M += gram(system.X, np.float64).take()
        M[np.diag_indices(n)] -= Lam
        # Only the lower triangle is read, in place: the transpose is column-major.
        _, V = scipy.linalg.eigh(M.T, subset_by_index=[n - k, n - 1], overwrite_a=True)
        return V[:, ::-1]
    start = stream(seed, "low-rank", "lanczos").standard_normal(n)
    operator = LinearOperator((n, n), matvec=times, dtype=np.float64)
    try:
        values, V = eigsh(operator, k, which="LA", v0=start, tol=system.tolerance)
    except ArpackNoConvergence as error:
        raise NumericalError(
            f"the {k} largest eigenvalues were not found ({error}); lower embedding_dim or raise lam"
        ) from None
    return V[:, np.argsort(-values, kind="stable")]
