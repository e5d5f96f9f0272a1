"""The DEQL paper's own algorithms, as printed: slow, and independent of what the product does."""

import numpy as np


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


def miller(X, p, a, b, lam, zero_diagonal=False):
    """The fast algorithm of section 4, O(n³): Miller's theorem twice a column, Eq. 20 to 23."""
    n, q = X.shape[1], 1 - p
    RtR, off, eye = X.T @ X, 1 - np.eye(n), np.eye(n)
    h1, c = q * p * a**2 + q**2 * b**2, p * (a**2 - b**2)
    H0_inverse = np.linalg.inv((h1 * eye + q * h1 * off) * RtR + lam * eye)
    right = (q * b**2 * eye + h1 * off) * RtR  # column i is v^(i)
    E1 = -(q * c * eye + q**2 * c * off) * RtR  # column i is e1^(i)
    E2 = -(q**2) * c * off * RtR  # column i is e2^(i)

    def solve(vector, i):
        r, w = H0_inverse @ vector, H0_inverse @ E1[:, i]
        s = r - r[i] / (1 + w[i]) * w
        t = H0_inverse[:, i] - H0_inverse[i, i] / (1 + w[i]) * w
        return s - (E2[:, i] @ s) / (1 + E2[:, i] @ t) * t

    W = np.empty((n, n))
    for i in range(n):
        W[:, i] = solve(right[:, i], i)
        if zero_diagonal:
            W[:, i] = _without_diagonal(W[:, i], solve(eye[i], i), i)
    return W


def _without_diagonal(w, y, i):
    """Eq. 17."""
    return w - w[i] / y[i] * y
