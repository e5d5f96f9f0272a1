"""The iterations of alternating least squares: solve for items, then for users, until the loss stops falling.

Items start at random, and users are solved from them, so the order of the users does not matter. An iteration ends with the
users, so with solver=exact a user's vector equals the vector that folding in the same history gives.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Container, Hashable
from dataclasses import dataclass
from functools import wraps
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from rankbench.core.errors import NumericalError
from rankbench.core.params import Fixed, Range, param, used_names
from rankbench.core.rng import stream
from rankbench.fitting.checkpoints import State
from rankbench.fitting.context import Context
from rankbench.fitting.method import METHODS, Iterative
from rankbench.fitting.step import Step, Steps
from rankbench.fitting.stopping import Stopping
from rankbench.solvers.als.fold_in import FoldInRecommender
from rankbench.solvers.als.half_step import HalfStep, objective, of_items, of_users
from rankbench.solvers.als.quadratic_loss import QuadraticLoss


@dataclass(frozen=True)
class ALSParams(Stopping):
    """Parameters that all methods fitted by alternating least squares share."""

    embedding_dim: int = param(64, "dimension of the user and item vectors", Range(16, 512), gt=0)
    iterations: int = param(16, "number of iterations, each of an item step and a user step", Range(1, 50), gt=0)
    solver: Literal["exact", "cg", "subspace"] = param(
        "exact",
        "solver of each row's system: exact, a few steps of conjugate gradients (cg), or one sweep over subspaces as in iALS++",
        Fixed("exact"),
    )
    cg_steps: int = param(
        3, "number of conjugate-gradient steps per row, for solver = cg", Fixed(3), used=lambda p: p.solver == "cg", gt=0
    )
    subspace_dim: Literal[16, 32, 64, 128] = param(
        16, "dimensions that are solved for at a time, for solver = subspace", Fixed(16), used=lambda p: p.solver == "subspace"
    )
    init_scale: float = param(
        0.1, "items start normal with standard deviation init_scale / √embedding_dim", Range(0.01, 1), gt=0
    )
    tolerance: float = param(
        0.0, "stop when an iteration lowers the loss by a smaller fraction than this; 0: never stop early", Fixed(0), ge=0
    )

    @property
    def effort(self) -> int:
        """What `HalfStep.solve` is told: the steps of cg, or the dimension of subspaces."""
        return self.subspace_dim if self.solver == "subspace" else self.cg_steps


@dataclass(frozen=True)
class Counts:
    """What the weights of a loss may depend on: interactions per user (n_users,) and per item (n_items,), float64.

    `X` (n_users, n_items) are the interactions, or None if the users are hypothetical, as in the table for folding in.
    """

    users: np.ndarray
    items: np.ndarray
    X: sp.csr_array | None = None

    @classmethod
    def of(cls, X: sp.csr_array) -> Counts:
        """Those of the interactions X."""
        items = np.bincount(X.indices, minlength=X.shape[1])
        return cls(np.diff(X.indptr).astype(np.float64), items.astype(np.float64), X)

    def over_users(self, values: np.ndarray) -> np.ndarray:
        """Σ values_u over the users u of each item, (n_items,); zeros if X is None."""
        return np.zeros(self.n_items) if self.X is None else self.X.T @ values

    @property
    def n_fitted(self) -> int:
        """Number of users with interactions; held-out users have none, and the model does not depend on them."""
        return int(np.count_nonzero(self.users))

    @property
    def n_items(self) -> int:
        return len(self.items)

    @property
    def total(self) -> float:
        return float(self.users.sum())


def als(name: str, params: type, **about: Any) -> Callable[[Callable], Callable]:
    """Register the decorated function, (Counts, parameters) → coefficients of a QuadraticLoss by name, as a method of
    alternating least squares. A coefficient that is one number holds for all users or items.

    What is returned under the name of the function makes the loss.
    """

    def add(coefficients: Callable[[Counts, Any], dict[str, Any]]) -> Callable[[Counts, Any], QuadraticLoss]:
        @wraps(coefficients)
        def loss_of(n: Counts, p: Any) -> QuadraticLoss:
            given = coefficients(n, p)
            for each in dataclasses.fields(QuadraticLoss):
                if each.name != "constant" and given.get(each.name) is not None:
                    like = n.items if each.name == "reg_items" else n.users
                    given[each.name] = np.full(len(like), given[each.name], np.float64)
            return QuadraticLoss(**given)

        def steps(X: sp.csr_array, p: ALSParams, seed: int, dtype: type, context: Context, start: State | None) -> Steps:
            with threadpool_limits(1, "blas"):  # `half_step.in_chunks` explains why
                yield from alternate(X, loss_of, p, seed, dtype, context, start)

        own = {"identity": identity_of(name)} | about
        method = Iterative(name=name, params=params, steps=steps, quadratic_loss=loss_of, seeded=True, **own)
        METHODS.add(name, method, loss_of.__module__)
        return loss_of

    return add


def identity_of(name: str, without: Container[str] = ()) -> Callable[[Any], Hashable]:
    """The identity of a method's settings by the parameters that a fit reads, apart from some that change no vector."""
    return lambda p: (name, *((each, getattr(p, each)) for each in used_names(p) if each not in without))


def converged(losses: list[float], tolerance: float) -> bool:
    """Whether the last iteration has lowered the loss by a smaller fraction than `tolerance`; never if this is 0."""
    return tolerance > 0 and len(losses) > 1 and losses[-2] - losses[-1] < tolerance * abs(losses[-1])


def alternate(
    X: sp.csr_array,
    loss_of: Callable[[Counts, Any], QuadraticLoss],
    p: ALSParams,
    seed: int,
    dtype: type,
    context: Context,
    start: State | None = None,
) -> Steps:
    """Fit X (n_users, n_items), 0/1. For users and items without interactions see `FoldInRecommender` and the method's file.

    Raises NumericalError when the loss is not finite.
    """
    n_users, n_items = X.shape
    counts = Counts.of(X)
    loss = loss_of(counts, p)
    executor, dim = context.executor, p.embedding_dim
    by_item = X.T.tocsr()
    by_item.sort_indices()
    user_step = HalfStep(X, of_users(loss), dim, dtype, p.solver, executor)
    item_step = HalfStep(by_item, of_items(loss), dim, dtype, p.solver, executor)
    del by_item
    # Users to fold in: one for every possible number of interactions.
    strangers = of_users(loss_of(Counts(np.arange(n_items + 1.0), counts.items), p))
    table = np.column_stack([strangers.w0, strangers.w1, strangers.t0, strangers.t1, strangers.reg])
    if start:
        number, P, Q = start.number, start.arrays["P"], start.arrays["Q"]
        seconds, losses = start.values["seconds"], start.values["losses"]
    else:
        began = time.perf_counter()
        noise = stream(seed, "als", "items").standard_normal((n_items, dim), np.float32)
        # Items have mean zero, which a half step of RG² preserves: RG×, which differs by that mean, equals RG² from the start.
        Q = (p.init_scale / np.sqrt(dim) * (noise - noise.mean(axis=0))).astype(dtype)
        P = user_step.solve(Q, np.zeros((n_users, dim), dtype), p.effort)
        number, seconds, losses = 0, time.perf_counter() - began, []

    def model() -> FoldInRecommender:
        return FoldInRecommender(P, Q, table)

    def state() -> State:
        return State(number, {"P": P, "Q": Q}, {"seconds": seconds, "losses": losses})

    yield Step(number, losses[-1] if losses else math.nan, seconds, model, state)
    while not converged(losses, p.tolerance):
        began = time.perf_counter()
        Q = item_step.solve(P, Q, p.effort)
        P = user_step.solve(Q, P, p.effort)
        number, seconds = number + 1, seconds + time.perf_counter() - began
        losses.append(objective(loss, user_step.blocks, executor, P, Q) / max(X.nnz, 1))
        if not np.isfinite(losses[-1]):
            raise NumericalError(f"the loss is {losses[-1]} in iteration {number} with {p}")
        yield Step(number, losses[-1], seconds, model, state)
