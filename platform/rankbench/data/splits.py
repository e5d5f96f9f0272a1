"""Train, validation and test: the named protocols and what they yield."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from rankbench.data.blocks import csr_from_pairs, union
from rankbench.data.cards import PARTS, SplitSpec
from rankbench.data.interactions import Interactions
from rankbench.errors import DataError
from rankbench.rng import stream

TRAIN, VALID, TEST = range(3)


@dataclass(frozen=True)
class Holdout:
    """What a model is shown and what it must find, row for row.

    `users` (m,) int32; `history` (m, n_items): what they are known to have met, masked in the ranking; `target`
    (m, n_items): what was held out.
    """

    users: np.ndarray
    history: sp.csr_array
    target: sp.csr_array


@dataclass(frozen=True)
class Split:
    """Disjoint 0/1 matrices (n_users, n_items): every interaction lies in exactly one of them."""

    train: sp.csr_array
    valid_target: sp.csr_array
    test_target: sp.csr_array
    protocol: str
    seed: int

    @property
    def n_users(self) -> int:
        return self.train.shape[0]

    @property
    def n_items(self) -> int:
        return self.train.shape[1]

    def fit_matrix(self, on: str) -> sp.csr_array:
        """`train`, or `train+valid` for the final fit of a chosen setting."""
        return {"train": lambda: self.train, "train+valid": lambda: union(self.train, self.valid_target)}[on]()

    def holdout(self, on: str, fitted_on: str) -> Holdout:
        """The `valid` or `test` targets, with the history that a model fitted on `fitted_on` may know."""
        target = {"valid": self.valid_target, "test": self.test_target}[on]
        if on == "valid" and fitted_on != "train":
            raise ValueError("the validation targets are among what the model was fitted on")
        # Items known from validation are masked at test time even where the model was fitted on train alone.
        history = self.train if on == "valid" else self.fit_matrix("train+valid")
        return Holdout(np.arange(self.n_users, dtype=np.int32), history, target)


Protocol = Callable[[Interactions, SplitSpec], np.ndarray]
PROTOCOLS: dict[str, Protocol] = {}


def protocol(name: str) -> Callable[[Protocol], Protocol]:
    """Register a function that labels every interaction TRAIN, VALID or TEST."""

    def add(function: Protocol) -> Protocol:
        PROTOCOLS[name] = function
        return function

    return add


@protocol("published")
def published(data: Interactions, spec: SplitSpec) -> np.ndarray:
    """The parts as their authors cut them."""
    if (data.part == PARTS.index("all")).any():
        raise DataError("split.protocol is published, but the data come in one part, `all`")
    return data.part.copy()


@protocol("random-per-user")
def random_per_user(data: Interactions, spec: SplitSpec) -> np.ndarray:
    """A share `spec.test` of each user's interactions at random, rounded half up; at least one stays in train."""
    labels = np.full(len(data), TRAIN, np.int8)
    chosen = _per_user_share(data.user, spec.test, stream(spec.seed, "split", "test"))
    labels[chosen] = TEST
    return labels


def split(data: Interactions, spec: SplitSpec) -> Split:
    """Label `data` by the protocol, carve validation from train where none came with it, and build the matrices.

    Validation takes a share `spec.valid` of each user's train interactions at random, rounded half up. `data` must be
    sorted: the same interactions then give the same split. Raises DataError when train, validation or test is empty.
    """
    labels = PROTOCOLS[spec.protocol](data, spec)
    if not (labels == VALID).any():
        train = np.flatnonzero(labels == TRAIN)
        labels[train[_per_user_share(data.user[train], spec.valid, stream(spec.seed, "split", "valid"))]] = VALID
    shape = (len(data.users), len(data.items))
    matrices = []
    for label in (TRAIN, VALID, TEST):
        rows = labels == label
        if not rows.any():
            raise DataError(f"the {PARTS[label]} part is empty: {len(data)} interactions are too few for this protocol")
        matrices.append(csr_from_pairs(data.user[rows], data.item[rows], shape))
    train, valid, test = matrices
    both = sum(a.multiply(b).nnz for a, b in ((train, valid), (train, test), (valid, test)))
    if both:
        raise DataError(f"{both} pairs lie in two of train, valid and test; give a `duplicates` step, or mend the parts")
    return Split(train, valid, test, spec.protocol, spec.seed)


def _per_user_share(user: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Positions of round(share · n_u) random interactions of every user u, never all of them."""
    order = np.lexsort((rng.random(len(user)), user))
    counts = np.bincount(user[order]) if len(user) else np.zeros(0, np.int64)
    starts = np.cumsum(counts) - counts
    rank = np.arange(len(user)) - starts[user[order]]
    take = np.minimum(np.floor(share * counts + 0.5), np.maximum(counts - 1, 0))
    return order[rank < take[user[order]]]
