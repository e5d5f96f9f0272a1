"""Measurements during a fit: the validation set for early stopping, and the convergence curve."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rankbench.core.rng import stream
from rankbench.data.splits import Holdout
from rankbench.evaluation.cold_users import rank_all
from rankbench.evaluation.metrics import MetricSet, measure
from rankbench.evaluation.ranking import Ranking, rank
from rankbench.experiment.job import Job, MethodConfig
from rankbench.fitting.pair_recommender import PairRecommender
from rankbench.fitting.recommenders import AutoencoderRecommender, FactorRecommender, Recommender
from rankbench.fitting.step import Step

CURVE = ("recall", "ndcg")  # metrics of a convergence curve beside the loss
CURVE_USERS = 2000
VALID_USERS = 10_000  # most users that early stopping measures
PAIR_USERS = 2000  # of a model that scores each pair by a network, some hundred times as slow as a product


def ranked(
    models: Sequence[Recommender],
    holdout: Holdout,
    k: int,
    auc: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
    device: str = "cpu",
    rows: np.ndarray | None = None,
) -> list[Ranking]:
    """Rank all users that are measured, or `rows` of them: on `device` for models of vectors, of pairs, and autoencoders, where
    AUC is not asked for.
    """

    def rank_rows(holdout: Holdout, rows: np.ndarray | None) -> list[Ranking]:
        if device == "cpu" or auc:
            return rank(models, holdout, k, auc, progress, rows)
        return [
            _ranked_on(device, model, holdout, k, rows)
            if type(model) in (FactorRecommender, AutoencoderRecommender, PairRecommender)
            else rank([model], holdout, k, rows=rows)[0]
            for model in models
        ]

    return rank_all(rank_rows, models, holdout, k, auc, rows)


def _ranked_on(device: str, model: Recommender, holdout: Holdout, k: int, rows: np.ndarray | None) -> Ranking:
    """Rank on `device`, and on the CPU the few users whose list ends between equal scores."""
    from rankbench.training.device_ranking import top_k  # imports PyTorch, which takes seconds

    rows = holdout.rows if rows is None else rows
    users = holdout.users[rows]
    folded = model.fold(users, holdout.history[rows])
    assert isinstance(folded, FactorRecommender | PairRecommender)
    items, scores, unclear = top_k(folded, users, holdout.seen[rows], k, device)
    next_score = np.full(len(rows), -np.inf, scores.dtype)  # below the last one, where the end of the list is clear
    if len(unclear):
        exact = rank([model], holdout, k, rows=rows[unclear])[0]
        items[unclear], scores[unclear] = exact.items, exact.scores
        if exact.next_score is not None:
            next_score[unclear] = exact.next_score
    return Ranking(rows, users, items, scores, next_score=next_score)


def valid_users(config: MethodConfig) -> int:
    """The most users that early stopping measures."""
    return PAIR_USERS if pair_work(config) else VALID_USERS


def pair_work(config: MethodConfig) -> int | None:
    """Number of multiply-adds of the score of a pair, if a network computes it; None for products of vectors and sums."""
    method: Any = config.spec  # of the type Trained, whose module imports PyTorch
    return method.pair_work(config.params) if method.cost == "trained" else None


class ValidationSet:
    """Measures the mean of a metric over at most `limit` users of the validation set, the same in every evaluation of a fit."""

    def __init__(self, holdout: Holdout, seed: int, device: str = "cpu", limit: int = VALID_USERS):
        self.holdout, self.device = holdout, device
        self.rows = _some(holdout.rows, limit, stream(seed, "early stopping", "users"))

    def __call__(self, model: Recommender, metric: str) -> float:
        return _means(model, self.holdout, self.rows, MetricSet((metric,)), self.device)[metric]


class Curve:
    """Measures the model after every `job.curve` iterations and after the last one, on a sample of users of the holdout."""

    def __init__(self, job: Job, holdout: Holdout, limit: int, device: str = "cpu"):
        self.every, self.limit, self.holdout, self.device = job.curve, limit, holdout, device
        self.metrics = MetricSet(tuple(name for name in job.metrics.names if name.partition("@")[0] in CURVE))
        # The same users for every seed, so that curves can be compared.
        self.rows = _some(holdout.rows, CURVE_USERS, stream(0, "curve", "users"))

    def __call__(self, step: Step) -> dict[str, float]:
        due = step.number % self.every == 0 or step.number == self.limit
        return _means(step.model(), self.holdout, self.rows, self.metrics, self.device) if due and self.metrics.names else {}


def _some(rows: np.ndarray, most: int, rng: np.random.Generator) -> np.ndarray:
    """At most so many of the rows, in order."""
    return np.sort(rng.choice(rows, min(most, len(rows)), replace=False))


def _means(model: Recommender, holdout: Holdout, rows: np.ndarray, metrics: MetricSet, device: str) -> dict[str, float]:
    """The mean of metrics of hits over the users in these rows."""
    ranking = ranked([model], holdout, metrics.k, device=device, rows=rows)[0]
    measured = measure(ranking, holdout, metrics)
    return {name: float(np.mean(values)) for name, values in measured.values.items()}
