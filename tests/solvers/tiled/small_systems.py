"""Small 0/1 data for the inverse by tiles, and the shifted Gram by its definition, dense in float64."""

import time
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from rankbench.fitting.method import Shift

SHIFT = Shift(odds=0.5, ridge=2.0)


def some_data(n_users, n_items, density=0.3, seed=0):
    """0/1 CSR; items differ much in popularity, and where there are several one has no interaction."""
    rng = np.random.default_rng(seed)
    dense = rng.random((n_users, n_items)) < density * np.geomspace(1, 0.2, n_items)
    if n_items > 2:
        dense[:, rng.integers(n_items)] = False
    return sp.csr_array(dense.astype(np.float32))


def shifted_gram(X, shift):
    """G + odds · diag(G) + ridge · I for G = XᵀX, with 1 on the diagonal of an item without interactions."""
    dense = X.toarray().astype(np.float64)
    counts = dense.sum(axis=0)
    return dense.T @ dense + np.diag(shift.odds * counts + shift.ridge + (counts == 0))


@dataclass
class Slowly:
    """A progress that leaves time, after each panel, for a test to kill the process, and after `most` calls waits for it."""

    most: int
    calls: int = 0

    def __call__(self, done: int, total: int) -> None:
        self.calls += 1
        time.sleep(0.02 if self.calls <= self.most else 600)
