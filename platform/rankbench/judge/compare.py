"""Paired tests between models on the same users, corrected for the number of tests.

The unit is the user. The difference of a user is the value of one model minus that of the other. Reported are

- the mean difference with the percentile interval of the paired bootstrap (Efron & Tibshirani 1993, §13): users are drawn
  with replacement, and the means of all models are computed from the same draws;
- a two-sided bootstrap p-value for the hypothesis that the mean is 0: twice the smaller share of resamples whose mean is on
  either side of 0, (1 + count) / (1 + resamples). It is below 0.05 when the interval does not contain 0, but for bounds that
  lie between 0 and the nearest resample;
- a Wilcoxon signed-rank p-value (Wilcoxon 1945) for the hypothesis that the differences are symmetric about 0. Zeros are
  ranked and then left out (Pratt 1959), so that users with equal values for both models raise the ranks of the others, too;
- effect sizes: the matched-pairs rank-biserial correlation (Kerby 2014), (W+ - W-) / (W+ + W-) of the same ranks, and
  Cohen's d_z, mean / standard deviation.

The best model is found on the same data. Holm's correction (Holm 1979) therefore covers all pairs of models, not only the
pairs with the best one: a pair with the best model is never called different more easily than any other pair. Pairs of models
that are equal for every user are not tested.

The number of pairs grows with the square of the number of models. On request, only the pairs of many models are tested that a
reader looks at: of each model with the best one, and of neighbours in the order of the means. The correction covers all pairs
as before, as if the p-values of the others were 1. That can only raise a corrected p-value, and it changes no other number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import reduce
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from rankbench.core.errors import DataError, require
from rankbench.core.registry import nearest
from rankbench.core.threads import available_cpus
from rankbench.evaluation.metrics import better_if_larger
from rankbench.evaluation.summary import Interval, bootstrap_means, percentile_bounds
from rankbench.evaluation.user_tables import UserValues, metrics_of, values_of

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

LEVEL = 0.05
# With these numbers of resamples, the smallest corrected bootstrap p-value is 0.01 for any number of models.
RESAMPLES, RESAMPLES_A_PAIR = 2000, 200
FEW = 12  # models of which all pairs are always tested
DIGITS = 6  # digits of a difference, so that the rounding of float32 in records does not turn ties into differences


@dataclass(frozen=True)
class Comparison:
    """`model` minus `against` in one metric, over the common `users` with a part in it. All are JSON values, None if undefined.

    `relative_percent`: relative to the mean of `against`. `p_*_holm`: corrected for all `tests` pairs of models. `better`,
    `equal`, `worse`: shares of users. `identical`: no user differs, so nothing was tested and p is 1. `left_out`: users that
    only some models have. `by_split`: split seed → mean difference on that split, if there are several.
    """

    dataset: str
    metric: str
    model: str
    against: str
    users: int
    left_out: int
    mean: float
    mean_against: float
    difference: float
    relative_percent: float | None
    low: float
    high: float
    p_bootstrap: float
    p_bootstrap_holm: float
    p_wilcoxon: float
    p_wilcoxon_holm: float
    rank_biserial: float | None
    cohen_dz: float | None
    better: float
    equal: float
    worse: float
    identical: bool
    tests: int
    resamples: int
    seed: int
    by_split: dict[str, float] = field(default_factory=dict)

    @property
    def distinguishable(self) -> bool:
        """Whether both corrected tests are significant at 0.05 in the same direction, so that the means differ not only because
        of a few users.
        """
        if self.identical or max(self.p_bootstrap_holm, self.p_wilcoxon_holm) >= LEVEL:
            return False
        # A few users with large differences can move the mean one way while the ranks of all others point the other way.
        return self.rank_biserial is not None and self.difference * self.rank_biserial > 0

    @property
    def verdict(self) -> str:
        if self.identical:
            return "identical for every user"
        if not self.distinguishable:
            return f"not distinguishable at {LEVEL}"
        above, below = ("better", "worse") if better_if_larger(self.metric) else ("higher", "lower")
        return above if self.difference > 0 else below

    def facts(self) -> dict[str, Any]:
        """All fields and the verdict."""
        return asdict(self) | {"verdict": self.verdict}


class OtherGroups(DataError):
    """Models whose values of a metric are of other groups of items or users, so that differences mean nothing."""


@dataclass(frozen=True)
class Comparisons:
    """`means`: model → mean with interval, over the same users; `pairs`: each model against the best, then the baseline, or the
    pairs that were asked for. `neighbours`: each model against the next better one, if only some pairs were tested.
    """

    best: str
    means: dict[str, Interval]
    pairs: tuple[Comparison, ...]
    neighbours: tuple[Comparison, ...] = ()


def compare(
    samples: Mapping[str, UserValues | tuple[np.ndarray, np.ndarray]],
    *,
    dataset: str = "",
    metric: str = "",
    baseline: str | None = None,
    pairs: Sequence[tuple[str, str]] | None = None,
    seed: int = 0,
    resamples: int | None = None,
    every_pair: bool = True,
    of: int = 0,
    on_progress: Callable[[float], None] = lambda share: None,
) -> Comparisons:
    """Compare every model with the one of the best mean (the first of equals), and with `baseline` if it is given; or the two
    models of each of `pairs`, the first minus the second. Which pairs are returned does not change the correction. It covers
    `of` pairs if that is more than these models have, because others are tested by other calls.

    `samples`: model → raw user ids (m,) and values (m,), in any order, with weights if the metric is a ratio: then means are
    ratios too, of the same draws, and users without a part in it are in no test. Users that a model lacks are left out, also
    from the means; those of one model have all others. Equal `seed` and users give equal numbers. `resamples`: by default 2000,
    or 200 per pair if that is more. Without `every_pair`, of more than FEW models only those pairs are tested that are
    returned, and neighbours. All processors are used. `on_progress` is called with the share that is done.

    Raises ConfigError for an unknown baseline, OtherGroups if the metric is of groups of items or users that models do not
    share, DataError if the models have no user in common, a user appears twice or a value is not finite.
    """
    names = list(samples)
    require(baseline is None or baseline in samples, f"unknown baseline {baseline!r}{nearest(str(baseline), names)}")
    users, table, weights, left_out = _aligned({name: UserValues(*each) for name, each in samples.items()})
    means = table.mean(axis=0) if weights is None else table.mean(axis=0) / weights.mean()
    best = names[int(means.argmax())]
    first = _first_equals(table)
    all_pairs = list(combinations(sorted(set(first)), 2))
    covered = max(of, len(all_pairs))
    resamples = resamples or max(RESAMPLES, RESAMPLES_A_PAIR * covered)
    references = dict.fromkeys([best, baseline or best])
    returned = pairs if pairs is not None else [(model, other) for other in references for model in names if model != other]
    beside: list[tuple[str, str]] = []
    tested = all_pairs
    if not every_pair and len(names) > FEW:
        order = [names[column] for column in np.argsort(-means, kind="stable")]
        beside = [(lower, higher) for higher, lower in pairwise(order)]
        column = dict(zip(names, first, strict=True))
        shown = {frozenset((column[a], column[b])) for a, b in (*returned, *beside)}
        tested = [pair for pair in all_pairs if frozenset(pair) in shown]
    resampling, testing = _seconds(len(names), len(users), resamples, len(tested))
    share = resampling / (resampling + testing)

    def resampled(table: np.ndarray) -> np.ndarray:
        return bootstrap_means(table, seed, resamples, available_cpus(), lambda done: on_progress(share * done))

    if weights is None:
        draws, concerned = resampled(table), table
    else:
        draws = resampled(np.column_stack([table, weights]))
        draws = draws[draws[:, -1] > 0]  # a resample without any user of a group says nothing about it
        draws, concerned = draws[:, :-1] / draws[:, -1:], table[weights > 0]
    tests: dict[tuple[int, int], dict[str, Any]] = {}
    for pair, test in zip(tested, _in_threads(lambda pair: _test(concerned, means, draws, *pair), tested), strict=True):
        tests[pair] = test
        on_progress(share + (1 - share) * len(tests) / len(tested))
    for name in ("p_bootstrap", "p_wilcoxon"):
        for test, p in zip(tests.values(), holm([test[name] for test in tests.values()], covered), strict=True):
            test[f"{name}_holm"] = p

    def comparison(model: str, reference: str) -> Comparison:
        i, j = (first[names.index(name)] for name in (model, reference))
        test = _IDENTICAL if i == j else tests[i, j] if i < j else _mirrored(tests[j, i])
        return Comparison(
            dataset=dataset,
            metric=metric,
            model=model,
            against=reference,
            users=len(concerned),
            left_out=left_out,
            mean=float(means[i]),
            mean_against=float(means[j]),
            relative_percent=100 * test["difference"] / abs(float(means[j])) if means[j] else None,
            identical=i == j,
            tests=covered,
            resamples=resamples,
            seed=seed,
            **test,
        )

    bounds = _in_threads(lambda column: percentile_bounds(draws[:, [column]]), range(len(names)))
    intervals = {
        name: Interval(float(mean), float(low[0]), float(high[0]))
        for name, mean, (low, high) in zip(names, means, bounds, strict=True)
    }
    return Comparisons(
        best, intervals, tuple(comparison(*pair) for pair in returned), tuple(comparison(*pair) for pair in beside)
    )


def sample_of(table: pa.Table, metric: str, name: str) -> UserValues:
    """Return the values of a metric for `compare`. Raises ConfigError, beginning with `name`, if the table has none."""
    known = metrics_of(table.column_names)
    hint = nearest(metric, known) or f"; it has {', '.join(known)}"
    require(metric in known, f"{name}: has no per-user values of {metric!r}{hint}")
    return values_of(table, metric)


def pairs_frame(pairs: Iterable[Comparison]) -> pd.DataFrame:
    """Return one row per comparison, with its verdict."""
    import pandas as pd

    return pd.DataFrame([pair.facts() for pair in pairs]).drop(columns="by_split", errors="ignore")


@dataclass(frozen=True)
class Effort:
    """What a comparison of models in one metric takes: `tested` of all `pairs` of them, and roughly `seconds`."""

    pairs: int
    tested: int
    seconds: float

    @classmethod
    def of(cls, models: int, users: int, every_pair: bool, cpus: int) -> Effort:
        pairs = models * (models - 1) // 2
        tested = pairs if every_pair or models <= FEW else 2 * models - 3
        resamples = max(RESAMPLES, RESAMPLES_A_PAIR * pairs)
        return cls(pairs, tested, sum(_seconds(models, users, resamples, tested)) / cpus)


def _seconds(models: int, users: int, resamples: int, tested: int) -> tuple[float, float]:
    """Rough seconds of one processor for the resamples and for the tests."""
    return resamples * users * (7e-9 + 0.06e-9 * models), tested * (3e-3 + 4e-8 * resamples + 4e-7 * users)


def _in_threads(function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
    """Yield function(item) of each item, computed by all processors. What has not begun is left out if the caller stops."""
    pool = ThreadPoolExecutor(available_cpus())
    try:
        yield from pool.map(function, items)
    finally:
        pool.shutdown(cancel_futures=True)


def holm(p: Sequence[float], of: int | None = None) -> list[float]:
    """Apply Holm's step-down correction: the smallest of m values times m, the next times m - 1, ..., monotone, at most 1. With
    m = `of`, the values that are not given count as 1.
    """
    values, order, m = np.asarray(p, float), np.argsort(p, kind="stable"), of or len(p)
    result = np.empty(len(p))
    result[order] = np.minimum(1.0, np.maximum.accumulate(np.arange(m, m - len(p), -1) * values[order]))
    return result.tolist()


def user_means(samples: Sequence[UserValues | tuple[np.ndarray, np.ndarray]]) -> UserValues:
    """Return one value per user: the mean over the samples that contain the user, for example over seeds or splits."""
    given = [UserValues(*each) for each in samples]
    ids = [each.users for each in given]
    same = all(np.array_equal(ids[0], each) for each in ids[1:])
    users, position = (ids[0], None) if same else np.unique(np.concatenate(ids), return_inverse=True)

    def mean(columns: Sequence[np.ndarray]) -> np.ndarray:
        if position is None:
            return np.asarray(np.mean(columns, axis=0, dtype=np.float64))
        return np.asarray(np.bincount(position, weights=np.concatenate(columns)) / np.bincount(position))

    weights = [each.weights for each in given if each.weights is not None]
    return UserValues(users, mean([each.values for each in given]), mean(weights) if len(weights) == len(given) else None)


def other_names(samples: Mapping[str, UserValues]) -> str:
    """Why the values of two samples are not of the same users; empty if they can be. Of equal data, those who are measured are
    the same, or with `cold_users: drop` some of them: the models that were fitted on less know fewer.
    """
    most = max(samples, key=lambda name: len(samples[name].users))
    known = {*samples[most].users.tolist()}
    other = next((name for name, each in samples.items() if not known.issuperset(each.users.tolist())), None)
    if other is None:
        return ""
    why = "each have users that the other one lacks, as if the files of their data named users differently"
    return f"{most} and {other} {why}; fit them again on the files of one of them"


def _aligned(samples: Mapping[str, UserValues]) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, int]:
    """Return the users common to all samples, their values (m, n_models), their weights if the metric has some, and the number
    of users not in all samples.
    """
    for name, (ids_of_model, values, _) in samples.items():
        if len(np.unique(ids_of_model)) != len(ids_of_model):
            raise DataError(f"{name}: a user has two values; give one value per user")
        if not np.isfinite(values).all():
            raise DataError(f"{name}: {int((~np.isfinite(values)).sum())} users have a value that is not a finite number")
    ids, first = [each.users for each in samples.values()], next(iter(samples.values()))
    if all(np.array_equal(ids[0], each) for each in ids[1:]):
        users, left_out, weights = ids[0], 0, first.weights
        columns = [each.values for each in samples.values()]
    else:
        if problem := other_names(samples):
            raise DataError(problem)
        users = reduce(np.intersect1d, ids)
        left_out = len(reduce(np.union1d, ids)) - len(users)
        columns = [_pick(users, each.users, each.values) for each in samples.values()]
        weights = None if first.weights is None else _pick(users, first.users, first.weights)
    if not len(users):
        raise DataError(f"{', '.join(samples)}: no user is measured in all of them")
    if weights is not None and not weights.any():
        weights = None  # nobody has a part in this metric, and all values are 0
    if weights is not None:
        scales = [_scale(name, each, users, weights) for name, each in samples.items()]
        columns = [column * scale for column, scale in zip(columns, scales, strict=True)]
    return users, np.column_stack(columns).astype(np.float64), weights, left_out


def _scale(name: str, sample: UserValues, users: np.ndarray, weights: np.ndarray) -> float:
    """Return by what to multiply the values of a sample, which are divided by a mean over its own users. Raises OtherGroups if
    its weights are not in proportion to `weights` (m,), those of the first sample.
    """
    own = weights if sample.weights is None else _pick(users, sample.users, sample.weights)
    scale = float(weights.sum() / (own.sum() or 1))
    if not np.allclose(own * scale, weights, rtol=1e-4, atol=1e-6):
        raise OtherGroups(
            f"{name}: its groups of items or users are not those of the first model, as of fits on other parts of the data; "
            "choose a metric without groups"
        )
    return scale


def _pick(users: np.ndarray, ids: np.ndarray, values: np.ndarray) -> np.ndarray:
    order = np.argsort(ids, kind="stable")
    return values[order[np.searchsorted(ids[order], users)]]


def _differences(table: np.ndarray, a: int, b: int) -> np.ndarray:
    """Return column a minus column b, (m,), without the rounding of float32, so that equal values and differences are equal."""
    scale = max(1.0, float(np.abs(table[:, [a, b]]).max()))
    return np.round((table[:, a] - table[:, b]) / scale, DIGITS) * scale


def _first_equals(table: np.ndarray) -> list[int]:
    """Return for every column the first column that is equal in all rows."""
    first: list[int] = []
    for column in range(table.shape[1]):
        first.append(next((c for c in sorted(set(first)) if not _differences(table, column, c).any()), column))
    return first


def _test(table: np.ndarray, means: np.ndarray, draws: np.ndarray, a: int, b: int) -> dict[str, Any]:
    """Return the fields of a Comparison of column a minus column b, before the correction; `table` has the users to test."""
    from scipy import stats  # takes most of a second, which every worker of a sweep would pay

    d = _differences(table, a, b)
    drawn = draws[:, a] - draws[:, b]
    low, high = percentile_bounds(drawn[:, None])
    # A resample whose mean difference is zero up to rounding counts for both sides.
    zero = 1e-12 * max(1.0, float(np.abs(table[:, [a, b]]).max()))
    beyond = min((drawn <= zero).sum(), (drawn >= -zero).sum())
    ranks = stats.rankdata(np.abs(d))
    plus, minus = float(ranks[d > 0].sum()), float(ranks[d < 0].sum())
    difference = float(means[a] - means[b])
    return {
        "difference": difference,
        "low": float(low[0]),
        "high": float(high[0]),
        "p_bootstrap": min(1.0, 2 * (1 + int(beyond)) / (1 + len(drawn))),
        "p_wilcoxon": float(stats.wilcoxon(d, zero_method="pratt").pvalue),
        "rank_biserial": (plus - minus) / (plus + minus),
        "cohen_dz": float(d.mean() / d.std(ddof=1)) if np.ptp(d) else None,
        "better": float((d > 0).mean()),
        "equal": float((d == 0).mean()),
        "worse": float((d < 0).mean()),
    }


_IDENTICAL: dict[str, Any] = {
    **dict.fromkeys(("difference", "low", "high", "better", "worse"), 0.0),
    **dict.fromkeys(("p_bootstrap", "p_bootstrap_holm", "p_wilcoxon", "p_wilcoxon_holm", "equal"), 1.0),
    **dict.fromkeys(("rank_biserial", "cohen_dz")),
}


def _mirrored(test: dict[str, Any]) -> dict[str, Any]:
    """Return the test with the models swapped."""
    negated = {name: None if test[name] is None else -test[name] for name in ("difference", "rank_biserial", "cohen_dz")}
    bounds = {"low": -test["high"], "high": -test["low"]}
    return test | negated | bounds | {"better": test["worse"], "worse": test["better"]}
