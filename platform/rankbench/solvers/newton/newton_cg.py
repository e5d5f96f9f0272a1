r"""RG² by Newton-CG: Gauss-Newton steps, each solved by conjugate gradients (Pu et al., ICML 2024, appendix D).

$$\sum_R \Bigl(-y_{ui} + \frac{1}{2N} \lVert y_u + 1 \rVert^2\Bigr) + \text{ridge}, \qquad y_{ui} = p_u \cdot q_i$$ (rg2-newton)

$$\begin{aligned}
& \sum_R \Bigl(-y_{ui} + \frac{1}{2N} \lVert y_u + 1 \rVert^2\Bigr) + \lambda \lVert \text{parameters} \rVert^2, \\
& p_u = \operatorname{ReLU}(e_u A + a) B + b, \qquad q_i \text{ by a tower of its own} \end{aligned}$$ (rg2-newton-mlp)

An iteration solves $(G + \mu M) d = -g$ for all data at once, where g is the gradient, G the Gauss-Newton matrix and M its
metric, all defined in `gauss_newton.py`. Conjugate gradients, preconditioned by M, stop at `cg_tolerance` times the length of
the gradient, both in the metric M⁻¹. A line search halves d until the loss decreases by Armijo's rule; the damping μ depends on
how well the quadratic model predicted that decrease. The loss never rises; if rounding prevents every step from lowering it,
the fit ends.

`rg2-newton` minimises the same loss as `rg2` does by alternating least squares, so their losses can be compared.
`rg2-newton-mlp` scores by two-layer towers, which least squares cannot fit, with a plain L2 penalty on all parameters.
Differs from the paper: its Gauss-Newton product is printed times −1/|D|, with a minus between the terms of the items and with
couplings of users and items whose shapes do not fit; here it is derived from the loss.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from rankbench.core.errors import NumericalError
from rankbench.core.params import Fixed, Range, param
from rankbench.core.rng import stream
from rankbench.fitting.checkpoints import State
from rankbench.fitting.context import Context
from rankbench.fitting.method import iterative
from rankbench.fitting.recommenders import FactorRecommender
from rankbench.fitting.step import Step, Steps
from rankbench.fitting.stopping import Stopping
from rankbench.solvers.als.fit import Counts, converged
from rankbench.solvers.factorisation.rg import RG2, rg2
from rankbench.solvers.newton.gauss_newton import PairLoss, Tower, TowersAt, VectorsAt, beside_best_users

Point = VectorsAt | TowersAt
Model = Callable[[np.ndarray], Point]  # of its parameters

ARMIJO = 1e-4  # the fraction of the predicted slope by which a step must lower the loss
HALVINGS = 30  # the most in one line search; near the saddle at zero G is almost zero, and d much too long
DAMPING = 1.0  # initial damping; relative to the metric M the largest eigenvalue of G is about 2
# P and Q can be transformed against each other without changing the loss, so G without damping has no inverse.
LEAST_DAMPING = 1e-6


@dataclass(frozen=True)
class NewtonParams(Stopping):
    embedding_dim: int = param(64, "dimension of the user and item vectors", Range(16, 512), gt=0)
    iterations: int = param(30, "number of Gauss-Newton steps", Range(10, 100), gt=0)
    cg_steps: int = param(20, "largest number of conjugate-gradient steps per iteration", Range(5, 50), gt=0)
    cg_tolerance: float = param(
        0.1, "conjugate gradients stop at this fraction of the gradient's length", Range(0.01, 0.5), gt=0, lt=1
    )
    init_scale: float = param(
        0.1, "vectors start normal with standard deviation init_scale / √embedding_dim", Range(0.01, 1), gt=0
    )
    tolerance: float = param(
        0.0, "stop when an iteration lowers the loss by a smaller fraction than this; 0: never stop early", Fixed(0), ge=0
    )


@dataclass(frozen=True)
class RG2Newton(NewtonParams):
    lam: float = param(0.01, "ridge λ as in rg2", Range(0, 1, log=True), ge=0)
    regulariser: Literal["weighted", "product"] = param(
        "weighted", "regulariser of the vectors by their weights (weighted), or of the scores (product)", Fixed("weighted")
    )


@dataclass(frozen=True)
class RG2NewtonMLP(NewtonParams):
    hidden_dim: int = param(64, "number of hidden units per tower", Range(32, 256), gt=0)
    lam: float = param(1.0, "weight of ‖parameters‖², relative to the sum of the loss over interactions", Range(0.1, 100), ge=0)


def pair_loss(X: sp.csr_array, lam: float, regulariser: str, dtype: type) -> PairLoss:
    """The loss of RG² on X (n_users, n_items), 0/1, per interaction."""
    return PairLoss(X, rg2(Counts.of(X), RG2(lam=lam, regulariser=regulariser)), dtype)


def noise(side: str, n: int, p: NewtonParams, seed: int, dtype: type) -> np.ndarray:
    """Draw the n normal vectors (n, dim) of a side, "users" or "items"."""
    drawn = stream(seed, "newton", side).standard_normal((n, p.embedding_dim), np.float32)
    return (p.init_scale / np.sqrt(p.embedding_dim) * drawn).astype(dtype)


def vectors(X: sp.csr_array, p: RG2Newton, seed: int, dtype: type) -> tuple[Model, np.ndarray]:
    """The model and its initial parameters: as in rg2, items are random, and users minimise the loss for these items."""
    pairs = pair_loss(X, p.lam, p.regulariser, dtype)
    return partial(VectorsAt, pairs, p.embedding_dim), beside_best_users(pairs, noise("items", X.shape[1], p, seed, dtype))


def towers(X: sp.csr_array, p: RG2NewtonMLP, seed: int, dtype: type) -> tuple[Model, np.ndarray]:
    """The model and its initial parameters."""
    sides, rng = [Tower(n, p.embedding_dim, p.hidden_dim) for n in X.shape], stream(seed, "newton", "towers")
    rows = (noise(side, n, p, seed, dtype) for side, n in zip(("users", "items"), X.shape, strict=True))
    start = [tower.start(each, rng) for tower, each in zip(sides, rows, strict=True)]
    return partial(TowersAt, pair_loss(X, 0.0, "weighted", dtype), *sides, p.lam), np.concatenate(start)


def conjugate_gradients(
    product: Callable[[np.ndarray], np.ndarray], divide: Callable[[np.ndarray], np.ndarray], b: np.ndarray, p: NewtonParams
) -> np.ndarray:
    """Solve `product(x)` = b approximately, from x = 0, by at most p.cg_steps steps preconditioned by `divide`."""
    x, r = np.zeros_like(b), b.copy()
    z = divide(r)
    direction, length = z.copy(), float(r @ z)
    enough = p.cg_tolerance**2 * length
    for _ in range(p.cg_steps):
        image = product(direction)
        curvature = float(direction @ image)
        if not curvature > 0:  # only rounding can cause this: the matrix has no direction of negative curvature
            break
        step = length / curvature
        x += step * direction
        r -= step * image
        z = divide(r)
        length, before = float(r @ z), length
        if length <= enough:
            break
        direction *= length / before
        direction += z
    return x


@np.errstate(over="ignore", invalid="ignore")  # no step leads to a loss that is not finite
def step(
    model: Model, values: np.ndarray, point: Point, damping: float, p: NewtonParams
) -> tuple[np.ndarray, Point, float] | None:
    """One iteration from `values`: the new parameters, their point, and the damping; None if no step lowers the loss."""
    g = point.gradient()
    d = conjugate_gradients(lambda v: point.product(v, damping), point.divide, -g, p)
    slope = float(g @ d)
    if not slope < 0:
        return None
    for halvings in range(HALVINGS):
        share = 0.5**halvings
        trial = values + share * d
        candidate = model(trial)
        if candidate.loss < point.loss and candidate.loss <= point.loss + ARMIJO * share * slope:
            break
    else:
        return None
    # Conjugate gradients from zero give a d for which the damped quadratic model predicts a decrease of half the slope.
    predicted = (candidate.loss - point.loss) / (slope / 2)
    if halvings or predicted < 0.25:
        damping *= 4
    elif predicted > 0.75:
        damping = max(damping / 3, LEAST_DAMPING)
    return trial, candidate, damping


def newton_cg(model: Model, values: np.ndarray, p: NewtonParams, begin: State | None = None) -> Steps:
    """Minimise from `values`, or from a saved state. The seconds include the line search, which is part of the method. The
    iterations end if no step lowers the loss, or by the tolerance.

    Raises NumericalError if the loss is not finite at the start; no step leads to a loss that is not.
    """
    number, damping, seconds, losses = 0, DAMPING, 0.0, []
    if begin:
        number, values, damping = begin.number, begin.arrays["values"], begin.values["damping"]
        seconds, losses = begin.values["seconds"], begin.values["losses"]
    with np.errstate(over="ignore", invalid="ignore"):
        point = model(values)
    if not np.isfinite(point.loss):
        raise NumericalError(f"the loss is {point.loss} at the start ({values.dtype}) with {p}: lower init_scale")

    def recommender() -> FactorRecommender:
        return FactorRecommender(np.array(point.P), np.array(point.Q))

    def state() -> State:
        return State(number, {"values": values}, {"damping": damping, "seconds": seconds, "losses": losses})

    yield Step(number, point.loss, seconds, recommender, state)
    while not converged(losses, p.tolerance):
        began = time.perf_counter()
        lower = step(model, values, point, damping, p)
        seconds += time.perf_counter() - began
        if lower is None:
            return
        values, point, damping = lower
        number += 1
        losses.append(point.loss)
        yield Step(number, point.loss, seconds, recommender, state)


def _register(name: str, params: type, build: Callable, title: str, draws_users: bool = False) -> None:
    about = {"title": title, "source": "Pu et al., ICML 2024, appendix D", "families": ("newton", "rg")}

    @iterative(name, params, seeded=True, folds=False, draws_users=draws_users, **about)
    def steps(X: sp.csr_array, p: Any, seed: int, dtype: type, context: Context, start: State | None) -> Steps:
        with threadpool_limits(1, "blas"):  # `half_step.in_chunks`, which is used here too, explains why
            yield from newton_cg(*build(X, p, seed, np.dtype(dtype).type), p, start)


_register("rg2-newton", RG2Newton, vectors, "RG² by Newton-CG: the loss of rg2, with users and items updated together")
_register("rg2-newton-mlp", RG2NewtonMLP, towers, "RG² by Newton-CG on two-layer towers", draws_users=True)
