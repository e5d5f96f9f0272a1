"""Ranking metrics as functions of the ranks of hits. The name of each metric says its denominator.

For users with targets T and lists cut at k: `hits` (m, k) bool, true if the item at that rank is a target; `n_targets` (m,).
Relevance is binary, log is base 2, ranks start at 1. Users without targets are left out before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from rankbench.core.compiler import numba
from rankbench.core.errors import ConfigError, first_line, require
from rankbench.core.plugins import ends_worker, load_configured
from rankbench.core.registry import Registry, nearest
from rankbench.data.splits import Holdout
from rankbench.evaluation.beyond import ALIASES, OF_LISTS, Lists, Population, Ratio
from rankbench.evaluation.ranking import Ranking
from rankbench.evaluation.target_ranks import OF_RANKS, TargetRanks
from rankbench.evaluation.user_tables import weight_column

Hits = Callable[[np.ndarray, np.ndarray], np.ndarray]
METRICS: Registry[Hits] = Registry("metric")
# These are not functions of the hits of one user.
OTHERS = ("coverage", "popularity", "auc", "mrr_pooled", *OF_LISTS, *OF_RANKS)
DEFAULT_METRICS = ("recall", "recall_capped", "precision", "ndcg", "mrr", "map", "map_capped", "hit", "coverage", "popularity")
DEFAULT_CUTOFFS = (10, 20, 50)


def metric(function: Hits) -> Hits:
    """Register a function of (hits, n_targets) under its own name, of small letters, digits and underscores.

    Its first line of documentation says what it is divided by. Larger values are better, and they do not depend on the order of
    the users. Raises ConfigError if the name is taken or has other characters.
    """
    name = function.__name__
    problem = f"metric {name!r}: the name may have small letters, digits and underscores, and not be one of {', '.join(OTHERS)}"
    require(re.fullmatch("[a-z][a-z0-9_]*", name) is not None and name not in OTHERS, problem)
    METRICS.add(name, function, function.__module__)
    return function


def registered() -> Registry[Hits]:
    """The registry of metrics, with those of configured plugins."""
    load_configured()
    return METRICS


@metric
def precision(hits: np.ndarray, n_targets: np.ndarray) -> np.ndarray:
    """hits / k"""
    return hits.mean(axis=1)


@metric
def recall(hits: np.ndarray, n_targets: np.ndarray) -> np.ndarray:
    """hits / |T|"""
    return hits.sum(axis=1) / n_targets


@metric
def recall_capped(hits: np.ndarray, n_targets: np.ndarray) -> np.ndarray:
    """hits / min(k, |T|), the recall of Liang 2018 and Steck 2019"""
    return hits.sum(axis=1) / np.minimum(hits.shape[1], n_targets)


@metric
def ndcg(hits: np.ndarray, n_targets: np.ndarray) -> np.ndarray:
    """Σ 1/log2(1 + rank) over hits, divided by the same sum over the first min(k, |T|) ranks"""
    gains = 1.0 / np.log2(np.arange(2, hits.shape[1] + 2))
    ideal = np.cumsum(gains)[np.minimum(hits.shape[1], n_targets) - 1]
    return hits @ gains / ideal


@metric
def mrr(hits: np.ndarray, n_targets: np.ndarray) -> np.ndarray:
    """1 / rank of the first hit within k, else 0"""
    return np.where(hits.any(axis=1), 1.0 / (hits.argmax(axis=1) + 1), 0.0)


@metric
def map(hits: np.ndarray, n_targets: np.ndarray) -> np.ndarray:
    """Σ of precision at each hit, divided by |T|"""
    return _precision_at_hits(hits) / n_targets


@metric
def map_capped(hits: np.ndarray, n_targets: np.ndarray) -> np.ndarray:
    """Σ of precision at each hit, divided by min(k, |T|)"""
    return _precision_at_hits(hits) / np.minimum(hits.shape[1], n_targets)


@metric
def hit(hits: np.ndarray, n_targets: np.ndarray) -> np.ndarray:
    """1 if any of the k items is a target, else 0"""
    return hits.any(axis=1).astype(float)


def _precision_at_hits(hits: np.ndarray) -> np.ndarray:
    return (np.cumsum(hits, axis=1) / np.arange(1, hits.shape[1] + 1) * hits).sum(axis=1)


@dataclass(frozen=True)
class PerUser:
    """Values of each metric in float64, one per user in `users`; `overall` has the metrics of all lists together.

    A metric that is a sum over users, divided by another sum over the same users, has both: its values are divided by the mean
    of what they are divided by, so that their mean is the metric, and `weights` are the user's own part of it, with mean 1.
    """

    users: np.ndarray
    values: dict[str, np.ndarray]
    overall: dict[str, float]
    weights: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """The values, and the weights under names of their own, as tables of users have them."""
        return self.values | {weight_column(name): each for name, each in self.weights.items()}


@dataclass(frozen=True)
class MetricSet:
    """The metrics to measure: names such as recall@20, with the largest cutoff and whether AUC is among them."""

    names: tuple[str, ...]

    @property
    def k(self) -> int:
        return max((int(name.split("@")[1]) for name in self.names if "@" in name), default=1)

    @property
    def auc(self) -> bool:
        """Whether the ranks of all targets are needed, which a ranking finds in a second pass over all scores."""
        return any(name.partition("@")[0] in ("auc", *OF_RANKS) for name in self.names)


def metric_set(
    metrics: Iterable[str] = DEFAULT_METRICS, cutoffs: Sequence[int] = DEFAULT_CUTOFFS, source: str = "", given: bool = False
) -> MetricSet:
    """Return every metric at every cutoff; a name with its own cutoff ("ndcg@100") is used unchanged. The words "beyond" and
    "groups" stand for the metrics beyond accuracy, and for recall and ndcg of groups of items and users (`beyond.py`).

    Raises ConfigError, starting with the field `source` of a file if there is one, with the nearest name for an unknown metric,
    and for cutoffs that are not whole numbers from 1, or that are `given` by a user although no metric uses them.
    """
    if source:
        try:
            return metric_set(metrics, cutoffs)
        except ConfigError as error:
            raise ConfigError(f"{source}: {error}") from None
    wrong = [k for k in cutoffs if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1]
    require(not wrong, f"cutoffs: expected whole numbers from 1, got {', '.join(repr(k) for k in wrong)}")
    known = [*registered().names(), *OTHERS]
    names: list[str] = []
    words = [each for word in metrics for each in _of_alias(word)]
    for word in words:
        match = re.fullmatch(r"([a-z][a-z0-9_]*)(?:@([1-9][0-9]{0,5}))?", word)
        base, at, _ = word.partition("@")
        if at and base in known and not match:
            raise ConfigError(f"unknown metric {word!r}: a cutoff is a whole number from 1 to 999999")
        if not match or match[1] not in known or (match[1] == "auc" and match[2]):
            raise ConfigError(f"unknown metric {word!r}{nearest(base, known)}; known: {', '.join(known)}, as in recall@20")
        if word == "auc":
            names.append(word)
        else:
            names += [f"{match[1]}@{k}" for k in ([int(match[2])] if match[2] else cutoffs)]
    used = any("@" not in word and word != "auc" for word in words)
    require(used or not given, "--cutoffs: no effect, because no metric uses them; leave them out")
    return MetricSet(tuple(dict.fromkeys(names)))


def _of_alias(word: str) -> list[str]:
    """The metrics that a word such as groups@20 stands for."""
    require(isinstance(word, str), f"metrics: expected names such as recall@20, got {word!r}")
    base, at, cutoff = word.partition("@")
    return [f"{name}{at}{cutoff}" for name in ALIASES.get(base, (base,))]


def require_of_hits(word: str, source: str) -> None:
    """Raise ConfigError unless `word` is a single metric with its cutoff that depends on a user's hits alone, such as ndcg@20:
    early stopping measures no other.
    """
    names = metric_set([word], source=source).names
    able = [*registered().names(), "mrr_pooled"]
    problem = f"{source}: {word} cannot be followed during a fit; choose one of {', '.join(able)}, as in ndcg@20"
    require(names == (word,) and word.partition("@")[0] in able, problem)


def better_if_larger(word: str) -> bool:
    """Whether the largest value of a metric is the best. Others, such as popularity@20, describe lists."""
    return word.partition("@")[0] not in ALIASES["beyond"]


def require_better_if_larger(word: str, source: str) -> None:
    """Raise ConfigError for a metric whose largest value is not the best."""
    problem = f"{source}: larger is not better for {word}; choose a metric of accuracy, such as ndcg@20"
    require(better_if_larger(word), problem)


def asked_metrics(metrics: Sequence[str] | None, cutoffs: Sequence[int] | None) -> tuple[MetricSet, str]:
    """Return the metrics that a user asks for, and for `require_within` the option that their largest cutoff is from. None is
    the default; if both are, the option is empty, because the default cutoffs may be beyond the items of a small dataset.
    """
    names = DEFAULT_METRICS if metrics is None else metrics
    wanted = metric_set(names, DEFAULT_CUTOFFS if cutoffs is None else cutoffs, given=cutoffs is not None)
    if metrics is None and cutoffs is None:
        return wanted, ""
    if any(word.endswith(f"@{wanted.k}") for word in names):
        return wanted, "--metrics"
    return wanted, "the default of --cutoffs" if cutoffs is None else "--cutoffs"


def asked_in_python(metrics: str | Sequence[str], cutoffs: int | Sequence[int]) -> tuple[MetricSet, str]:
    """The same of arguments, one or several each, whose defaults are those of `metric_set`."""
    words = [metrics] if isinstance(metrics, str) else [*metrics]
    lengths = [cutoffs] if isinstance(cutoffs, int) else [*cutoffs]
    return asked_metrics(None if words == [*DEFAULT_METRICS] else words, None if lengths == [*DEFAULT_CUTOFFS] else lengths)


def require_within(wanted: MetricSet, n_items: int, dataset: str, source: str) -> None:
    """Raise ConfigError if a cutoff is larger than the number of items of `dataset`."""
    require(wanted.k <= n_items, f"{source}: {wanted.k} is more than the {n_items:,} items of {dataset}; give smaller cutoffs")


def measure(ranking: Ranking, holdout: Holdout, wanted: MetricSet, train: sp.csr_array | None = None) -> PerUser:
    """Return the wanted metrics of a ranking of `holdout`. `train` (n_users, n_items): the interactions that the model was
    fitted on; without it, ConfigError is raised for metrics of whole lists. popularity@k is the mean over the list of their
    number per item, by `train` or by the holdout's `item_counts`. mrr_pooled@k is Σ 1/rank over the hits of all users, divided
    by the number of all targets, as in the program of Zhang et al. (Talos, WWW 2026); the value of a user is the own sum,
    divided by the mean number of targets.
    """
    rows = holdout.target[ranking.rows]
    n_targets = np.diff(rows.indptr)
    # A cutoff beyond the number of items adds no hits, but its denominator remains k.
    hits = np.zeros((len(rows.indptr) - 1, wanted.k), bool)
    _mark_hits(ranking.items, rows.indptr, rows.indices, hits)
    # All metrics read the same arrays, so that one of a plugin must not change them.
    hits.flags.writeable = n_targets.flags.writeable = False
    values: dict[str, np.ndarray] = {}
    weights: dict[str, np.ndarray] = {}
    overall: dict[str, float] = {}
    about = None if train is None else Population(train, holdout.history[ranking.rows], rows)
    item_counts = holdout.item_counts if about is None else about.counts
    for name in wanted.names:
        if name == "auc":
            assert ranking.auc is not None, "rank with auc=True"
            values[name] = ranking.auc
            continue
        base, _, cutoff = name.partition("@")
        k = int(cutoff)
        shown = ranking.items[:, :k]
        if base == "coverage":
            overall[name] = len(np.unique(shown[shown >= 0])) / rows.shape[1]
        elif base == "popularity":
            assert item_counts is not None, "popularity needs the training interactions"
            listed = shown >= 0
            counts = np.where(listed, item_counts[shown], 0).sum(axis=1)
            values[name] = counts / np.maximum(listed.sum(axis=1), 1)
        elif base in OF_RANKS:
            assert ranking.above is not None and ranking.others is not None, "rank with auc=True"
            values[name] = OF_RANKS[base](TargetRanks(ranking.above, rows.indptr, ranking.others), k)
        elif base in OF_LISTS:
            if about is None:
                raise ConfigError(f"{name} cannot be measured here, because it needs the training interactions")
            # A list beyond the catalogue is as wide as its hits.
            padded = np.pad(shown, ((0, 0), (0, k - shown.shape[1])), constant_values=-1)
            value = OF_LISTS[base](Lists(padded, hits[:, :k], about))
            if isinstance(value, float):
                overall[name] = value
            elif isinstance(value, Ratio):
                values[name], weights[name] = value.parts()
            else:
                values[name] = value
        elif base == "mrr_pooled":
            values[name], weights[name] = Ratio(hits[:, :k] @ (1.0 / np.arange(1, k + 1)), n_targets).parts()
        else:
            values[name] = _by_user(name, METRICS.get(base), hits[:, :k], n_targets)
    return PerUser(ranking.users, values, overall, weights)


def _by_user(name: str, metric: Callable[..., Any], hits: np.ndarray, n_targets: np.ndarray) -> np.ndarray:
    """The values of a registered metric. Raises ConfigError, with its name, if it fails or has no number for each user."""
    try:
        values = np.asarray(metric(hits, n_targets))
    except (Exception, SystemExit) as error:  # a metric may be a plugin's
        if ends_worker(error):
            raise
        raise ConfigError(
            f"metric {name}: {type(error).__name__}: {first_line(error)}; rankbench check FILE tests it"
        ) from error
    right = values.shape == n_targets.shape and values.dtype.kind in "biuf"
    problem = f"expected one number for each of {len(n_targets):,} users, got {values.dtype} of shape {values.shape}"
    require(right, f"metric {name}: {problem}; rankbench check FILE tests it")
    require(bool(np.isfinite(values).all()), f"metric {name}: a value is not finite; rankbench check FILE tests it")
    return values


@numba.njit(cache=True)
def _mark_hits(items: np.ndarray, ptr: np.ndarray, targets: np.ndarray, hits: np.ndarray) -> None:
    """Set hits[u, r] to whether the item at rank r is a target. Lists may be longer or shorter than rows of `hits`."""
    for u in range(items.shape[0]):
        relevant = targets[ptr[u] : ptr[u + 1]]
        for r in range(min(items.shape[1], hits.shape[1])):
            position = np.searchsorted(relevant, items[u, r])
            hits[u, r] = position < len(relevant) and relevant[position] == items[u, r]
