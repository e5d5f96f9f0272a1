"""What a solver is: parameters, and a function from data to a Recommender. A file registers by existing."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from rankbench.fitting import Fitting
from rankbench.recommender import Recommender
from rankbench.registry import Registry

SOLVERS: Registry[Solver] = Registry("method")


class Shift(NamedTuple):
    """The system C = (G + odds · diag(G) + ridge · I)^-1. Settings with equal shifts share one inverse."""

    odds: float
    ridge: float


@dataclass(frozen=True)
class Solver:
    """A registered method. Exactly one of three shapes.

    Closed forms on the Gram give `shift(p)`, which matrix to invert, and `columns(diag_C, counts, p)`, the vectors
    (beta, alpha) of W = C diag(beta) + diag(alpha). Others give `fit(X, p, seed)`, or, where they go by iterations that can
    be watched, saved and shared out, `iterate(X, p, seed, dtype, fitting)`; `problem(counts, p)` is then the loss that
    alternating least squares minimises.
    `identity(p)`: settings with equal identities have the same ranking, whatever their names. `redundant` names
    parameters that cannot change a ranking, and `reason` says why. `seeded`: the seed changes the model, so that several
    seeds are worth a fit each. `dense`: it holds an (n_items, n_items) matrix. `folds`: it scores users who were not fitted,
    from their history. `trained`: by gradient steps, which may end early, by a look at valid; `own` are then the parameters
    of the loss, which the others of training stand beside.

    For the estimates of time and memory before a run: `pace`, the time that a fit takes relative to most methods fitted in
    the same way; `whole_catalogue` and `layers`, as a loss and an encoder declare them.
    """

    name: str
    params: type
    title: str
    source: str
    fit: Callable[[sp.csr_array, Any, int], Recommender] | None = None
    iterate: Callable[[sp.csr_array, Any, int, type, Fitting], Recommender] | None = None
    problem: Callable[[Any, Any], Any] | None = None
    shift: Callable[[Any], Shift] | None = None
    columns: Callable[[np.ndarray, np.ndarray, Any], tuple[np.ndarray, np.ndarray]] | None = None
    identity: Callable[[Any], Hashable] | None = None
    redundant: tuple[str, ...] = ()
    reason: str = ""
    seeded: bool = False
    dense: bool = False
    folds: bool = True
    trained: bool = False
    own: tuple[str, ...] = ()
    pace: float = 1.0
    whole_catalogue: bool = False
    layers: Callable[[Any], int] = lambda p: 0

    @property
    def shares(self) -> bool:
        """Whether its work is cut into blocks that a cluster can take."""
        return self.problem is not None

    @property
    def on_device(self) -> bool:
        """Whether a GPU can do its work: an inverse, or gradient steps."""
        return self.shift is not None or self.trained

    def share_key(self, p: Any) -> Hashable:
        """Settings with equal keys are fitted together, from one inverse; None stands alone."""
        return self.shift(p) if self.shift else None

    def identity_of(self, p: Any) -> Hashable:
        return self.identity(p) if self.identity else (self.name, dataclasses.astuple(p))


def solver(name: str, params: type, **about: Any) -> Callable[[Callable], Callable]:
    """Register the decorated function as `fit` of a method."""

    def add(function: Callable) -> Callable:
        SOLVERS.add(name, Solver(name, params, fit=function, **about))
        return function

    return add


def closed_form(name: str, params: type, *, shift: Callable[[Any], Shift], **about: Any) -> Callable[[Callable], Callable]:
    """Register the decorated function as `columns` of a method that inverts the Gram shifted by `shift`."""

    def add(function: Callable) -> Callable:
        SOLVERS.add(name, Solver(name, params, shift=shift, columns=function, dense=True, **about))
        return function

    return add


def registered() -> Registry[Solver]:
    """The registry, with every file of this room imported."""
    package = __name__.rpartition(".")[0]
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
        importlib.import_module(f"{package}.{module.name}")
    return SOLVERS
