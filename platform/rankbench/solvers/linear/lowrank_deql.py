r"""Low-rank DEQL: the expected loss under rank(W) ≤ k, in closed form, for equal emphases (Guo et al., ICLR 2026, Eq. 34 and
35).

$$W = \Sigma_{xx}^{-1/2} \bigl[\Sigma_{xx}^{-1/2} \Sigma_{xy}\bigr]_k, \qquad
[\,\cdot\,]_k \text{ the truncated singular value decomposition}$$

For a = b, $H^{(i)}$ is one matrix for all columns: with q = 1−p and D = diag(G), $\Sigma_{xx} = q^2b^2(G + \frac{p}{q} D +
\lambda I) = q^2b^2 C^{-1}$ and $\Sigma_{xy} = qb^2 G$. Here λ is added to the Gram matrix (the ridge of the loss is $\lambda
q^2b^2$), so b cancels. With p = λ = 0 this is PureSVD.

No square root is needed. Right singular vectors $V_k$ of $\Sigma_{xx}^{-1/2} \Sigma_{xy}$ are eigenvectors of
$\Sigma_{xy}^\top \Sigma_{xx}^{-1} \Sigma_{xy} \propto GCG$, and
$W = \Sigma_{xx}^{-1} \Sigma_{xy} V_k V_k^\top = \frac{1}{q} CG V_k V_k^\top$, where $CG V = V - C \Lambda V$.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from rankbench.core.params import Fixed, Params, Range, param
from rankbench.fitting.method import direct
from rankbench.fitting.recommenders import LowRankRecommender
from rankbench.solvers.inverse.lowrank import System, system, top_eigenvectors


@dataclass(frozen=True)
class LowRankDEQL(Params):
    embedding_dim: int = param(64, "rank k of the weights; at most the number of items is used", Fixed("not published"), gt=0)
    p: float = param(0.5, "dropout probability", Range(0.1, 0.9), ge=0, lt=1)
    lam: float = param(10.0, "ridge λ added to the Gram matrix", Range(0, 500, log=True), ge=0)


def regression(on: System, V: np.ndarray) -> np.ndarray:
    """CG V (n, k), the best U for W = UVᵀ, V orthonormal, when the diagonal is free."""
    return V - on.C_times(on.Lam[:, None] * V)


@direct(
    "deql-low-rank",
    LowRankDEQL,
    families=("linear",),
    title="Low-rank DEQL: equal emphases a = b, weights of rank k",
    source="Guo et al., ICLR 2026, Eq. 35",
    holds_matrix=True,
)
def lowrank_deql(X: sp.csr_array, p: LowRankDEQL, seed: int) -> LowRankRecommender:
    """Fit by one inverse in O(n_items³) time and Lanczos steps of O(n_items²) each, whose number is a few multiples of k.

    The inverse is float64 up to `lowrank.FLOAT64_ITEMS` items and float32 beyond, where eigenvalues are found up to a relative
    residual of 1e-4. `seed` draws the start vector of Lanczos and changes nothing beyond that. Raises NumericalError when the
    system is not positive definite or Lanczos does not converge.
    """
    on = system(X, p.p, p.lam, invert=p.p > 0 or p.lam > 0)
    V = top_eigenvectors(on, p.embedding_dim, seed)
    return on.model(X.shape[1], regression(on, V) / (1 - p.p), V, np.zeros(len(V)))
