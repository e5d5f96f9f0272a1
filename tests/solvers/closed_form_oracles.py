"""Closed forms by their definitions, and the DEQL paper's equations as printed: slow, and independent of the product; small
data and fits to compare with them.
"""

from itertools import product

import numpy as np
import scipy.sparse as sp

from rankbench.experiment.fit import fit as fit_configs
from rankbench.experiment.job import configure


def H(X, i, p, a, b):
    """H^(i) of Lemma 3.2, entry by entry."""
    n, q = X.shape[1], 1 - p
    G = np.empty((n, n))
    for k in range(n):
        for l in range(n):
            if k == l == i:
                G[k, l] = q * b**2
            elif i in (k, l):
                G[k, l] = q**2 * b**2
            elif k == l:
                G[k, l] = q * p * a**2 + q**2 * b**2
            else:
                G[k, l] = q**2 * p * a**2 + q**3 * b**2
    return G * (X.T @ X)


def v(X, i, p, a, b):
    """v^(i) of Lemma 3.2."""
    u = np.full(X.shape[1], (1 - p) * p * a**2 + (1 - p) ** 2 * b**2)
    u[i] = (1 - p) * b**2
    return u * (X.T @ X[:, i])


def direct(X, p, a, b, lam, zero_diagonal=False):
    """Eq. 9 and 16, a solve a column, O(n⁴); with the constraint of Eq. 17 if asked for."""
    n = X.shape[1]
    W = np.empty((n, n))
    for i in range(n):
        system = H(X, i, p, a, b) + lam * np.eye(n)
        W[:, i] = np.linalg.solve(system, v(X, i, p, a, b))
        if zero_diagonal:
            W[:, i] = _without_diagonal(W[:, i], np.linalg.solve(system, np.eye(n)[i]), i)
    return W


def _without_diagonal(w, y, i):
    """Eq. 17."""
    return w - w[i] / y[i] * y


def masks(m, n, p):
    """Every dropout mask (2^(m n), m, n), 1 where an entry is kept, and its probability."""
    keep = np.array(list(product([0.0, 1.0], repeat=m * n))).reshape(-1, m, n)
    return keep, np.prod(np.where(keep == 1, 1 - p, p), axis=(1, 2))


def ridge_by_item(X, lam, alpha=0.0):
    """EASE as it is defined: predict item j from all the others, one ridge regression an item; `alpha` debiases it."""
    n = X.shape[1]
    W = np.zeros((n, n))
    for j in range(n):
        rest = np.arange(n) != j
        A = X[:, rest]
        W[rest, j] = np.linalg.solve((1 - alpha) * A.T @ A + lam * np.eye(n - 1), A.T @ X[:, j])
    return W


def expected_edlae(X, p, lam):
    """min over w with w_i = 0 of E‖A ∘ (X_i − (Δ ∘ X) w)‖² + λ_E‖w‖², A = 1 where Δ drops entry i of a row, else 0.

    All masks Δ are written out as rows of one least squares problem, weighted by their probabilities.
    λ here stands beside the Gram, which the expectation scales by h2 = p(1−p)²: λ_E = λ h2.
    """
    n = X.shape[1]
    keep, probability = masks(*X.shape, p)
    W = np.zeros((n, n))
    for i in range(n):
        rest = np.arange(n) != i
        weight = np.sqrt(probability[:, None] * (keep[:, :, i] == 0))
        inputs = (weight[:, :, None] * keep * X)[:, :, rest].reshape(-1, n - 1)
        wanted = (weight * X[:, i]).ravel()
        ridge = np.sqrt(lam * p * (1 - p) ** 2) * np.eye(n - 1)
        W[rest, i] = np.linalg.lstsq(np.vstack([inputs, ridge]), np.r_[wanted, np.zeros(n - 1)], rcond=None)[0]
    return W


def expected_dlae(X, p, lam):
    """The same without emphasis, with a free diagonal: λ beside the Gram is λ(1−p)² beside the expectation."""
    n = X.shape[1]
    keep, probability = masks(*X.shape, p)
    root = np.sqrt(probability)[:, None, None]
    inputs, wanted = (root * keep * X).reshape(-1, n), (root * np.broadcast_to(X, keep.shape)).reshape(-1, n)
    ridge = np.sqrt(lam) * (1 - p) * np.eye(n)
    return np.linalg.lstsq(np.vstack([inputs, ridge]), np.vstack([wanted, np.zeros((n, n))]), rcond=None)[0]


def debiased_loss(X, W, c, lam):
    """The debiased squared error as it is summed before Eq. 25, with its λ = 1: positives weigh c, all scores are shrunk."""
    scores = X @ W
    met = X == 1
    positives = c * (scores[met] - 1) ** 2 - c * scores[met] ** 2
    return positives.sum() + (scores**2).sum() + lam * (W**2).sum()


def some_interactions(n_users, n_items, seed=0, least=0.1):
    """0/1 interactions of items from a popularity of a half down to `least`, none of them empty."""
    X = (np.random.default_rng(seed).random((n_users, n_items)) < np.geomspace(0.5, least, n_items)).astype(float)
    X[0] = 1
    return X


def low_rank_weights(X, method, seed=0, **values):
    """W of a fit in float64."""
    (model,) = fit_configs((configure(method, values),), sp.csr_array(X, dtype=np.float32), "float64", seed).models
    return model.dense_weights()
