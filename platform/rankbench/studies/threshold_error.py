"""Error of estimated top-K thresholds (Talos, Table A.4): Monte Carlo as in SL@K, and quantile regression.

The true threshold of a user is the K-th largest score over all items, by sorting. MF is trained twice, with SL@K and with
Talos, and the thresholds at the end of training are compared with the true ones of the final model. The same estimators are
then applied to the final model of Talos, with several numbers n of sampled negatives, so that the error of sampling is
measured apart from that of following a changing model:

    Monte Carlo        the K-th largest score among the user's positives and n sampled negatives, as in SL@K
    regression         the minimiser of the sampled pinball loss (Eq. 3.3), with new samples at every step
    regression, n=all  the same over all items, without sampling (Eq. H.1)

A minimiser of the pinball loss may be anywhere between the (K+1)-th and the K-th largest score; `outside` is the distance of
an estimate from that interval. Errors are in units of the score, a cosine, averaged over users with interactions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from rankbench.core.environment import Environment
from rankbench.core.errors import NumericalError, require
from rankbench.core.palette import COLOURS
from rankbench.core.params import Params, param
from rankbench.core.progress import Progress
from rankbench.core.rng import stream
from rankbench.data.prepare import load
from rankbench.experiment.job import configure
from rankbench.experiment.outcome import describe
from rankbench.kernels.rows import gather_dot, ragged_dot
from rankbench.losses.quantile import Thresholds
from rankbench.losses.sl_at_k import kth_largest
from rankbench.losses.spec import Ragged, Scores, Sizes
from rankbench.losses.spec import registered as losses
from rankbench.losses.talos import Talos
from rankbench.reports.figure import Figure, Marks, Panel, Style
from rankbench.studies.metric_inconsistency import whole_numbers
from rankbench.studies.published import DATASETS, THRESHOLD_ERROR
from rankbench.studies.spec import Findings, study
from rankbench.training.adam import DenseAdam
from rankbench.training.negatives import NegativeSampler
from rankbench.training.scoring import own_items
from rankbench.training.trainer import Trainer

BLOCK = 1024  # users whose scores are in memory at the same time


@dataclass(frozen=True)
class ThresholdError(Params):
    dataset: str = param("movielens-100k", "dataset whose train part MF is trained on")
    K: int = param(20, "length of the list whose last score is the threshold", ge=1)
    n_negatives: int = param(1024, "negatives per positive in training", gt=0)
    epochs: int = param(60, "epochs with each loss", gt=0)
    batch_size: int = param(1024, "interactions per step", gt=0)
    learning_rate: float = param(0.01, "learning rate of the model", gt=0)
    embedding_dim: int = param(64, "length of the vectors", gt=0)
    tau: float = param(0.1, "temperature of Talos", gt=0)
    tau_d: float = param(0.2, "temperature of SL@K's softmax", gt=0)
    beta_lr: float = param(1e-3, "learning rate of Talos's thresholds in training", gt=0)
    T_beta: int = param(5, "SL@K updates its thresholds every T_beta epochs", ge=1)
    samples: str | int = param("16,64,256,1024", "sampled negatives n of the estimators on the final model, comma-separated")
    init: Literal["xavier", "normal"] = param("xavier", "initial vectors; normal has a standard deviation of 1")
    passes: int = param(400, "steps of a regression on the final model", ge=1)
    rate: float = param(0.02, "initial learning rate of that regression, with a cosine decay to 0", gt=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(min(self.numbers) > 0, f"samples must be > 0, got {self.samples}")
        never = "below T_beta, so that SL@K would never set its thresholds"
        require(self.epochs >= self.T_beta, f"epochs: {self.epochs} is {never}; T_beta is {self.T_beta}")

    @property
    def numbers(self) -> list[int]:
        return whole_numbers("samples", self.samples)

    def config_of(self, method: str) -> dict[str, Any]:
        """The parameters of the method."""
        shared = ("K", "n_negatives", "epochs", "batch_size", "learning_rate", "embedding_dim")
        own = {"talos": ("tau", "beta_lr"), "sl-at-k": ("tau_d", "T_beta")}[method]
        return {name: getattr(self, name) for name in shared + own} | {"patience": 0, "init": self.init, "init_scale": 1.0}


@dataclass(frozen=True)
class Fitted:
    """A trained model with the scores U Vᵀ, U (n_users, d), V (n_items, d), and its thresholds `beta` (n_users,)."""

    U: Tensor
    V: Tensor
    beta: np.ndarray


def trained(X: sp.csr_array, method: str, p: ThresholdError, seed: int, progress: Progress) -> Fitted:
    """Train for `p.epochs` epochs, without validation. Raises NumericalError if the loss is not finite."""
    params = configure(method, p.config_of(method)).params
    trainer = Trainer(X, params, losses().get(method), seed, np.float32, "cpu")
    for number in range(1, p.epochs + 1):
        mean = trainer.epoch(number, 1.0)
        if not math.isfinite(mean):
            raise NumericalError(f"{method}: the loss is {mean} in epoch {number} with {params}")
        progress(f"train {method}", number, p.epochs)
    model = trainer.model()
    return Fitted(torch.from_numpy(model.U), torch.from_numpy(model.V), trainer.state.beta.detach().cpu().numpy())


def true_thresholds(U: Tensor, V: Tensor, K: int) -> tuple[np.ndarray, np.ndarray]:
    """The K-th and the (K+1)-th largest score over all items, each (n_users,); K < n_items."""
    parts = [(part @ V.T).topk(K + 1, dim=1).values[:, K - 1 :] for part in U.split(BLOCK)]
    largest = torch.cat(parts).numpy()
    return largest[:, 0], largest[:, 1]


def sampled_scores(U: Tensor, V: Tensor, X: sp.csr_array, users: np.ndarray, others: np.ndarray) -> Scores:
    """One row per user of `users` (m,), renumbered from 0: the scores of their own items and of the items `others` (m, n)."""
    rows = U[torch.from_numpy(users)]
    row, ids = own_items(X, users)
    unused = torch.zeros(len(users))  # the estimators do not use the positive of a row
    return Scores(
        pos=unused,
        neg=gather_dot(rows, V, torch.from_numpy(others)),
        n_items=len(V),
        n_interactions=torch.from_numpy(np.diff(X.indptr)[users]).to(rows),
        users=torch.arange(len(users)),
        items=unused.long(),
        all_positives=Ragged(ragged_dot(rows, V, row, ids), row),
    )


def all_scores(U: Tensor, V: Tensor, users: np.ndarray) -> Scores:
    """As `sampled_scores`, with every item as a negative and no positives: they give the pinball loss over all items."""
    neg = U[torch.from_numpy(users)] @ V.T
    zeros = torch.zeros(len(users))
    no_positives = Ragged(neg.new_empty(0), torch.empty(0, dtype=torch.int64))
    return Scores(zeros, neg, len(V), zeros, torch.arange(len(users)), zeros.long(), all_positives=no_positives)


def regress(scores: Callable[[int], Scores], K: int, passes: int, rate: float) -> np.ndarray:
    """Thresholds (m,) of the users 0 to m − 1 of `scores(step)`, starting at 0, after `passes` steps of Adam."""
    first = scores(0)
    state = Thresholds(Talos(K=K, beta_lr=rate), Sizes(len(first.users), first.n_items, 0), torch.Generator())
    adam = DenseAdam(state.groups(rate))
    for step in range(passes):
        state.own_loss(scores(step)).backward()
        adam.step((1 + math.cos(math.pi * step / passes)) / 2)
    return state.beta.detach().numpy()


def estimates(
    fitted: Fitted, X: sp.csr_array, users: np.ndarray, p: ThresholdError, seed: int, progress: Progress
) -> Iterator[tuple[str, int | None, np.ndarray]]:
    """Yield (estimator, n, thresholds of `users`) for each estimator on the final model; n is None for all items."""
    blocks = np.array_split(users, math.ceil(len(users) / BLOCK))
    for n in p.numbers:
        sampler = NegativeSampler(X, "uniform-other", n, shared=False)
        sampled, learned = [], []
        for index, block in enumerate(blocks):

            def scores(step: int) -> Scores:
                others = sampler.draw(seed, step, index, block, block).items  # noqa: B023 called only in this iteration
                return sampled_scores(fitted.U, fitted.V, X, block, others)  # noqa: B023

            sampled.append(kth_largest(scores(0), p.K).numpy())
            learned.append(regress(scores, p.K, p.passes, p.rate))
            progress(f"estimate n={n}", index + 1, len(blocks))
        yield "Monte Carlo", n, np.concatenate(sampled)
        yield "regression", n, np.concatenate(learned)
    full = []
    for index, block in enumerate(blocks):
        of_all = all_scores(fitted.U, fitted.V, block)
        full.append(regress(lambda step: of_all, p.K, p.passes, p.rate))  # noqa: B023
        progress("estimate full", index + 1, len(blocks))
    yield "regression", None, np.concatenate(full)


def errors(beta: np.ndarray, kth: np.ndarray, after: np.ndarray) -> dict[str, float]:
    """The errors of `beta` (m,), given the K-th and the (K+1)-th largest scores (m,)."""
    bias = beta - kth
    outside = np.maximum(0, np.maximum(bias, after - beta))
    values = {"error": np.abs(bias).mean(), "median": np.median(np.abs(bias)), "bias": bias.mean(), "outside": outside.mean()}
    return {name: round(float(value), 6) + 0.0 for name, value in values.items()}  # float32 scores have no more digits


@study(
    "threshold-error", ThresholdError, title="Error of estimated top-K thresholds", source="Zhang et al., WWW 2026, Table A.4"
)
def threshold_error(p: ThresholdError, seed: int, environment: Environment, progress: Progress) -> Findings:
    data = load(p.dataset, environment)
    X = data.split.train
    require(X.shape[1] > p.K, f"K: {p.dataset} has {X.shape[1]} items, got {p.K}")
    users = np.flatnonzero(np.diff(X.indptr))
    rows: list[dict[str, Any]] = []

    def add(model: str, estimator: str, n: int | None, beta: np.ndarray, truth: tuple[np.ndarray, np.ndarray], published=None):
        row = {"model": model, "estimator": estimator, "n": "all" if n is None else n, "published": published}
        rows.append(row | errors(beta, *(values[users] for values in truth)))

    for method, estimator in (("sl-at-k", "Monte Carlo, in training"), ("talos", "regression, in training")):
        fitted = trained(X, method, p, seed, progress)
        truth = true_thresholds(fitted.U, fitted.V, p.K)
        published = THRESHOLD_ERROR[method].get(DATASETS.get(p.dataset, "")) if p.K == 20 else None
        add(method, estimator, p.n_negatives, fitted.beta[users], truth, published)
        others = stream(seed, "another user").permutation(users)
        add(method, "another user's true one", None, truth[0][others], truth)
    for estimator, n, beta in estimates(fitted, X, users, p, seed, progress):
        add("talos", f"{estimator}, model at rest", n, beta, truth)
    shown = any(row["published"] is not None for row in rows)
    columns = {"model": "model trained by", "estimator": "estimator", "n": "n"}
    columns |= {"published": "published error"} if shown else {}
    columns |= {"error": "error", "median": "median", "bias": "bias", "outside": "outside"}
    notes = [
        f"{len(users):,} users, {X.shape[1]:,} items, K = {p.K}; error: mean of |estimate − true threshold|, bias: mean of the "
        "difference; outside: mean distance to the interval in which the pinball loss is least.",
        f"MF, {p.epochs} epochs, {p.n_negatives} negatives without interactions of the user; SL@K updates its thresholds every "
        f"{p.T_beta} epochs from the scores before a step, by the last row of a user; Talos updates them in every batch.",
        "Monte Carlo takes the smallest score if a user's positives and the n samples are fewer than K.",
        "`another user's true one` is a reference: the error of the true thresholds, assigned to random users.",
        "The paper does not state the number of epochs, the time of the comparison or the average; its Table A.4 "
        + ("has the published errors." if shown else f"has no number for K = {p.K} on {p.dataset}."),
    ]
    return Findings(columns, rows, [vars(describe(data))], notes, _figure(rows))


def _figure(rows: list[dict[str, Any]]) -> Figure:
    at_rest, in_training = ([row for row in rows if when in row["estimator"]] for when in ("at rest", "in training"))
    marks = []
    looks = iter(map(Style, COLOURS))
    for estimator in dict.fromkeys(row["estimator"] for row in at_rest):
        points = [row for row in at_rest if row["estimator"] == estimator and row["n"] != "all"]
        x, y = [row["n"] for row in points], [row["error"] for row in points]
        marks.append(Marks(x, y, next(looks), name=estimator, width=1.5))
    lines = [(row["estimator"], row["error"], (6, 3)) for row in in_training]
    lines += [("the same, published", row["published"], (2, 2)) for row in in_training if row["published"] is not None]
    lines.append(("regression on every item, model at rest", next(row["error"] for row in at_rest if row["n"] == "all"), ()))
    for name, error, dash in lines:
        marks.append(Marks([], [error], replace(next(looks), dash=dash), name=name, width=1, across=True))
    about = "", "sampled negatives n", "mean |estimate − true threshold|"
    panel = Panel(*about, marks, size=(7, 4), log_x=True, log_y=True, legend="best")
    return Figure("plot", "Error of the estimated thresholds.", [panel])
