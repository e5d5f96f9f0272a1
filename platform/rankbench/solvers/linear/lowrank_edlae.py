r"""Low-rank EDLAE by ADMM (Steck, NeurIPS 2020, §4.2; Jin and Li, arXiv 2023, appendix C.2, Eq. 32 to 35).

$$\begin{aligned} & \min_B \; \lVert X - XB \rVert^2 + \lVert \Lambda^{1/2} B \rVert^2, \qquad
\Lambda = \frac{p}{1 - p} \operatorname{diag}(G) + \lambda I, \\ & \text{over } B = UV^\top - \operatorname{diag}(UV^\top)
\end{aligned}$$

for U, V (n_items, k). With W = UVᵀ, a vector β that stands for diag(W), scaled multipliers γ and Ω = Λ + ωI, every update
exactly minimises

$$L = \lVert X(I + \operatorname{diag} \beta) - XW \rVert^2 + \lVert \Lambda^{1/2} (W - \operatorname{diag} \beta) \rVert^2
  + \lVert \Omega^{1/2} (\operatorname{diag}(W) - \beta + \gamma) \rVert^2$$

over its block, and γ ← γ + diag(W) − β. The prediction is B/(1−p), as in EDLAE, which it equals at k = n_items.

Differs from the paper: there Λ acts on W and, with a minus, on β, which is the same if β = diag(W), but not convex in β; and
γ enters Eq. 34 with the sign opposite to that of its updates. The updates of U and V in Eq. 35 minimise with
$\lVert \Omega^{1/2} (W - \operatorname{diag}(\beta - \gamma)) \rVert^2$ over the whole matrix instead of its diagonal, and so
converge to the solution for 2Λ + ωI, not for Λ.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, cg

from rankbench.core.errors import NumericalError
from rankbench.core.params import Fixed, param
from rankbench.fitting.method import direct
from rankbench.fitting.recommenders import LowRankRecommender
from rankbench.solvers.inverse.lowrank import System, system, top_eigenvectors
from rankbench.solvers.linear.lowrank_deql import LowRankDEQL, regression


@dataclass(frozen=True)
class LowRankEDLAE(LowRankDEQL):
    embedding_dim: int = param(64, "rank k of UVᵀ; at most the number of items is used", Fixed("not published"), gt=0)
    omega: float = param(100.0, "weight ω of the ADMM penalty, which ties β to the diagonal", Fixed("not published"), gt=0)
    iterations: int = param(30, "number of rounds of the four updates", Fixed("not published"), gt=0)


@direct(
    "edlae-low-rank",
    LowRankEDLAE,
    families=("linear",),
    title="Low-rank EDLAE: weights of rank k with a zero diagonal, by ADMM",
    source="Steck, NeurIPS 2020; Jin and Li, arXiv 2023, C.2",
    holds_matrix=True,
)
def lowrank_edlae(X: sp.csr_array, p: LowRankEDLAE, seed: int) -> LowRankRecommender:
    """Fit by one inverse in O(n_items³) time and about ten (n_items, n_items) x (n_items, k) products per round.

    The inverse is float64 up to `lowrank.FLOAT64_ITEMS` items and float32 beyond. The rounds start at the low-rank solution
    with a free diagonal. Raises NumericalError if the system is not positive definite or the factors are not finite.
    """
    on = system(X, p.p, p.lam)
    U, V = admm(on, top_eigenvectors(on, p.embedding_dim, seed), p.omega, p.iterations)[:2]
    if not (np.isfinite(U).all() and np.isfinite(V).all()):
        raise NumericalError(f"edlae-low-rank: the factors are not finite with {p}; raise lam or omega")
    scale = 1 / (1 - p.p)
    return on.model(X.shape[1], scale * U, V, -scale * _diagonal(U, V))


def admm(on: System, V: np.ndarray, omega: float, iterations: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return U, V, beta and gamma after `iterations` rounds, starting from an orthonormal V (n, k)."""
    Omega = on.Lam + omega
    beta = _diagonal(regression(on, V), V)
    gamma, z = np.zeros_like(beta), np.zeros_like(beta)
    for _ in range(iterations):
        V, _ = np.linalg.qr(V)  # U is solved for next, so it absorbs the change of basis
        U, z = update_U(on, V, beta, gamma, Omega, z)
        GU = on.G_times(U)
        V = update_V(on, U, GU, beta, gamma, Omega)
        beta = update_beta(on, U, GU, V, gamma, Omega)
        gamma = gamma + _diagonal(U, V) - beta
    return U, V, beta, gamma


def update_U(on: System, V: np.ndarray, beta, gamma, Omega, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the U (n, k) that minimises L for orthonormal V, and z = Ω (diag(UVᵀ) − β + γ), where the next call starts.

    ∂L/∂U = 0 is (G + Λ) U = (G + Λ) diag(1 + β) V − ΛV − diag(z) V, so U = diag(1 + β) V − C (Λ + diag z) V. The resulting
    diag(UVᵀ) must agree with z: (C ∘ VVᵀ + Ω^-1) z = diag(U₀Vᵀ) − β + γ, where U₀ is U at z = 0. This matrix is positive
    definite, and (C ∘ VVᵀ) z = diag(C diag(z) VVᵀ) needs no second (n, n) array.
    """
    n = len(beta)
    U0 = (1 + beta)[:, None] * V - on.C_times(on.Lam[:, None] * V)
    diagonal = np.diagonal(on.C) * _diagonal(V, V) + 1 / Omega
    matrix = LinearOperator((n, n), lambda x: _diagonal(on.C_times(x.reshape(-1, 1) * V), V) + x.ravel() / Omega, dtype=float)
    jacobi = LinearOperator((n, n), lambda x: x.ravel() / diagonal, dtype=float)
    z, unfinished = cg(matrix, _diagonal(U0, V) - beta + gamma, x0=z, rtol=on.tolerance, M=jacobi, maxiter=200)
    if unfinished:
        raise NumericalError("edlae-low-rank: the update of U did not converge in 200 steps; lower omega or raise lam")
    return U0 - on.C_times(z[:, None] * V), z


def update_V(on: System, U: np.ndarray, GU: np.ndarray, beta, gamma, Omega) -> np.ndarray:
    """Return the V (n, k) that minimises L, row by row, from one shared inverse by Sherman-Morrison:

    (Uᵀ(G + Λ)U + Ω_j u_j u_jᵀ) v_j = (1 + β_j) Uᵀ G_j + (Λ_j β_j + Ω_j (β_j − γ_j)) u_j.
    """
    right = (1 + beta)[:, None] * GU + (on.Lam * beta + Omega * (beta - gamma))[:, None] * U
    # A pseudo-inverse is used because the system has solutions even if U has lost rank.
    K = np.linalg.pinv(U.T @ (GU + on.Lam[:, None] * U), rcond=1e-12, hermitian=True)
    free, UK = right @ K, U @ K
    return free - UK * (Omega * _diagonal(free, U) / (1 + Omega * _diagonal(UK, U)))[:, None]


def update_beta(on: System, U: np.ndarray, GU: np.ndarray, V: np.ndarray, gamma, Omega) -> np.ndarray:
    """Return the β (n,) that minimises L; each item has its own equation."""
    weight = _diagonal(U, V)
    return (_diagonal(GU, V) - on.counts + on.Lam * weight + Omega * (weight + gamma)) / (on.counts + on.Lam + Omega)


def _diagonal(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Return diag(ABᵀ)."""
    return np.einsum("ij,ij->i", A, B)
