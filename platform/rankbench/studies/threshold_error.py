"""How far estimated top-K thresholds lie from the true ones (Talos, Table A.4): Monte Carlo as in SL@K, quantile regression.

The true threshold of a user is the K-th largest score over all items, by sorting. MF is trained twice, by SL@K and by Talos,
and the thresholds that each holds at the end are compared with those of its own final model. The same estimators are then
set on Talos's model, which stands still, with several numbers n of sampled negatives, so that the error of sampling is seen
apart from that of following a model in motion:

    Monte Carlo   the K-th largest among the user's positives and n sampled others, as SL@K estimates
    regression    the minimiser of the sampled pinball loss (Eq. 3.3), with new samples at every step
    the same, full: every item, nothing sampled (Eq. H.1)

A minimiser of the pinball loss may lie anywhere between the (K+1)-th and the K-th largest score; `outside` is how far an
estimate is from that interval. Errors are in units of the score, a cosine; means over users with interactions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from rankbench.core.config import param
from rankbench.core.environment import Environment
from rankbench.core.errors import NumericalError, require
from rankbench.core.rng import stream
from rankbench.data.prepare import load
from rankbench.experiment.job import configure
from rankbench.experiment.outcome import describe
from rankbench.losses.quantile import Thresholds
from rankbench.losses.sl_at_k import kth_largest
from rankbench.losses.spec import Ragged, Scores, Sizes
from rankbench.losses.spec import registered as losses
from rankbench.studies.metric_inconsistency import whole_numbers
from rankbench.studies.published import DATASETS, THRESHOLD_ERROR
from rankbench.studies.spec import Findings, Progress, study
from rankbench.training.adam import DenseAdam
from rankbench.training.kernels import gather_dot, ragged_dot
from rankbench.training.negatives import NegativeSampler
from rankbench.training.trainer import Trainer

BLOCK = 1024  # users whose scores exist at a time


@dataclass(frozen=True)
class ThresholdError:
    dataset: str = param("movielens-100k", "on whose train part MF is trained")
    K: int = param(20, "length of the list whose last score is the threshold, ≥ 1")
    n_negatives: int = param(1024, "negatives a positive in training, > 0")
    epochs: int = param(60, "of both losses, > 0")
    batch_size: int = param(1024, "interactions a step, > 0")
    learning_rate: float = param(0.01, "Adam's rate of the model, > 0")
    embedding_dim: int = param(64, "length of the vectors, > 0")
    tau: float = param(0.1, "temperature of Talos, > 0")
    tau_d: float = param(0.2, "temperature of SL@K's softmax, > 0")
    beta_lr: float = param(1e-3, "rate of Talos's thresholds in training, > 0")
    T_beta: int = param(5, "SL@K refreshes its thresholds every T_beta epochs, ≥ 1")
    samples: str | int = param("16,64,256,1024", "n of the estimators on the model that stands still, comma-separated")
    passes: int = param(400, "steps of a regression on the model that stands still, ≥ 1")
    rate: float = param(0.02, "its rate, which falls to 0 by a cosine, > 0")

    def __post_init__(self) -> None:
        for name in ("K", "passes"):
            require(getattr(self, name) >= 1, f"{name} must be ≥ 1, got {getattr(self, name)}")
        require(self.rate > 0, f"rate must be > 0, got {self.rate}")
        require(min(self.numbers) > 0, f"samples must be > 0, got {self.samples}")

    @property
    def numbers(self) -> list[int]:
        return whole_numbers("samples", self.samples)

    def of(self, method: str) -> dict[str, Any]:
        """The method's own parameters among these."""
        shared = ("K", "n_negatives", "epochs", "batch_size", "learning_rate", "embedding_dim")
        own = {"talos": ("tau", "beta_lr"), "sl-at-k": ("tau_d", "T_beta")}[method]
        return {name: getattr(self, name) for name in shared + own} | {"patience": 0, "init": "xavier"}


@dataclass(frozen=True)
class Fitted:
    """Vectors of a model whose scores are U @ V.T, U (n_users, d), V (n_items, d), and the thresholds (n_users,) it holds."""

    U: Tensor
    V: Tensor
    beta: np.ndarray


def trained(X: sp.csr_array, method: str, p: ThresholdError, seed: int, progress: Progress) -> Fitted:
    """After `p.epochs` epochs; valid is not looked at. Raises NumericalError when the loss is not finite."""
    params = configure(method, p.of(method)).params
    trainer = Trainer(X, params, losses().get(method), seed, np.float32, "cpu")
    for number in range(1, p.epochs + 1):
        mean = trainer.epoch(number, 1.0)
        if not math.isfinite(mean):
            raise NumericalError(f"{method}: the loss is {mean} in epoch {number} with {params}")
        progress(f"train {method}", number, p.epochs)
    model = trainer.model()
    return Fitted(torch.from_numpy(model.U), torch.from_numpy(model.V), trainer.state.beta.detach().cpu().numpy())


def true_thresholds(U: Tensor, V: Tensor, K: int) -> tuple[np.ndarray, np.ndarray]:
    """The K-th largest score over all items, and the next one, (n_users,) each; K < n_items."""
    parts = [(part @ V.T).topk(K + 1, dim=1).values[:, K - 1 :] for part in U.split(BLOCK)]
    found = torch.cat(parts).numpy()
    return found[:, 0], found[:, 1]


def sampled_scores(U: Tensor, V: Tensor, X: sp.csr_array, users: np.ndarray, others: np.ndarray) -> Scores:
    """One row each of `users` (m,), numbered from 0 as they come: scores of their own items, and of `others` (m, n)."""
    own = X[users]
    rows = U[torch.from_numpy(users)]
    row = torch.from_numpy(np.repeat(np.arange(len(users)), np.diff(own.indptr)))
    ids = torch.from_numpy(own.indices.astype(np.int64))
    nothing = torch.zeros(len(users))  # estimators look at no positive of a row's own
    return Scores(
        pos=nothing,
        neg=gather_dot(rows, V, torch.from_numpy(others)),
        n_items=len(V),
        n_interactions=torch.from_numpy(np.diff(own.indptr)).to(rows),
        users=torch.arange(len(users)),
        items=nothing.long(),
        all_positives=Ragged(ragged_dot(rows, V, row, ids), row),
    )


def all_scores(U: Tensor, V: Tensor, users: np.ndarray) -> Scores:
    """The same with every item as one that was drawn once, and none besides: the pinball loss over all items."""
    neg = U[torch.from_numpy(users)] @ V.T
    nothing = torch.zeros(len(users))
    none = Ragged(neg.new_empty(0), torch.empty(0, dtype=torch.int64))
    return Scores(nothing, neg, len(V), nothing, torch.arange(len(users)), nothing.long(), all_positives=none)


def regress(scores: Callable[[int], Scores], K: int, passes: int, rate: float) -> np.ndarray:
    """Thresholds (m,) of the rows of `scores(step)`, whose users are 0 to m − 1, from 0 by `passes` steps of Adam."""
    first = scores(0)
    state = Thresholds(Sizes(len(first.users), first.n_items, 0), K, rate)
    adam = DenseAdam(state.groups(rate))
    for step in range(passes):
        state.own_loss(scores(step)).backward()
        adam.step((1 + math.cos(math.pi * step / passes)) / 2)
    return state.beta.detach().numpy()


def still(fitted: Fitted, X: sp.csr_array, users: np.ndarray, p: ThresholdError, seed: int, progress: Progress) -> Iterator:
    """(estimator, n, thresholds of `users`) of the estimators on a model that stands still."""
    blocks = np.array_split(users, math.ceil(len(users) / BLOCK))
    for n in p.numbers:
        sampler = NegativeSampler(X, "uniform-other", n, shared=False)
        drawn, learned = [], []
        for place, block in enumerate(blocks):

            def scores(step: int) -> Scores:
                others = sampler.draw(seed, step, place, block, block).items  # noqa: B023 used before the loop goes on
                return sampled_scores(fitted.U, fitted.V, X, block, others)  # noqa: B023

            drawn.append(kth_largest(scores(0), p.K).numpy())
            learned.append(regress(scores, p.K, p.passes, p.rate))
            progress(f"estimate n={n}", place + 1, len(blocks))
        yield "Monte Carlo", n, np.concatenate(drawn)
        yield "regression", n, np.concatenate(learned)
    full = []
    for place, block in enumerate(blocks):
        whole = all_scores(fitted.U, fitted.V, block)
        full.append(regress(lambda step: whole, p.K, p.passes, p.rate))  # noqa: B023
        progress("estimate full", place + 1, len(blocks))
    yield "regression", None, np.concatenate(full)


def errors(beta: np.ndarray, kth: np.ndarray, after: np.ndarray) -> dict[str, float]:
    """`beta` (m,) against the K-th and the (K+1)-th largest scores (m,)."""
    away = beta - kth
    outside = np.maximum(0, np.maximum(away, after - beta))
    values = {"error": np.abs(away).mean(), "median": np.median(np.abs(away)), "bias": away.mean(), "outside": outside.mean()}
    return {name: round(float(value), 6) + 0.0 for name, value in values.items()}  # beyond, float32 scores say nothing


@study(
    "threshold-error",
    ThresholdError,
    title="How far estimated top-K thresholds lie from the true ones",
    source="Zhang et al., WWW 2026, Table A.4",
)
def threshold_error(p: ThresholdError, seed: int, environment: Environment, progress: Progress) -> Findings:
    data = load(p.dataset, environment)
    X = data.split.train
    require(X.shape[1] > p.K, f"K: {p.dataset} has {X.shape[1]} items, got {p.K}")
    users = np.flatnonzero(np.diff(X.indptr))
    rows: list[dict[str, Any]] = []

    def note(model: str, estimator: str, n: int | None, beta: np.ndarray, truth: tuple[np.ndarray, np.ndarray], said=None):
        found = errors(beta, *(values[users] for values in truth))
        rows.append({"model": model, "estimator": estimator, "n": "all" if n is None else n, "published": said} | found)

    for method, estimator in (("sl-at-k", "Monte Carlo, in training"), ("talos", "regression, in training")):
        fitted = trained(X, method, p, seed, progress)
        truth = true_thresholds(fitted.U, fitted.V, p.K)
        said = THRESHOLD_ERROR[method].get(DATASETS.get(p.dataset, "")) if p.K == 20 else None
        note(method, estimator, p.n_negatives, fitted.beta[users], truth, said)
        others = stream(seed, "another user").permutation(users)
        note(method, "another user's true one", None, truth[0][others], truth)
    for estimator, n, beta in still(fitted, X, users, p, seed, progress):
        note("talos", f"{estimator}, model at rest", n, beta, truth)
    columns = {
        "model": "model trained by", "estimator": "estimator", "n": "n", "published": "published error", "error": "error",
        "median": "median", "bias": "bias", "outside": "outside",
    }  # fmt: skip
    notes = [
        f"{len(users):,} users, {X.shape[1]:,} items, K = {p.K}; error: mean of |estimate − true threshold|, bias: mean of the "
        "difference; outside: mean distance to the interval in which the pinball loss is least.",
        f"MF, {p.epochs} epochs, {p.n_negatives} negatives not met by the user; SL@K refreshes every {p.T_beta} epochs with "
        "the scores before a step, the last of a user's rows deciding; Talos steps its thresholds in every batch.",
        "Monte Carlo takes the smallest score where a user's positives and the n samples are fewer than K.",
        "`another user's true one` is a yardstick: what one would be off who knows the thresholds, but not whose they are.",
        "The paper does not state epochs, the moment of the comparison or the average; published errors are its Table A.4.",
    ]
    return Findings(columns, rows, [describe(data)], notes, lambda plt: _figure(plt, rows))


def _figure(plt: Any, rows: list[dict[str, Any]]) -> Any:
    figure, axis = plt.subplots(figsize=(7, 4))
    for estimator in dict.fromkeys(row["estimator"] for row in rows if "at rest" in row["estimator"]):
        mine = [row for row in rows if row["estimator"] == estimator and row["n"] != "all"]
        axis.plot([row["n"] for row in mine], [row["error"] for row in mine], "o-", label=estimator)
    for row, colour in zip([row for row in rows if "in training" in row["estimator"]], ("C2", "C3"), strict=True):
        axis.axhline(row["error"], color=colour, ls="--", label=row["estimator"])
        if row["published"] is not None:
            axis.axhline(row["published"], color=colour, ls=":", label="the same, published")
    full = next(row for row in rows if "at rest" in row["estimator"] and row["n"] == "all")
    axis.axhline(full["error"], color="grey", lw=1, label="regression on every item, model at rest")
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("sampled negatives n")
    axis.set_ylabel("mean |estimate − true threshold|")
    axis.grid(alpha=0.3)
    axis.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    return figure
