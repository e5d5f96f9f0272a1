"""What Newton-CG needs of a model: its loss at given parameters, the gradient, Gauss-Newton products and a metric.

The loss is a function of the scores y_ui = p_u · q_i of all pairs: a `QuadraticLoss` of alternating least squares without
weights on interactions. Its second derivative in y_ui is 2 w_u, w = all_weight, for every pair; hence for directions dP and dQ

    dy = dP Qᵀ + P dQᵀ,    the products of its Gauss-Newton matrix are    2 W (dP QᵀQ + P dQᵀQ)    and    2 (Q dPᵀWP + dQ PᵀWP)

(Pu et al., ICML 2024, appendix D), which need Gram matrices but no (n_users, n_items) array. Losses are per interaction. Two
models give P and Q: `VectorsAt`, whose parameters are P and Q, and `TowersAt`, two-layer networks of learned vectors.
Parameters are one flat array: those of the users, then those of the items.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import scipy.sparse as sp

from rankbench.core.errors import NumericalError
from rankbench.solvers.als.half_step import in_chunks, moments, multiply, squares
from rankbench.solvers.als.quadratic_loss import QuadraticLoss


class PairLoss:
    """The loss of scores P Qᵀ on X (n_users, n_items) 0/1, per interaction."""

    def __init__(self, X: sp.csr_array, loss: QuadraticLoss, dtype: type):
        self.total = max(X.nnz, 1)
        self.X = sp.csr_array((np.ones(X.nnz, dtype), X.indices, X.indptr), X.shape)
        self.Xt = self.X.T.tocsr()
        self.constant = loss.constant / self.total
        parts = loss.all_weight, loss.all_target, loss.target, loss.reg_users, loss.reg_items
        self.weight, self.all_target, self.target, self.reg_users, self.reg_items = (
            (part / self.total).astype(dtype)[:, None] for part in parts
        )


class PairsAt:
    """The loss at P (n_users, K) and Q (n_items, K), and its derivatives with respect to P and Q."""

    def __init__(self, pairs: PairLoss, P: np.ndarray, Q: np.ndarray):
        self.pairs, self.P, self.Q = pairs, P, Q
        self.sums = pairs.X @ Q  # (n_users, K), the sums over each user's items
        self.gram_P, self.sum_P = moments(P, pairs.weight[:, 0], pairs.all_target[:, 0])
        self.gram_Q, self.sum_Q = moments(Q, None, None)
        over_all = np.sum(self.gram_P * self.gram_Q) - 2 * self.sum_P @ self.sum_Q
        over_interactions = -2 * np.einsum("uk,uk,uz->", P, self.sums, pairs.target, dtype=np.float64, optimize=False)
        ridge = pairs.reg_users[:, 0] @ squares(P) + pairs.reg_items[:, 0] @ squares(Q)
        self.loss = float(over_all + over_interactions + ridge + pairs.constant)

    def gradient(self) -> tuple[np.ndarray, np.ndarray]:
        by_P, by_Q = self.within(self.P, self.Q)
        by_P -= 2 * (self.pairs.all_target * self.sum_Q.astype(by_P.dtype) + self.pairs.target * self.sums)
        by_Q -= 2 * (self.sum_P.astype(by_Q.dtype) + self.pairs.Xt @ (self.pairs.target * self.P))
        return by_P, by_Q

    def product(self, dP: np.ndarray, dQ: np.ndarray, damping: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        """The Gauss-Newton matrix, plus `damping` times its blocks of single users and items, times (dP, dQ)."""
        by_P, by_Q = self.within((1 + damping) * dP, (1 + damping) * dQ)
        by_P += 2 * self.pairs.weight * _times(self.P, _cross(dQ, self.Q))
        by_Q += 2 * _times(self.Q, _cross(dP * self.pairs.weight, self.P))
        return by_P, by_Q

    def within(self, dP: np.ndarray, dQ: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The blocks of single users and items, 2 (w_u QᵀQ + reg_u I) and 2 (PᵀWP + reg_i I), times (dP, dQ)."""
        pairs = self.pairs
        by_P = 2 * (pairs.weight * _times(dP, self.gram_Q) + pairs.reg_users * dP)
        return by_P, 2 * (_times(dQ, self.gram_P) + pairs.reg_items * dQ)


class VectorsAt:
    """Matrix factorisation at one value of its parameters, P (n_users, K) and Q (n_items, K). `loss` is per interaction and
    includes the regularisers.

    The metric M, which approximates the diagonal of the Gauss-Newton matrix G, has the blocks of G of single users and items;
    relative to it no eigenvalue of G exceeds 2.
    """

    def __init__(self, pairs: PairLoss, dim: int, values: np.ndarray):
        self.n_users, self.dim = pairs.X.shape[0], dim
        self.P, self.Q = self.split(values)
        self.at = PairsAt(pairs, self.P, self.Q)
        self.loss = self.at.loss

    def split(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows = values.reshape(-1, self.dim)
        return rows[: self.n_users], rows[self.n_users :]

    def gradient(self) -> np.ndarray:
        return _flat(*self.at.gradient())

    def product(self, d: np.ndarray, damping: float) -> np.ndarray:
        """(G + damping · M) d."""
        return _flat(*self.at.product(*self.split(d), damping))

    def divide(self, r: np.ndarray) -> np.ndarray:
        """M⁻¹ r, and zero where M is zero."""
        sides = zip(self.split(r), self.inverses, strict=True)
        return _flat(*(_times(_times(rows, basis) * inverse, basis.T) for rows, (basis, inverse) in sides))

    @cached_property
    def inverses(self) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
        at, pairs = self.at, self.at.pairs
        return _eigen_inverse(at.gram_Q, pairs.weight, pairs.reg_users), _eigen_inverse(at.gram_P, 1, pairs.reg_items)


@np.errstate(over="ignore", invalid="ignore")
def beside_best_users(pairs: PairLoss, items: np.ndarray) -> np.ndarray:
    """The parameters of `VectorsAt` with these items and the users that minimise the loss for them; a user without interactions
    gets zeros.

    Raises NumericalError if the products of the item vectors overflow.
    """
    n_users, dim = pairs.X.shape[0], items.shape[1]
    point = VectorsAt(pairs, dim, _flat(np.zeros((n_users, dim), items.dtype), items))
    if not np.isfinite(point.at.gram_Q).all():
        raise NumericalError(f"the products of the initial vectors overflow {items.dtype}: lower init_scale")
    # For fixed items the metric is the whole second derivative, so one step reaches the minimum.
    users, _ = point.split(point.divide(-point.gradient()))
    return _flat(users, items)


def _eigen_inverse(gram: np.ndarray, weight: np.ndarray | int, reg: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The eigenbasis of `gram` and the inverses of 2 (weight_r gram + reg_r I) in it, (n_rows, K); zero where singular."""
    spectrum, basis = np.linalg.eigh(gram)
    curvature = 2 * (weight * np.maximum(spectrum, 0).astype(reg.dtype) + reg)
    floor = 10 * len(gram) * np.finfo(reg.dtype).eps * curvature.max(axis=1, keepdims=True)
    return basis, np.divide(1, curvature, out=np.zeros_like(curvature), where=curvature > floor)


class Tower:
    """One side's network: rows E (n_rows, K) → relu(E A + a) B + b, with `hidden` units. Parameters: E, A, a, B, b, flat."""

    def __init__(self, n_rows: int, dim: int, hidden: int):
        self.shapes = ((n_rows, dim), (dim, hidden), (hidden,), (hidden, dim), (dim,))
        self.ends = np.cumsum([np.prod(shape) for shape in self.shapes])
        self.size = int(self.ends[-1])

    def split(self, values: np.ndarray) -> list[np.ndarray]:
        parts = np.split(values, self.ends[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def start(self, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Weights as He et al. (ICCV 2015) start them; biases zero."""
        _, (dim, hidden), *_ = self.shapes
        A = rng.standard_normal((dim, hidden)) * np.sqrt(2 / dim)
        B = rng.standard_normal((hidden, dim)) / np.sqrt(hidden)
        return _flat(rows, A, np.zeros(hidden), B, np.zeros(dim)).astype(rows.dtype)


class TowerAt:
    """The network's outputs (n_rows, K), and products with its Jacobian J."""

    def __init__(self, tower: Tower, values: np.ndarray):
        self.tower = tower
        self.E, self.A, a, self.B, b = tower.split(values)
        before = _times(self.E, self.A) + a
        self.on = before > 0
        self.hidden = before * self.on
        self.out = _times(self.hidden, self.B) + b

    def forward(self, d: np.ndarray) -> np.ndarray:
        """J d, (n_rows, K), for d (size,)."""
        dE, dA, da, dB, db = self.tower.split(d)
        inner = (_times(dE, self.A) + _times(self.E, dA) + da) * self.on
        return _times(inner, self.B) + _times(self.hidden, dB) + db

    def backward(self, out: np.ndarray) -> np.ndarray:
        """Jᵀ out, (size,), for out (n_rows, K)."""
        inner = _times(out, self.B.T) * self.on
        of_weights = _cross(self.E, inner), inner.sum(axis=0), _cross(self.hidden, out), out.sum(axis=0)
        return _flat(_times(inner, self.A.T), *of_weights).astype(out.dtype)

    def curvature(self, weight: np.ndarray, gram: np.ndarray) -> np.ndarray:
        """Approximate diagonal of Jᵀ H J, (size,), where H is weight_r · gram for the outputs of row r; weight is (n_rows, 1).

        Curvatures are propagated back through squared weights, as if units did not interact (Becker and LeCun, 1988).
        """
        of_outputs = np.maximum(np.diag(gram), 0)
        inner = weight * self.on * np.maximum(np.einsum("hk,kl,hl->h", self.B, gram, self.B), 0).astype(weight.dtype)
        rows = _times(inner, np.square(self.A).T)
        A, B = _cross(np.square(self.E), inner), np.outer((weight * np.square(self.hidden)).sum(axis=0), of_outputs)
        return _flat(rows, A, inner.sum(axis=0), B, weight.sum() * of_outputs).astype(weight.dtype)


class TowersAt:
    """As `VectorsAt`, for a network of users and one of items, with the penalty lam ‖parameters‖² on the whole loss. The metric
    is diagonal: the `curvature` of each tower and that of the penalty.
    """

    def __init__(self, pairs: PairLoss, users: Tower, items: Tower, lam: float, values: np.ndarray):
        self.n, self.reg, self.values = users.size, lam / pairs.total, values
        self.users, self.items = TowerAt(users, values[: self.n]), TowerAt(items, values[self.n :])
        self.P, self.Q = self.users.out, self.items.out
        self.at = PairsAt(pairs, self.P, self.Q)
        self.loss = self.at.loss + self.reg * float(np.einsum("n,n->", values, values, dtype=np.float64))

    def gradient(self) -> np.ndarray:
        return self._back(*self.at.gradient()) + 2 * self.reg * self.values

    def product(self, d: np.ndarray, damping: float) -> np.ndarray:
        dy = self.at.product(self.users.forward(d[: self.n]), self.items.forward(d[self.n :]))
        return self._back(*dy) + 2 * self.reg * d + damping * self.metric * d

    def divide(self, r: np.ndarray) -> np.ndarray:
        return np.divide(r, self.metric, out=np.zeros_like(r), where=self.metric > 0)

    @cached_property
    def metric(self) -> np.ndarray:
        weight = self.at.pairs.weight
        users = self.users.curvature(weight, self.at.gram_Q)
        items = self.items.curvature(np.ones((len(self.Q), 1), weight.dtype), self.at.gram_P)
        return 2 * (np.concatenate([users, items]) + weight.dtype.type(self.reg))

    def _back(self, by_P: np.ndarray, by_Q: np.ndarray) -> np.ndarray:
        return np.concatenate([self.users.backward(by_P), self.items.backward(by_Q)])


def _flat(*parts: np.ndarray) -> np.ndarray:
    return np.concatenate([part.ravel() for part in parts])


def _times(rows: np.ndarray, small: np.ndarray) -> np.ndarray:
    return multiply(rows, small.astype(rows.dtype), np.empty((len(rows), small.shape[1]), rows.dtype))


def _cross(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """leftᵀ right (K, L) float64, for long and thin arrays."""
    total = np.zeros((left.shape[1], right.shape[1]))
    for part in in_chunks(lambda rows: left[rows].T @ right[rows], len(left)):
        total += part
    return total
