"""Methods: their parameters, and how a model is computed from data, in one of three shapes.

A `ClosedForm` inverts a shifted Gram, a `Direct` method is fitted in one call, and an `Iterative` one in steps.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import scipy.sparse as sp

from rankbench.core.errors import DataError, require, shown
from rankbench.core.params import P, parameters, used_names
from rankbench.core.registry import Registry
from rankbench.fitting.checkpoints import State
from rankbench.fitting.context import Context
from rankbench.fitting.recommenders import Recommender
from rankbench.fitting.step import Steps
from rankbench.fitting.stopping import Stopping

F = TypeVar("F", bound=Callable[..., Any])
METHODS: Registry[Method] = Registry("method")
LARGEST = 2**31 - 1  # of the whole numbers among parameters


def sized_parameters(cls: type[P], values: Mapping[str, Any], source: str) -> P:
    """As `parameters`. Raises ConfigError also for a whole number that no array could have as a size."""
    p = parameters(cls, values, source)
    for name, value in vars(p).items():
        fits = not isinstance(value, int) or value <= LARGEST
        require(fits, f"{source}: {name} must be at most {LARGEST}, got {shown(value)}")
    return p


def require_interactions(X: sp.csr_array) -> None:
    """Raise DataError if X has no interactions."""
    if not X.nnz:
        raise DataError("the training data has no interactions: there is nothing to fit")


class Shift(NamedTuple):
    """The system C = (G + odds · diag(G) + ridge · I)^-1. Configurations with equal shifts share one inverse."""

    odds: float
    ridge: float


@dataclass(frozen=True, kw_only=True)
class Method:
    """Base of all methods.

    `identity(p)`: configurations with equal identities have the same ranking. `redundant`: names of parameters that change no
    ranking where the identity stays the same, for the given `reason`. `seeded`: the seed changes the model, so that fits with
    several seeds differ. `draws_users`: what a user gets is drawn for the user's row, so that it changes with the order of the
    users. `folds`: the method scores users who were not fitted, from their history. `pace`: the time of a fit relative to most
    methods of the same shape, for estimates before a run. `families`: the groups of methods that it belongs to
    (`fitting/families.py`).
    """

    name: str
    params: type
    title: str
    source: str
    families: tuple[str, ...] = ()
    identity: Callable[[Any], Hashable] | None = None
    redundant: tuple[str, ...] = ()
    reason: str = ""
    seeded: bool = False
    folds: bool = True
    draws_users: bool = False
    pace: float = 1.0

    @property
    def distributed(self) -> bool:
        """Whether the work is divided into blocks or tiles for a cluster."""
        return False

    @property
    def on_device(self) -> bool:
        """Whether the work can be done on a GPU."""
        return False

    @property
    def dense(self) -> bool:
        """Whether a fit needs a matrix (n_items, n_items)."""
        return False

    @property
    def by_workers(self) -> bool:
        """Whether several workers can make the steps of a fit together."""
        return False

    def why_alone(self, p: Any) -> str:
        """Return why a fit with `p` cannot be divided among workers, as a clause; empty if it can."""
        return "" if self.by_workers else "it is not trained by gradient steps on the vectors of an encoder"

    @property
    def cost(self) -> str:
        """Which formula estimates the time and memory of a fit (`experiment/estimate.py`)."""
        return "low-rank" if self.dense else "plain"

    @property
    def own(self) -> tuple[str, ...]:
        """The names of the parameters that are shown first."""
        return tuple(field.name for field in self.fields())

    def searched(self, p: Any) -> tuple[str, ...]:
        """Return the names of the flat parameters that a search of the method with `p` may try."""
        return self.own

    def share_key(self, p: Any) -> Hashable:
        """Return a key: configurations with equal keys are fitted together from one inverse. None: fitted separately."""
        return None

    def by_encoder(self) -> dict[str, set[str]]:
        """Return the encoders that the method trains, each with the names of its parameters."""
        return {}

    def identity_of(self, p: Any) -> Hashable:
        return self.identity(p) if self.identity else (self.name, dataclasses.astuple(p))

    def scores_new_users(self, p: Any) -> bool:
        """Return whether a model with `p` scores users who were not fitted."""
        return self.folds

    def helper_columns(self, p: Any) -> int:
        """Return how many of the last columns of a model's factors are not part of its vectors."""
        return 0

    def stopping(self, p: Any) -> Stopping | None:
        """Return when a fit with `p` ends early, by a metric on the validation set; None if it never does."""
        return None

    def nested(self, p: Any) -> bool:
        """Return whether a shorter fit with `p` is the beginning of a longer one, so that a length found by stopping early on
        one part can be used for a fit on another part.
        """
        return True

    # A configuration is written flat, name by name, on the command line, in experiment files and in records.

    def fields(self) -> tuple[dataclasses.Field[Any], ...]:
        """Return the flat parameters as dataclass fields, with `help` and `search` in their metadata."""
        return dataclasses.fields(self.params)

    def configure(self, values: Mapping[str, Any], source: str) -> Any:
        """Return the parameters from flat values. Raises ConfigError with `source` and the name of the parameter."""
        return sized_parameters(self.params, values, source)

    def flat(self, p: Any) -> dict[str, Any]:
        """Return the flat values of parameters, the reverse of `configure`."""
        return dataclasses.asdict(p)

    def used(self, p: Any) -> tuple[str, ...]:
        """Return the names of the flat parameters that a fit with `p` reads."""
        return used_names(p)


@dataclass(frozen=True, kw_only=True)
class ClosedForm(Method):
    """`shift(p)` is the shift of the Gram to invert; `columns(diag_C, counts, p)` returns the vectors (beta, alpha) of
    W = C diag(beta) + diag(alpha).
    """

    shift: Callable[[Any], Shift]
    columns: Callable[[np.ndarray, np.ndarray, Any], tuple[np.ndarray, np.ndarray]]
    distributed = on_device = dense = True
    cost = "inverse"

    def share_key(self, p: Any) -> Shift:
        return self.shift(p)


@dataclass(frozen=True, kw_only=True)
class Direct(Method):
    """`fit(X, p, seed)` returns the model; `holds_matrix` says whether it needs a matrix (n_items, n_items). `sparse`: the
    model has at most `neighbours` weights per item, a parameter.
    """

    fit: Callable[[sp.csr_array, Any, int], Recommender]
    holds_matrix: bool = False
    sparse: bool = False

    @property
    def dense(self) -> bool:
        return self.holds_matrix

    @property
    def cost(self) -> str:
        return "columns" if self.sparse else super().cost


@dataclass(frozen=True, kw_only=True)
class Iterative(Method):
    """`steps(X, p, seed, dtype, context, start)` yields the iterations, from the state `start` if it is given.

    `quadratic_loss(counts, p)`: the loss that alternating least squares minimises; None for other methods. `length`: name of
    the parameter with the number of iterations. A checkpoint is due every `save_every` seconds; 0: after each iteration.
    """

    steps: Callable[[sp.csr_array, Any, int, type, Context, State | None], Steps]
    quadratic_loss: Callable[[Any, Any], Any] | None = None
    length: str = "iterations"
    save_every: float = 0.0

    @property
    def distributed(self) -> bool:
        return self.quadratic_loss is not None

    @property
    def cost(self) -> str:
        return "als" if self.quadratic_loss else "iterative"

    def limit(self, p: Any) -> int:
        """Return the maximum number of iterations of a fit with `p`."""
        return self.flat(p)[self.length]

    def stopping(self, p: Any) -> Stopping | None:
        return p if p.patience > 0 else None


def direct(name: str, params: type, **about: Any) -> Callable[[F], F]:
    """Register the decorated function as `fit` of a Direct method."""
    return METHODS.decorator(name, lambda function: Direct(name=name, params=params, fit=function, **about))


def closed_form(name: str, params: type, *, shift: Callable[[Any], Shift], **about: Any) -> Callable[[F], F]:
    """Register the decorated function as `columns` of a ClosedForm that inverts the Gram shifted by `shift`."""
    return METHODS.decorator(
        name, lambda function: ClosedForm(name=name, params=params, shift=shift, columns=function, **about)
    )


def iterative(name: str, params: type, **about: Any) -> Callable[[F], F]:
    """Register the decorated function as `steps` of an Iterative method."""
    return METHODS.decorator(name, lambda function: Iterative(name=name, params=params, steps=function, **about))
