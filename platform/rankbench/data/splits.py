"""Train, validation and test sets as matrices: the data to fit on, the histories to score from, and the targets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

from rankbench.core.errors import DataError
from rankbench.data.blocks import csr_from_pairs, union
from rankbench.data.interactions import Interactions, positions_of
from rankbench.data.protocols.spec import (
    DROPPED,
    TEST,
    TEST_HISTORY,
    TRAIN,
    VALID,
    VALID_HISTORY,
    ColdUsers,
    SplitSpec,
    checked_labels,
    protocols,
)

# The matrices of a split, in the order in which they are stored and fingerprinted.
LABELS = {
    "train": TRAIN,
    "valid_target": VALID,
    "test_target": TEST,
    "valid_history": VALID_HISTORY,
    "test_history": TEST_HISTORY,
}


@dataclass(frozen=True)
class Holdout:
    """The histories that a model scores from and the targets to find, one row per user.

    `users` (m,) int32; `history` (m, n_items): their known interactions; `target` (m, n_items): the held-out ones.
    `excluded` (m, n_items) or None: further items that are not candidates. Without `filter_seen` the history is not
    masked in the ranking. `cold_users` and `item_counts` (n_items,), the interactions of each item in the fitted data, say
    how users without a history are ranked (`evaluation/cold_users.py`).
    """

    users: np.ndarray
    history: sp.csr_array
    target: sp.csr_array
    excluded: sp.csr_array | None = None
    filter_seen: bool = True
    cold_users: ColdUsers = "keep"
    item_counts: np.ndarray | None = None

    @cached_property
    def cold(self) -> np.ndarray:
        """A mask (m,) of the users who have targets, but no history."""
        return (np.diff(self.target.indptr) > 0) & (np.diff(self.history.indptr) == 0)

    @cached_property
    def rows(self) -> np.ndarray:
        """Positions of the users who are ranked and measured: all with targets, or those of them who have a history."""
        ranked = np.diff(self.target.indptr) > 0
        return np.flatnonzero(ranked & ~self.cold if self.cold_users == "drop" else ranked)

    @cached_property
    def seen(self) -> sp.csr_array:
        """The items that are masked in the ranking."""
        if not self.filter_seen:
            return sp.csr_array(self.history.shape, dtype=np.float32) if self.excluded is None else self.excluded
        return self.history if self.excluded is None else union(self.history, self.excluded)


@dataclass(frozen=True)
class Split:
    """Disjoint 0/1 matrices (n_users, n_items): every interaction is in exactly one of them.

    The histories belong to held-out users, who have no train interactions; they are empty for protocols that train on
    every user. `rank_valid`: whether validation items are candidates at test time if the model was fitted on train alone.
    """

    train: sp.csr_array
    valid_target: sp.csr_array
    test_target: sp.csr_array
    valid_history: sp.csr_array
    test_history: sp.csr_array
    excluded: sp.csr_array | None = None
    rank_valid: bool = False
    cold_users: ColdUsers = "drop"

    @property
    def matrices(self) -> dict[str, sp.csr_array]:
        """All matrices by name, in the order of LABELS."""
        return {name: getattr(self, name) for name in LABELS}

    @property
    def n_users(self) -> int:
        return self.train.shape[0]

    @property
    def n_items(self) -> int:
        return self.train.shape[1]

    @cached_property
    def has_cold_users(self) -> bool:
        """Whether users with targets have no history, in validation or test."""
        return any(self.holdout(on, "train").cold.any() for on in ("valid", "test"))

    def fit_matrix(self, on: str) -> sp.csr_array:
        """The matrix of `train`, of `train+valid`: everything that is known at test time, or of `all` interactions."""
        if on == "train":
            return self.train
        if on == "all":
            return union(*self.matrices.values())
        if on != "train+valid":
            raise ValueError(f"expected train, train+valid or all, got {on!r}")
        return union(self.train, self.valid_history, self.valid_target)

    def holdout(self, on: str, fitted_on: str) -> Holdout:
        """The `valid` or `test` targets, with the histories that a model fitted on `fitted_on` may know; one row per user,
        or per held-out user if the protocol holds users out.
        """
        target = {"valid": self.valid_target, "test": self.test_target}[on]
        if on == "valid" and fitted_on != "train":
            raise ValueError("the validation targets are among the interactions that the model was fitted on")
        # A model scores from what it was fitted on: one that was fitted on train alone does not read the validation targets.
        # They are masked at test all the same, unless the split says otherwise.
        known = [self.valid_history] if on == "valid" else [self.valid_history, self.test_history]
        excluded = self.excluded
        if on == "test" and fitted_on != "train":
            known.append(self.valid_target)
        elif on == "test" and not self.rank_valid:
            excluded = self.valid_target if excluded is None else union(excluded, self.valid_target)
        history, users = union(self.train, *known), np.arange(self.n_users, dtype=np.int32)
        fold_in = self.valid_history if on == "valid" else self.test_history
        if fold_in.nnz:
            users = users[(np.diff(fold_in.indptr) > 0) | (np.diff(target.indptr) > 0)]
            history, target = history[users], target[users]
            excluded = None if excluded is None else excluded[users]
        holdout = Holdout(users, history, target, excluded, cold_users=self.cold_users)
        if not holdout.cold.any():
            return holdout
        return replace(holdout, item_counts=np.bincount(self.fit_matrix(fitted_on).indices, minlength=self.n_items))


def split(data: Interactions, spec: SplitSpec) -> tuple[Split, Interactions]:
    """Label `data` by the protocol and build the matrices. Returns them with the interactions that they hold, whose
    vocabularies are the rows and columns, and whose `part` is the label.

    `data` must be sorted, so that the same interactions give the same split. Raises DataError if train, validation or test
    is empty, or a pair is in two parts.
    """
    data = spec.timed(data)
    labels = checked_labels(protocols().get(spec.protocol), data, spec)
    data = replace(data, part=labels)
    if (labels == DROPPED).any():
        kept = labels != DROPPED
        data, labels = data.keep(kept).compact(), labels[kept]
    shape = (len(data.users), len(data.items))
    matrices = {}
    for name, label in LABELS.items():
        rows = labels == label
        if label in (TRAIN, VALID, TEST) and not rows.any():
            raise DataError(
                f"the {name.removesuffix('_target')} part is empty: "
                f"{len(data)} interactions are too few for the protocol {spec.protocol}"
            )
        matrices[name] = csr_from_pairs(data.user[rows], data.item[rows], shape)
    both = sum(matrix.nnz for matrix in matrices.values()) - union(*matrices.values()).nnz
    if both:
        raise DataError(f"{both} pairs lie in two of train, valid and test; add a `duplicates` step, or correct the parts")
    return assemble(matrices, spec, data.users, data.items), data


def assemble(matrices: dict[str, sp.csr_array], spec: SplitSpec, users: pa.Array, items: pa.Array) -> Split:
    """Build a Split from its matrices and the raw ids of its rows and columns."""
    excluded = self_pairs(users, items) if protocols().get(spec.protocol).self_excluded(spec) else None
    return Split(**matrices, excluded=excluded, rank_valid=spec.rank_valid, cold_users=spec.cold_users)


def self_pairs(users: pa.Array, items: pa.Array) -> sp.csr_array:
    """1 where a row and a column have the same raw id."""
    column = positions_of(users, items)
    rows = np.flatnonzero(column >= 0)
    return csr_from_pairs(rows, column[rows], (len(users), len(items)))
