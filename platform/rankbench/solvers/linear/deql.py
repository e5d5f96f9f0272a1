r"""DEQL: the expected loss of EDLAE solved for every emphasis b > 0 (Guo et al., ICLR 2026, Eq. 9, 16 and 17), in O(n²).

Δ drops entries with probability p, and A is a where an entry is dropped and b where it is kept:

$$\min_W \; \mathbb{E}\, \lVert A \circ (X - (\Delta \circ X) W) \rVert^2$$ (deql)

$$\min_W \; \mathbb{E}\, \lVert A \circ (X - (\Delta \circ X) W) \rVert^2 + \lambda \lVert W \rVert^2$$ (deql-l2)

$$\min_W \; \mathbb{E}\, \lVert A \circ (X - (\Delta \circ X) W) \rVert^2 + \lambda \lVert W \rVert^2 \quad\text{with}\quad
\operatorname{diag}(W) = 0$$ (deql-l2-zero-diag)

With q = 1 − p, $h_1 = qpa^2 + q^2b^2$, $h_2 = q h_1$, $c = p(a^2 - b^2)$, G = XᵀX, d = diag(G), S = G − diag(d), column i
solves $(H_0 + e_1 \mathrm{e}_i^\top + \mathrm{e}_i e_2^\top) W_i = v$ with $H_0 = h_2 S + h_1 \operatorname{diag}(d) + \lambda
I$ and $e_1, e_2, v \in \operatorname{span}\{\mathrm{e}_i, S_i\}$. $H_0 C_i = \mathrm{e}_i$ for $C = H_0^{-1}$ gives $C S_i =
(\mathrm{e}_i - \mu C_i)/h_2$, $\mu = h_1 d_i + \lambda$: everything lies in span{$\mathrm{e}_i, C_i$}, and the column $W_i =
\text{beta}_i C_i + \text{alpha}_i \mathrm{e}_i$ takes a few scalars, where the second phase of the paper takes O(n²) per
column.

Only b/a and λ/a² matter. On the scale of the Gram matrix the ridge is λ' = λ/h₂. Configurations with equal (p, λ') share one
inverse, so a grid over b at fixed `lam_prime` costs no more. With a zero diagonal b only rescales λ: it is EDLAE with λ'.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rankbench.core.errors import require
from rankbench.core.params import Fixed, Params, Range, param
from rankbench.fitting.method import Shift, closed_form
from rankbench.solvers.linear.edlae import edlae

P, A, B = "dropout probability", "emphasis on dropped entries; only b/a matters", "emphasis on kept entries"
SMALLEST, LARGEST = 1e-100, 1e100  # emphases whose squares are numbers


@dataclass(frozen=True)
class DEQL(Params):
    p: float = param(0.5, P, Range(0.1, 0.9), gt=0, lt=1)
    a: float = param(1.0, A, Fixed(1), gt=SMALLEST, lt=LARGEST)
    b: float = param(0.5, f"{B}; b = 0 is edlae", Range(0.1, 2), gt=0, lt=LARGEST)

    lam = 0.0


@dataclass(frozen=True)
class DEQLL2(Params):
    p: float = param(0.5, P, Range(0.1, 0.9), ge=0, lt=1)
    a: float = param(1.0, A, Fixed(1), gt=SMALLEST, lt=LARGEST)
    b: float = param(0.5, B, Range(0.1, 2), ge=0, lt=LARGEST)
    lam: float | None = param(None, "ridge λ of Eq. 14 of the paper; 10 if neither is given", Range(10, 500), gt=0)
    lam_prime: float | None = param(
        None,
        "ridge λ/h2 added to the Gram matrix; given instead of lam, all values of b share one inverse",
        Range(1, 500),
        gt=0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(_h(self)[0] > 0, "with p = 0 and b = 0 there is no loss: raise one of them")
        require(self.lam is None or self.lam_prime is None, "give lam or lam_prime, not both: lam_prime is lam/h2")


def _h(p) -> tuple[float, float]:
    """h1, h2: the weights of diag(G) and of S in H0."""
    q = 1 - p.p
    h1 = q * p.p * p.a**2 + q**2 * p.b**2
    return h1, q * h1


def ridge(p: DEQL | DEQLL2) -> float:
    """λ' = λ/h2."""
    if isinstance(p, DEQLL2) and p.lam_prime is not None:
        return p.lam_prime
    lam = 10.0 if p.lam is None else p.lam
    return lam / _h(p)[1]


def shift(p: DEQL | DEQLL2) -> Shift:
    """H0 = h2 (G + p/(1−p) diag(G) + λ'I)."""
    return Shift(p.p / (1 - p.p), ridge(p))


def _identity(p: DEQL | DEQLL2) -> tuple:
    # Without emphasis on kept entries the diagonal is zero at the minimum: b = 0 is EDLAE.
    if p.b == 0:
        return ("edlae", p.p, ridge(p))
    # Without dropout no entry is emphasised over others. Equal emphases are DLAE, whose identity is written the same way.
    return ("deql", p.p, ridge(p), p.b / p.a if p.p > 0 else 1.0)


def columns(diag_C: np.ndarray, counts: np.ndarray, p: DEQL | DEQLL2) -> tuple[np.ndarray, np.ndarray]:
    """Return beta, alpha (n_items,) of W = C diag(beta) + diag(alpha), for C = (G + p/(1−p) diag(G) + λ'I)^-1.

    A vector x eᵢ + y C_i is the pair (x, y); Sherman-Morrison is applied twice in these coordinates, for all columns.
    """
    q, d = 1 - p.p, counts
    h1, h2 = _h(p)
    c = p.p * (p.a**2 - p.b**2)
    mu = h1 * d + ridge(p) * h2
    t = diag_C / h2  # C here is h2 times the H0^-1 of the derivation

    def value_i(v):  # eᵢᵀ v
        return v[0] + v[1] * t

    def e2_dot(v):  # e2ᵀ v; e2ᵀ eᵢ = 0
        return v[1] * (-(q**2) * c * (1 - mu * t) / h2)

    def minus(u, factor, v):
        return u[0] - factor * v[0], u[1] - factor * v[1]

    zero = np.zeros_like(d)
    H0_e1 = (zero - q**2 * c / h2, -q * c * d + q**2 * c * mu / h2)
    H0_ei = (zero, zero + 1)
    H0_v = (zero + h1 / h2, q * p.b**2 * d - h1 * mu / h2)

    def plus_e1(v):  # (H0 + e1 eᵢᵀ)^-1, given v = H0^-1 (...)
        return minus(v, value_i(v) / (1 + value_i(H0_e1)), H0_e1)

    y, z = plus_e1(H0_v), plus_e1(H0_ei)
    alpha, beta = minus(y, e2_dot(y) / (1 + e2_dot(z)), z)
    return beta / h2, alpha


for name, params, title in (
    ("deql", DEQL, "DEQL: every emphasis b > 0, no ridge"),
    ("deql-l2", DEQLL2, "DEQL(L2): every emphasis b, with ridge"),
):
    about = {"families": ("linear",), "title": title, "source": "Guo et al., ICLR 2026, Eq. 9 and 16"}
    closed_form(name, params, shift=shift, identity=_identity, **about)(columns)


@closed_form(
    "deql-l2-zero-diag",
    DEQLL2,
    shift=shift,
    identity=lambda p: ("edlae", p.p, ridge(p)),
    redundant=("b", "a"),
    reason="with a zero diagonal every configuration is an EDLAE with the ridge lam_prime",
    families=("linear",),
    title="DEQL(L2+zero-diag): with ridge and a zero diagonal",
    source="Guo et al., ICLR 2026, Eq. 17",
)
def zero_diagonal(diag_C: np.ndarray, counts: np.ndarray, p: DEQLL2) -> tuple[np.ndarray, np.ndarray]:
    """Return beta, alpha (n_items,): without row and column i, H loses e1 and e2, which leaves the system of EDLAE with λ'."""
    return edlae(diag_C, counts, p)
