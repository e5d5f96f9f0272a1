r"""iALS, with a ridge that grows with frequency (Rendle et al., RecSys 2022, Eq. 1 to 3), and without false negatives.

$$\begin{aligned} & \sum_R (1 - p_u \cdot q_i)^2 + \alpha_0 \sum_{u,i} (p_u \cdot q_i)^2 \\
& + \lambda \Bigl(\sum_u (|I_u| + \alpha_0 N)^\nu \lVert p_u \rVert^2
  + \sum_i (|U_i| + \alpha_0 M)^\nu \lVert q_i \rVert^2\Bigr) \end{aligned}$$ (ials)

Debiased iALS is iALS whose negatives exclude the interactions (Jin and Li, arXiv 2023, §3.2), with the ridge of iALS:

$$\sum_R \bigl(c_u (1 - y_{ui})^2 - \alpha_0 c_u y_{ui}^2\bigr) + \alpha_0 \sum_{u,i} y_{ui}^2 + \text{ridge}, \qquad
c_u = \frac{N \tau_u}{|I_u|}, \qquad y_{ui} = p_u \cdot q_i$$ (debiased-ials)

$\tau_u$ is the fraction of items that user u would like: (1 + a) $|I_u|$ / N + extra / N, so a counts unseen positives in
proportion to the known ones, and extra is a constant number of them. With extra = 0, c is the same for all users, and this is
iALS at $\alpha_0' = \alpha_0 / (c (1 - \alpha_0))$ with the ridge divided by c and scores divided by $1 - \alpha_0$ (theorem 1,
corrected): another point of the same family. Users and items without interactions get zero vectors in both.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from rankbench.core.compiler import numba
from rankbench.core.params import Fixed, Range, param
from rankbench.core.rng import stream
from rankbench.fitting.context import Context
from rankbench.fitting.executors import ThreadMap
from rankbench.solvers.als.fit import ALSParams, Counts, als, alternate

ITERATIONS = 8  # of the fit from which training can start
UNKNOWN = 0.1  # length of its random vectors of users and items without interactions


@dataclass(frozen=True)
class IALS(ALSParams):
    alpha0: float = param(0.1, "weight α₀ of every pair", Range(0.001, 1), gt=0)
    lam: float = param(0.003, "ridge λ", Range(0.0003, 0.3), ge=0)
    nu: float = param(1.0, "exponent ν of the frequency in the ridge; 0: the same ridge for all", Fixed(1), ge=0, le=2)


@dataclass(frozen=True)
class DebiasedIALS(IALS):
    alpha0: float = param(0.1, "weight α₀ of every pair", Range(0.001, 1), gt=0, lt=1)  # from 1 on the loss has no minimum
    a: float = param(0.0, "unseen positives per known positive", Range(0, 5), ge=0)
    extra: float = param(0.0, "unseen positives per user", Range(0, 100), ge=0)


def _ridges(n: Counts, p: IALS) -> dict[str, Any]:
    return {
        "reg_users": p.lam * (n.users + p.alpha0 * n.n_items) ** p.nu,
        "reg_items": p.lam * (n.items + p.alpha0 * n.n_fitted) ** p.nu,
    }


@als("ials", IALS, families=("als",), title="iALS: implicit ALS with a ridge by frequency", source="Rendle et al., RecSys 2022")
def ials(n: Counts, p: IALS) -> dict[str, Any]:
    return {"all_weight": p.alpha0, "all_target": 0, "weight": 1, "target": 1, "constant": n.total} | _ridges(n, p)


@als(
    "debiased-ials",
    DebiasedIALS,
    families=("als", "debiased"),
    title="Debiased iALS: iALS without interactions among the negatives",
    source="Jin and Li, arXiv 2023, §3.2",
)
def debiased_ials(n: Counts, p: DebiasedIALS) -> dict[str, Any]:
    c = 1 + p.a + p.extra / n.users.clip(1)
    loss = {"all_weight": p.alpha0, "all_target": 0, "weight": c * (1 - p.alpha0), "target": c}
    return loss | {"constant": float(c @ n.users)} | _ridges(n, p)


def fitted_ials(X: sp.csr_array, dim: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """User vectors (n_users, dim) and item vectors (n_items, dim), float32, of iALS with its default parameters, from which
    training by gradient steps can start.

    Both tables are multiplied by numbers that give their vectors a mean length of 1 and keep the order of the scores. Users and
    items without interactions have zero vectors in iALS, and a cosine with those has no gradient: they get small random ones.
    """
    context = Context(ThreadMap(numba.get_num_threads()))
    steps = alternate(X, ials, IALS(embedding_dim=dim, iterations=ITERATIONS), seed, np.float32, context)
    with threadpool_limits(1, "blas"):
        model = next(islice(steps, ITERATIONS, None)).model()
    steps.close()
    return _scaled(model.U, seed, "users"), _scaled(model.V, seed, "items")


def _scaled(table: np.ndarray, seed: int, name: str) -> np.ndarray:
    length = np.linalg.norm(table, axis=1)
    table = (table / max(float(length.mean()), 1e-12)).astype(np.float32)
    unknown = np.flatnonzero(length == 0)
    noise = stream(seed, "init", "ials", name).standard_normal((len(table), table.shape[1]), np.float32)
    table[unknown] = UNKNOWN / np.sqrt(table.shape[1]) * noise[unknown]
    return table
