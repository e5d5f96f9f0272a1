"""The inverse of the shifted Gram in plain NumPy, on dense float64 matrices.

The tests compare `tiled_inverse`, which never holds the whole matrix, with these functions.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from rankbench.fitting.method import Shift


def shifted_gram(X: sp.csr_array, shift: Shift) -> np.ndarray:
    """G + odds · diag(G) + ridge · I for G = XᵀX, (n_items, n_items); 1 is added to the diagonal of an item without
    interactions, so that its row and column can be inverted without a ridge.
    """
    dense = X.toarray().astype(np.float64)
    counts = dense.sum(axis=0)
    return dense.T @ dense + np.diag(shift.odds * counts + shift.ridge + (counts == 0))


def inverse(X: sp.csr_array, shift: Shift) -> np.ndarray:
    """The inverse of the shifted Gram, (n_items, n_items)."""
    return np.linalg.inv(shifted_gram(X, shift))
