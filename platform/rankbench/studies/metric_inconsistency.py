"""How often a metric of the whole ranking prefers the list that is worse in its top K (Talos, Table 1.1 and Appendix D.1).

In the paper, a list is given by the ranks of a user's positive items. A pair of random lists is inconsistent if one list has
the higher metric and the lower Precision@K (Recall@K); the ratio of such pairs is measured over 10,000 trials per dataset.
Our assumptions where the available text gives no details: a trial takes a random user with n positive items, all of them or
those of test; the n ranks of each list are drawn uniformly without replacement from 1 to `list_length`. Ranks over the whole
catalogue would be useless: with 40,000 items hardly any list has a hit, so the paper must bound the ranks: the bound is missing
from the available text, and 200 in the authors' PDF. Several lengths are measured, and three ratios that the description could
mean. The published ratios are equal on all datasets to within a few times the noise of the trials, which the users' numbers of
positives cannot give; so a fixed n, and draws with replacement, can be asked for too.

    opposed      share of all pairs in which the list with the higher metric has a strictly lower Precision
    of unequal   the same number of pairs, as a share of those whose Precision differs
    no gain      share of all pairs in which the list with the strictly higher metric has a lower or equal Precision

Precision and Recall of the two lists of one user differ only by the factor K/n: one comparison serves both columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from rankbench.core.environment import Environment
from rankbench.core.errors import require
from rankbench.core.params import Params, param
from rankbench.core.progress import Progress
from rankbench.core.rng import stream
from rankbench.data.blocks import union
from rankbench.data.prepare import load
from rankbench.data.splits import Split
from rankbench.experiment.outcome import describe
from rankbench.reports.figure import Figure, Marks, Panel, styles
from rankbench.studies.published import DATASETS, INCONSISTENCY
from rankbench.studies.spec import Findings, study

METRICS = ("auc", "llpauc", "ndcg", "ndcg@K")
LONGEST = 10_000_000  # ranks of a list, more than any catalogue has
ITEMS = 1 << 24  # of all lists that are drawn at once
RATIOS = ("opposed", "of unequal", "no gain")


@dataclass(frozen=True)
class MetricInconsistency(Params):
    datasets: str = param("gowalla-talos,amazon-beauty", "datasets whose users give the numbers of positives, comma-separated")
    positives: Literal["all", "test"] = param("all", "positive items of a user: all interactions, or those of test")
    n_positives: int = param(0, "positive items of every list; 0: those of a random user", ge=0)
    with_replacement: bool = param(False, "draw the ranks of a list one by one, so that several can be equal")
    list_lengths: str | int = param("50,100,200,500,1000", "ranks are drawn from 1 to these lengths, comma-separated")
    K: int = param(20, "cutoff of Precision, Recall and nDCG@K", ge=1)
    alpha: float = param(0.5, "share of the positives, from the top, that LLPAUC uses", gt=0, le=1)
    beta: float = param(0.1, "share of the negatives, from the top, that LLPAUC uses", gt=0, le=1)
    trials: int = param(10_000, "pairs of lists per dataset and length", ge=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(all(length > self.K for length in self.lengths), f"list_lengths must be > K, got {self.list_lengths}")
        require(max(self.lengths) <= LONGEST, f"list_lengths must be <= {LONGEST:,}, got {self.list_lengths}")

    @property
    def lengths(self) -> list[int]:
        return whole_numbers("list_lengths", self.list_lengths)


def whole_numbers(name: str, text: str | int) -> list[int]:
    """The numbers in a text such as "16,64", or a single number. Raises ConfigError for anything else."""
    words = str(text).split(",")
    require(all(word.strip().isdecimal() for word in words), f"{name}: expected whole numbers such as 16,64, got {text!r}")
    return [int(word) for word in words]


class Lists(NamedTuple):
    """Metrics of t lists, each float64 (t,); `hits`: the number of positives among the first K."""

    hits: np.ndarray
    metrics: dict[str, np.ndarray]


def measured(ranks: np.ndarray, length: int, K: int, alpha: float, beta: float) -> Lists:
    """The metrics of lists of `length` items; the n positives, n < length, have the sorted `ranks` (t, n), from 1."""
    n = ranks.shape[1]
    above = ranks - np.arange(1, n + 1)  # negatives above each positive
    top, worst = math.ceil(alpha * n), math.ceil(beta * (length - n))
    gain = 1 / np.log2(1 + ranks)
    is_hit = ranks <= K
    ideal = 1 / np.log2(1 + np.arange(1, n + 1))
    return Lists(
        is_hit.sum(axis=1),
        {
            "auc": 1 - above.sum(axis=1) / (n * (length - n)),
            # The share of ordered pairs among the `top` best positives and the `worst` best negatives (Eq. 2.4).
            "llpauc": 1 - np.minimum(above[:, :top], worst).sum(axis=1) / (top * worst),
            "ndcg": np.round(gain.sum(axis=1) / ideal.sum(), 12),  # rounded so that sums of the same terms are equal
            "ndcg@K": np.round((gain * is_hit).sum(axis=1) / ideal[:K].sum(), 12),
        },
    )


def drawn(rng: np.random.Generator, lists: int, n: int, length: int, with_replacement: bool) -> np.ndarray:
    """The sorted ranks (lists, n) of the positives of random lists."""
    if with_replacement:
        order = rng.integers(length, size=(lists, n))
    else:  # a few lists at a time, each of which takes the memory of all its items
        blocks = np.array_split(np.arange(lists), -(-lists * length // ITEMS))
        order = np.concatenate([rng.random((len(each), length)).argpartition(n - 1, axis=1)[:, :n] for each in blocks])
    return np.sort(order + 1, axis=1)


def counted(one: Lists, other: Lists) -> tuple[int, dict[str, tuple[int, int]]]:
    """The number of pairs with unequal Precision, and for each metric the numbers of opposed pairs and those without gain."""
    difference = np.sign(one.hits - other.hits)
    counts = {}
    for name in METRICS:
        product = np.sign(one.metrics[name] - other.metrics[name])
        opposed = np.count_nonzero(product * difference < 0)
        counts[name] = int(opposed), int(opposed + np.count_nonzero((product != 0) & (difference == 0)))
    return int(np.count_nonzero(difference)), counts


def simulate(sizes: np.ndarray, length: int, p: MetricInconsistency, seed: int) -> dict[str, dict[str, float]]:
    """Metric → the three ratios in % over `p.trials` pairs of lists; each pair draws n from `sizes` (users,), all < length."""
    rng = stream(seed, "metric-inconsistency", length)
    numbers, times = np.unique(rng.choice(sizes, p.trials), return_counts=True)
    unequal, totals = 0, {name: np.zeros(2) for name in METRICS}
    for n, t in zip(numbers, times, strict=True):
        lists = drawn(rng, 2 * t, n, length, p.with_replacement)
        one, other = (measured(half, length, p.K, p.alpha, p.beta) for half in (lists[:t], lists[t:]))
        n_unequal, counts = counted(one, other)
        unequal += n_unequal
        for name in METRICS:
            totals[name] += counts[name]
    shares = {
        name: (100 * opposed / p.trials, 100 * opposed / max(1, unequal), 100 * no_gain / p.trials)
        for name, (opposed, no_gain) in totals.items()
    }
    return {name: dict(zip(RATIOS, each, strict=True)) for name, each in shares.items()}


def positives_of_users(split: Split, p: MetricInconsistency) -> np.ndarray:
    """The number of positives of each user that has some, int64 (users,); or `p.n_positives` alone, if it is given."""
    if p.n_positives:
        return np.array([p.n_positives])
    in_test = np.diff(split.test_target.indptr)
    known = np.diff(union(split.fit_matrix("train+valid"), split.test_history).indptr)
    sizes = in_test if p.positives == "test" else in_test + known
    return np.asarray(sizes[sizes > 0])


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
    for index, name in enumerate(names):
        data = load(name, environment)
        sizes = positives_of_users(data.split, p)
        published = INCONSISTENCY.get(DATASETS.get(name, ""), {}) if p.K == 20 else {}
        for number, length in enumerate(p.lengths):
            progress("simulate", index * len(p.lengths) + number, len(names) * len(p.lengths))
            shorter = sizes[sizes < length]
            require(len(shorter) > 0, f"list_lengths: every user of {name} has {length} positive items or more")
            for metric, ratios in simulate(shorter, length, p, seed).items():
                precision, recall = published.get(metric.replace("@K", f"@{p.K}"), (None, None))
                row = {"dataset": name, "list_length": length, "metric": metric.replace("@K", f"@{p.K}")}
                rows.append(row | {"published_precision": precision, "published_recall": recall} | ratios)
        about = {"positives": p.n_positives or p.positives, "mean_positives": float(sizes.mean()), "users": len(sizes)}
        datasets.append(vars(describe(data)) | about)
    columns = {
        "dataset": "dataset", "list_length": "list length", "metric": "metric",
        "published_precision": f"published, P@{p.K} %", "published_recall": f"published, R@{p.K} %",
        "opposed": "opposed %", "of unequal": "opposed, of pairs with unequal P %", "no gain": "no gain %",
    }  # fmt: skip
    notes = [
        f"{p.trials:,} pairs of random lists per dataset and length (for 10,000 the standard error is at most half a "
        "percentage point); users with at least as many positives as the list has items are left out.",
        "P and R always agree on which of two lists of one user is better; since the published columns differ, they must come "
        "from separate draws.",
        "The available text of the paper does not give the number of positives, the shares of LLPAUC "
        f"(here alpha={p.alpha:g}, beta={p.beta:g}) and the treatment of equal values.",
    ]
    return Findings(columns, rows, datasets, notes, _figure(rows, names))


def _figure(rows: list[dict[str, Any]], datasets: list[str]) -> Figure:
    panels = []
    for name in datasets:
        for ratio in RATIOS:
            marks = []
            for metric, style in styles(row["metric"] for row in rows).items():
                points = [row for row in rows if row["dataset"] == name and row["metric"] == metric]
                x, y = [row["list_length"] for row in points], [row[ratio] for row in points]
                marks.append(Marks(x, y, style, name="" if panels else metric, size=4, width=1.5))
                if (precision := points[0]["published_precision"]) is not None:
                    published = (precision + points[0]["published_recall"]) / 2
                    marks.append(Marks([], [published], replace(style, dash=(2, 2)), width=1, across=True))
            about = f"{name}: {ratio}", "ranks drawn from 1 to", "% of pairs (dotted: published)"
            panels.append(Panel(*about, marks, size=(4, 3.2), log_x=True, legend="best"))
    return Figure("plot", "Pairs of lists of which a metric prefers the worse one.", panels, columns=len(RATIOS))
