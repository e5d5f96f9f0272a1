"""How often a metric of the whole ranking prefers the list that is worse in its top K (Talos, Table 1.1 and Appendix D.1).

The paper: two random lists, given by the ranks of a user's positive items; the pair is inconsistent where one list has the
higher metric and the lower Precision@K (Recall@K); the ratio of such pairs over 10,000 trials a dataset.
Our reading where the text that we have is silent: a trial takes a user at random and keeps the number of its positive items,
n, all of them or those of test; the n ranks of each list are drawn without replacement, uniformly, from 1 to `list_length`.
Whole catalogues would be no use: with 40,000 items hardly any list has a hit, so the paper must bound ranks, but the bound is
missing from the text that we have. So several lengths are measured, and three ratios that the sentence could mean:

    opposed      pairs with the higher metric where Precision is strictly lower, of all pairs
    of unequal   the same, of the pairs whose Precision differs
    no gain      pairs with a strictly higher metric where Precision is not higher, equal ones included, of all pairs

Precision and Recall of the two lists of one user differ by the factor K/n alone: one comparison serves both columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from rankbench.core.config import param
from rankbench.core.environment import Environment
from rankbench.core.errors import require
from rankbench.core.rng import stream
from rankbench.data.prepare import load
from rankbench.experiment.outcome import describe
from rankbench.studies.published import DATASETS, INCONSISTENCY
from rankbench.studies.spec import Findings, Progress, study

METRICS = ("auc", "llpauc", "ndcg", "ndcg@K")
RATIOS = ("opposed", "of unequal", "no gain")


@dataclass(frozen=True)
class MetricInconsistency:
    datasets: str = param("gowalla-talos,amazon-beauty", "whose users say how many positives a list has, comma-separated")
    positives: Literal["all", "test"] = param("all", "a user's positive items: all that it met, or those of test")
    list_lengths: str | int = param("50,100,200,500,1000", "ranks are drawn from 1 to this, comma-separated")
    K: int = param(20, "cutoff of Precision, Recall and nDCG@K, ≥ 1")
    alpha: float = param(0.5, "LLPAUC looks at this share of the positives, from the top, in (0, 1]")
    beta: float = param(0.1, "LLPAUC looks at this share of the negatives, from the top, in (0, 1]")
    trials: int = param(10_000, "pairs of lists a dataset and length, ≥ 1")

    def __post_init__(self) -> None:
        require(self.K >= 1, f"K must be ≥ 1, got {self.K}")
        require(0 < self.alpha <= 1, f"alpha must lie in (0, 1], got {self.alpha}")
        require(0 < self.beta <= 1, f"beta must lie in (0, 1], got {self.beta}")
        require(self.trials >= 1, f"trials must be ≥ 1, got {self.trials}")
        require(all(length > self.K for length in self.lengths), f"list_lengths must be > K, got {self.list_lengths}")

    @property
    def lengths(self) -> list[int]:
        return whole_numbers("list_lengths", self.list_lengths)


def whole_numbers(name: str, text: str | int) -> list[int]:
    """The numbers of "16,64", or of one that the command line has read already. Raises ConfigError for anything else."""
    words = str(text).split(",")
    require(all(word.strip().isdecimal() for word in words), f"{name}: expected whole numbers such as 16,64, got {text!r}")
    return [int(word) for word in words]


class Lists(NamedTuple):
    """Metrics of t lists, float64 (t,) each; `hits`: positives among the first K."""

    hits: np.ndarray
    metrics: dict[str, np.ndarray]


def measured(ranks: np.ndarray, length: int, K: int, alpha: float, beta: float) -> Lists:
    """Of lists of `length` items whose n positives, n < length, stand at `ranks` (t, n), sorted, from 1."""
    n = ranks.shape[1]
    above = ranks - np.arange(1, n + 1)  # negatives above each positive
    top, worst = math.ceil(alpha * n), math.ceil(beta * (length - n))
    gain = 1 / np.log2(1 + ranks)
    found = ranks <= K
    ideal = 1 / np.log2(1 + np.arange(1, n + 1))
    return Lists(
        found.sum(axis=1),
        {
            "auc": 1 - above.sum(axis=1) / (n * (length - n)),
            # The share of ordered pairs among the `top` best positives and the `worst` best negatives (Eq. 2.4).
            "llpauc": 1 - np.minimum(above[:, :top], worst).sum(axis=1) / (top * worst),
            "ndcg": np.round(gain.sum(axis=1) / ideal.sum(), 12),  # so that equal sums are equal
            "ndcg@K": np.round((gain * found).sum(axis=1) / ideal[:K].sum(), 12),
        },
    )


def counted(one: Lists, other: Lists) -> tuple[int, dict[str, tuple[int, int]]]:
    """Of t pairs, how many have unequal Precision, and for each metric how many are opposed and how many have no gain."""
    difference = np.sign(one.hits - other.hits)
    counts = {}
    for name in METRICS:
        product = np.sign(one.metrics[name] - other.metrics[name])
        opposed = np.count_nonzero(product * difference < 0)
        counts[name] = int(opposed), int(opposed + np.count_nonzero((product != 0) & (difference == 0)))
    return int(np.count_nonzero(difference)), counts


def simulate(sizes: np.ndarray, length: int, p: MetricInconsistency, seed: int) -> dict[str, dict[str, float]]:
    """Metric → the three ratios in %, over `p.trials` pairs of lists; a trial draws one of `sizes` (users,), all < length."""
    rng = stream(seed, "metric-inconsistency", length)
    numbers, times = np.unique(rng.choice(sizes, p.trials), return_counts=True)
    unequal, totals = 0, {name: np.zeros(2) for name in METRICS}
    for n, t in zip(numbers, times, strict=True):
        order = rng.random((2 * t, length)).argpartition(n - 1, axis=1)[:, :n]
        lists = np.sort(order + 1, axis=1)
        one, other = (measured(half, length, p.K, p.alpha, p.beta) for half in (lists[:t], lists[t:]))
        more, counts = counted(one, other)
        unequal += more
        for name in METRICS:
            totals[name] += counts[name]
    return {
        name: {
            "opposed": 100 * opposed / p.trials,
            "of unequal": 100 * opposed / max(1, unequal),
            "no gain": 100 * idle / p.trials,
        }
        for name, (opposed, idle) in totals.items()
    }


@study(
    "metric-inconsistency",
    MetricInconsistency,
    title="How often a metric prefers the list whose top K is worse",
    source="Zhang et al., WWW 2026, Table 1.1",
)
def metric_inconsistency(p: MetricInconsistency, seed: int, environment: Environment, progress: Progress) -> Findings:
    rows: list[dict[str, Any]] = []
    datasets = []
    names = [name.strip() for name in p.datasets.split(",")]
    for place, name in enumerate(names):
        data = load(name, environment)
        matrix = data.split.test_target if p.positives == "test" else data.split.fit_matrix("train+valid")
        sizes = np.diff(matrix.indptr) + (np.diff(data.split.test_target.indptr) if p.positives == "all" else 0)
        sizes = sizes[sizes > 0]
        said = INCONSISTENCY.get(DATASETS.get(name, ""), {})
        for number, length in enumerate(p.lengths):
            progress("simulate", place * len(p.lengths) + number, len(names) * len(p.lengths))
            fitting = sizes[sizes < length]
            require(len(fitting) > 0, f"list_lengths: every user of {name} has {length} positive items or more")
            for metric, ratios in simulate(fitting, length, p, seed).items():
                precision, recall = said.get(metric.replace("@K", f"@{p.K}"), (None, None))
                row = {"dataset": name, "list_length": length, "metric": metric.replace("@K", f"@{p.K}")}
                rows.append(row | {"published_precision": precision, "published_recall": recall} | ratios)
        about = {"positives": p.positives, "mean_positives": float(sizes.mean()), "users": len(sizes)}
        datasets.append(describe(data) | about)
    columns = {
        "dataset": "dataset", "list_length": "list length", "metric": "metric",
        "published_precision": f"published, P@{p.K} %", "published_recall": f"published, R@{p.K} %",
        "opposed": "opposed %", "of unequal": "opposed, of pairs with unequal P %", "no gain": "no gain %",
    }  # fmt: skip
    notes = [
        f"{p.trials:,} pairs of random lists a dataset and length: half a percentage point of standard error at most "
        "at 10,000; users with as many positives as the list is long are left out.",
        "Published columns differ although P and R of two lists of one user always agree on which is better: they must come "
        "from separate draws.",
        "The paper's text, as we have it, lacks the bound on ranks, the shares of LLPAUC "
        f"(here alpha={p.alpha:g}, beta={p.beta:g}) and what it does with equal values.",
    ]
    return Findings(columns, rows, datasets, notes, lambda plt: _figure(plt, rows, names))


def _figure(plt: Any, rows: list[dict[str, Any]], datasets: list[str]) -> Any:
    figure, panels = plt.subplots(
        len(datasets), len(RATIOS), figsize=(4 * len(RATIOS), 3.2 * len(datasets)), squeeze=False, sharey=True
    )
    for line, name in zip(panels, datasets, strict=True):
        for axis, ratio in zip(line, RATIOS, strict=True):
            for metric in dict.fromkeys(row["metric"] for row in rows):
                mine = [row for row in rows if row["dataset"] == name and row["metric"] == metric]
                (drawn,) = axis.plot([r["list_length"] for r in mine], [r[ratio] for r in mine], "o-", ms=4, label=metric)
                said = [mine[0]["published_precision"], mine[0]["published_recall"]]
                if said[0] is not None:
                    axis.axhline(sum(said) / 2, color=drawn.get_color(), ls=":", lw=1)
            axis.set_xscale("log")
            axis.set_title(f"{name}: {ratio}", fontsize=9)
            axis.set_xlabel("ranks drawn from 1 to")
            axis.grid(alpha=0.3)
        line[0].set_ylabel("% of pairs (dotted: published)")
    panels[0][0].legend(fontsize=8)
    return figure
