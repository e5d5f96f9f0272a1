"""The ALS models of the papers over dense matrices, from their printed losses: W and W∘S (n_users, n_items), and the ridges.

Written without the product's own coefficients. Every model is Σ W (S − PQᵀ)² + Σ ridge ‖·‖², up to a constant.
"""

import numpy as np


def fitted_users(R):
    """M of the ridges that name it: rows without interactions are those of held-out users, who are not in the training data."""
    return np.count_nonzero(R.sum(1))


def wrmf(R, p):
    M, N = R.shape
    W = 1 + p.alpha * R
    return W, W * R, np.full(M, p.lam), np.full(N, p.lam)


def ials(R, p):
    M, N = fitted_users(R), R.shape[1]
    return p.alpha0 + R, R, p.lam * (R.sum(1) + p.alpha0 * N) ** p.nu, p.lam * (R.sum(0) + p.alpha0 * M) ** p.nu


def debiased_ials(R, p):
    N = R.shape[1]
    tau = ((1 + p.a) * R.sum(1) + p.extra * (R.sum(1) > 0)) / N
    c = (N * tau / np.maximum(R.sum(1), 1))[:, None]
    _, _, users, items = ials(R, p)
    return p.alpha0 + (c - c * p.alpha0) * R, c * R, users, items


def rg2(R, p):
    M, N = R.shape
    n = R.sum(1, keepdims=True)
    W = np.broadcast_to(n / (2 * N), (M, N))
    S = R * N / np.maximum(n, 1) - 1
    if p.regulariser == "product":
        return W + p.lam / (2 * N), W * S, np.zeros(M), np.zeros(N)
    if p.regulariser == "unweighted":
        return W, W * S, np.full(M, p.lam), np.full(N, p.lam)
    return W, W * S, p.lam * W.sum(1), p.lam * W.sum(0)


def rgx_paper(R, p):
    W, WS, users, items = _weighted_rg2(R, p.lam)
    return (1 - p.beta) * W, WS, users, items


def rg2_sampled(R, p):
    M, N = R.shape
    n = R.sum(1, keepdims=True)
    negatives = p.n_negatives
    if p.weights == "expected":
        everywhere = np.broadcast_to(n * negatives / (2 * N * (negatives + 1)), (M, N))
        positive = R / (2 * (negatives + 1))
        _, _, users, items = _weighted_rg2(R, p.lam)
        return everywhere + positive, R / 2 - everywhere - positive, users, items
    W = np.where(R > 0, n, n * (negatives + 1) / N) / (2 * N)
    return W, W * (R * N / np.maximum(n, 1) - 1), p.lam * W.sum(1), p.lam * W.sum(0)


def rg_authors(R, p):
    M, N = fitted_users(R), R.shape[1]
    n = R.sum(1)
    W, WS, _, _ = _weighted_rg2(R, p.lam)
    users = p.lam * (n / 2 + p.alpha * N) + (p.lam if p.reg == "authors" else 0)
    items = np.full(N, p.lam * (n.sum() / (2 * N) + p.alpha * M))
    return (1 - p.beta) * (W + p.alpha * R), WS + p.alpha * R, users, items


def _weighted_rg2(R, lam):
    M, N = R.shape
    n = R.sum(1, keepdims=True)
    W = np.broadcast_to(n / (2 * N), (M, N))
    return W, W * (R * N / np.maximum(n, 1) - 1), lam * W.sum(1), lam * W.sum(0)


MODELS = {
    "wrmf": wrmf,
    "ials": ials,
    "debiased-ials": debiased_ials,
    "rg2": rg2,
    "rgx-paper": rgx_paper,
    "rg2-sampled": rg2_sampled,
    "rg-authors": rg_authors,
}


def value(model, P, Q):
    """The loss up to a constant: without Σ W S²."""
    W, WS, users, items = model
    Y = P @ Q.T
    return (W * Y * Y - 2 * WS * Y).sum() + users @ (P * P).sum(1) + items @ (Q * Q).sum(1)


def solve_users(model, Q):
    W, WS, ridge, _ = model
    return np.stack([_solve(Q, W[u], WS[u], ridge[u]) for u in range(len(W))])


def solve_items(model, P):
    W, WS, _, ridge = model
    return np.stack([_solve(P, W[:, i], WS[:, i], ridge[i]) for i in range(W.shape[1])])


def _solve(Y, w, ws, ridge):
    A = Y.T @ (w[:, None] * Y) + ridge * np.eye(Y.shape[1])
    # A row that nothing determines, as a user of RG² without interactions, has the least of its solutions.
    return np.linalg.lstsq(A, Y.T @ ws, rcond=1e-12)[0]
