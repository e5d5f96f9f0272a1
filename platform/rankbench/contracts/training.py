"""A small fit of a loss with an encoder, which the contracts of both use."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from rankbench.contracts.check import NotCheckedError, expect, expect_equal, expect_finite
from rankbench.data.blocks import csr_from_pairs
from rankbench.experiment.execution import Execution
from rankbench.experiment.fit import fit as fit_configs
from rankbench.experiment.job import MethodConfig, configure
from rankbench.fitting.checkpoints import Checkpoints
from rankbench.fitting.recommenders import Recommender, score
from rankbench.fitting.step import Step

N_USERS, N_ITEMS, DIM = 12, 20, 4
LEARNT = 0.55  # share of pairs of items in their right order; PinSage has 0.6, all other encoders and losses have more than 0.8
SMALL = {"embedding_dim": DIM, "epochs": 3, "batch_size": 16, "n_negatives": 6, "patience": 0}


class _StopError(Exception):
    pass


@cache
def interactions() -> sp.csr_array:
    """0/1 CSR (N_USERS, N_ITEMS), with a user and an item that have no interactions."""
    met = np.random.default_rng(5).random((N_USERS, N_ITEMS)) < 0.25
    met[0], met[:, 3] = False, False
    return csr_from_pairs(*np.nonzero(met), met.shape)


def train(loss: str, encoder: str, seed: int = 0, **params: object) -> Recommender:
    """Return the model of a few epochs on `interactions`."""
    config = configure(loss, {"model": encoder} | SMALL | params)
    return fit_configs((config,), interactions(), "float32", seed).models[0]


def expect_trainable(loss: str, encoder: str, **params: object) -> None:
    """Training gives finite scores of every user and item, the same bits for the same seed, and others for another seed."""
    first, second, other = (scores(train(loss, encoder, seed, **params), interactions()) for seed in (0, 0, 1))
    expect_finite(first, f"with {encoder}: scores after three epochs")
    expect_equal(second, first, f"with {encoder}: scores of two fits with the same seed")
    expect(bool((first != other).any()), f"with {encoder}: two seeds gave the same scores")


def expect_learning(loss: str, encoder: str) -> None:
    """After some epochs, a random one of a user's items is ranked above a random other one in most cases."""
    X = interactions()
    met, found = X.toarray() > 0, scores(train(loss, encoder, epochs=30, learning_rate=0.05), X)
    above = [np.mean(row[own][:, None] > row[~own]) for row, own in zip(found, met, strict=True) if own.any()]
    share = float(np.mean(above))
    expect(share > LEARNT, f"with {encoder}: in {share:.0%} of pairs, the item that a fit has met is above the other one")


def scores(model: Recommender, X: sp.csr_array) -> np.ndarray:
    """The scores of all items for the users with the histories X, (n_users, n_items)."""
    return score(model, np.arange(X.shape[0], dtype=np.int32), X, slice(0, X.shape[1]))


def expect_resumable(loss: str, encoder: str, **others: object) -> None:
    """A fit of a loss with an encoder goes on from its checkpoint as `expect_resumes` says."""
    config = configure(loss, {"model": encoder} | SMALL | {"epochs": 4, "schedule": "plateau"} | others)
    expect_resumes(config, interactions(), f"with {encoder}: ")


def expect_resumes(config: MethodConfig, X: sp.csr_array, where: str = "") -> None:
    """A fit that is interrupted in its third iteration and goes on from its checkpoint ends with the bits of one that was never
    interrupted. Raises NotCheckedError if it ends before; `where` begins what is seen.
    """

    def fit(execution: Execution, observe: Callable[[Step], None]) -> np.ndarray:
        (model,) = fit_configs((config,), X, "float32", 0, execution, lambda step: observe(step) or {}).models
        return scores(model, X)

    def stop(step: Step) -> None:
        if step.number == 3:
            raise _StopError

    whole, numbers = fit(Execution(), lambda step: None), list[int]()
    with tempfile.TemporaryDirectory() as folder:
        saved = Execution(checkpoints=Checkpoints(Path(folder) / "checkpoints", resume=True))
        try:
            fit(saved, stop)
        except _StopError:
            pass
        else:
            raise NotCheckedError("the fit ended before its third iteration")
        resumed = fit(saved, lambda step: numbers.append(step.number))
    expect(numbers[:1] == [3], f"{where}the resumed fit computed the iterations {numbers}, not 3 and 4")
    expect_equal(resumed, whole, f"{where}scores of the resumed fit and of the undisturbed one")
