"""What the entries of a leaderboard with one budget say: standings, and what can be concluded. A store may have others beside
them, by another metric, number of threads or data: those that can be compared are found first.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from rankbench.evaluation.summary import Interval
from rankbench.judge.compare import FEW, LEVEL
from rankbench.judge.declared import Declared
from rankbench.judge.over_datasets import LEAST, Paired, Spread, TraitTest, paired, spread, trait_tests
from rankbench.judge.printing import counted, in_words, interval, p_text, percent
from rankbench.judge.ranking import MethodRanking, against_first, agreement
from rankbench.leaderboard.collection import own_source
from rankbench.leaderboard.foreign import Foreign
from rankbench.leaderboard.results import Result, seconds_of

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T", str, int)
OTHERS = ("recall@20", "ndcg@10", "ndcg@50", "mrr@20", "precision@20")  # metrics whose order is compared, if they were measured
DECLARED = "comparisons.yaml"  # the file of a store with the comparisons that were fixed beforehand
RIVAL = 0.05  # share of the resamples in which a method is first, from which on it is named


class Standing(NamedTuple):
    """A method of a ranking. `wins`: minus losses. `shares`: of the datasets on which it has the best value, 95 % and 90 % of
    it. `no_result`: number of datasets.
    """

    place: int
    method: str
    mean_rank: float
    wins: int
    shares: tuple[float, ...]
    no_result: int


@dataclass(frozen=True)
class Board:
    """Entries with the budget `allowed`, ranked by `metric`. `notes` are sentences about other entries of the store. `foreign`
    lists have no part in ranks and tests. `declared`: the comparisons that were fixed beforehand; without them, all pairs of
    few methods are tested. `sources`: those of datasets that are near-duplicates of others, which count once together.
    """

    entries: tuple[Result, ...]
    allowed: str
    metric: str
    notes: tuple[str, ...] = ()
    foreign: tuple[Foreign, ...] = ()
    declared: Declared | None = None
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Those of the budget."""
        return seconds_of(self.allowed)

    @cached_property
    def ranking(self) -> MethodRanking:
        return self._ranking_of(self.entries, self.metric)

    def _ranking_of(self, entries: Iterable[Result], metric: str) -> MethodRanking:
        return ranking_of(entries, metric, self.sources)

    @cached_property
    def spread(self) -> dict[str, Spread]:
        """The means of each method over datasets, with intervals."""
        return spread(self.ranking)

    @cached_property
    def paired(self) -> list[Paired]:
        """Wilcoxon's test of each pair of methods that was fixed beforehand, or of all pairs of at most FEW methods."""
        methods = self.ranking.methods
        every_pair = [*combinations(methods, 2)] if len(methods) <= FEW else []
        return paired(self.ranking, self.declared.pairs if self.declared else every_pair)

    @cached_property
    def trait_tests(self) -> list[TraitTest]:
        """Which traits of datasets go with the differences of groups of methods that were fixed beforehand."""
        if not self.declared:
            return []
        return trait_tests(self.ranking, self.traits, self.declared.groups, self.declared.traits)

    @cached_property
    def standings(self) -> list[Standing]:
        """The methods, best first."""
        board = self.ranking
        wins, shares = board.copeland(), board.profiles([1.0, 1 / 0.95, 1 / 0.9])
        return [
            Standing(
                place,
                method := board.methods[i],
                float(board.mean_ranks[i]),
                int(wins[i]),
                tuple(shares[i].tolist()),
                self.without_result(method),
            )
            for place, i in enumerate(board.order, start=1)
        ]

    @property
    def table(self) -> pd.DataFrame:
        """The methods in their order: mean rank, wins minus losses, shares of datasets with the best value and with 95 % of it,
        and the number of datasets without a result.
        """
        import pandas as pd

        rows = [[each.method, each.mean_rank, each.wins, *each.shares[:2], each.no_result] for each in self.standings]
        return pd.DataFrame(rows, columns=["method", "mean rank", "wins − losses", "best", "within 5 %", "no result"])

    @cached_property
    def by_other_metrics(self) -> dict[str, float]:
        """Kendall's τ of the order by `metric` with that by other metrics."""
        measured = {name for each in self.entries for name in each.metrics}
        others = [name for name in OTHERS if name in measured and name != self.metric]
        return agreement(self.ranking, {name: self._ranking_of(self.entries, name) for name in others})

    @cached_property
    def traits(self) -> dict[str, dict[str, float]]:
        """The traits of each dataset."""
        return {each.dataset: each.traits for each in self.entries if each.traits}

    @property
    def datasets_apart(self) -> dict[str, int]:
        """Datasets that are not part of the ranking, with the number of methods that were measured on them."""
        apart = {each.dataset: 0 for each in self.entries if each.dataset not in self.ranking.datasets}
        for each in self.entries:
            if each.dataset in apart and each.finished:
                apart[each.dataset] += 1
        return apart

    @property
    def left_out(self) -> dict[str, int]:
        """Methods that were not measured on every dataset of the ranking, with the number of those on which they were."""
        datasets = {name: 0 for each in self.entries if (name := each.entrant) not in self.ranking.methods}
        for each in self.entries:
            known = each.status != "not applicable" and (not each.finished or self.metric in each.metrics)
            if known and each.entrant in datasets and each.dataset in self.ranking.datasets:
                datasets[each.entrant] += 1
        return datasets

    def without_result(self, method: str) -> int:
        """Number of datasets on which a method had no result within the budget."""
        return sum(
            each.entrant == method and not each.finished for each in self.entries if each.dataset in self.ranking.datasets
        )

    def about_datasets_apart(self) -> str:
        """A sentence that names them, empty if there are none."""
        shown = ", ".join(f"{name} ({number})" for name, number in self.datasets_apart.items())
        why = "Not part of the ranking, because most methods were not measured there (number measured)"
        return f"{why}: {shown}." if shown else ""

    def conclusions(self) -> list[str]:
        """What the tests say, in sentences."""
        return [
            *self._of_tests(),
            *self._of_pairs(),
            *self._of_traits(),
            *self._of_other_metrics(),
            *self._of_entries(),
            *self.notes,
        ]

    def _of_tests(self) -> Iterator[str]:
        board = self.ranking
        n, k = len(board.datasets), len(board.methods)
        of_sources = len(set(board.sources))
        sources = f" from {counted(of_sources, 'source')}" if of_sources < n else ""
        yield f"{k} methods on {counted(n, 'dataset')}{sources}, {self.allowed} each, by {self.metric} on test."
        p = board.friedman()
        if p is not None and of_sources > 2:
            verdict = "differ" if p < LEVEL else "do not differ significantly"
            yield f"Friedman test: p {p_text(p, '= ')}, the mean ranks {verdict}."
            name = self.standings[0].method
            rank, share, first, leads = self.spread[name]
            yield f"{name} has the best mean rank, {rank.mean:.1f} ({interval(rank.low, rank.high, '.1f')})."
            yield (
                f"It reaches {_percent(share)} of the best value on the mean dataset, and is the best on {_percent(first)} of "
                "them. In parentheses: 95 % intervals by the bootstrap over datasets."
            )
            rivals = sorted(((each.leads or 0, method) for method, each in self.spread.items() if method != name), reverse=True)
            if near := [f"{method} in {percent(each)}" for each, method in rivals if each >= RIVAL]:
                yield f"In {percent(leads or 0)} of the resamples {name} has the best mean rank, {in_words(near, 'methods')}."
        elif of_sources > 2 and k > 2:
            yield "All methods have the same rank on every dataset."
        else:
            few = "methods" if of_sources > 2 else "datasets" if n < 3 else "sources of datasets"
            yield f"Too few {few} for a test over datasets: at least three are needed."

    def _of_pairs(self) -> Iterator[str]:
        """The tests of pairs, if there are as many datasets as a significant one needs."""
        if len(set(self.ranking.sources)) < LEAST:
            return
        if not self.paired:
            yield f"No pair of methods was tested: {DECLARED} of the store names no two of them, or is missing."
            return
        n, fixed = len(self.paired), "all pairs"
        if self.declared:
            fixed = f"the {len(self.declared.pairs)} comparisons fixed on {self.declared.fixed}"
        # A few datasets can move the mean one way while the ranks of all others point the other way.
        clear = [each for each in self.paired if each.p_holm < LEVEL and each.difference * (each.better - each.worse) > 0]
        differ = sorted(clear, key=lambda each: (each.p_holm, each.method))
        shown = [
            f"{each.method if each.difference > 0 else each.against} is better than "
            f"{each.against if each.difference > 0 else each.method} (p {p_text(each.p_holm, '= ')})"
            for each in differ
        ]
        found = [in_words(shown, "pairs")] if shown else []
        if rest := n - len(differ):
            found.append(f"{rest} of {n} do not differ significantly" if shown else f"none of {n} differs significantly")
        yield f"Wilcoxon's signed-rank test over datasets, with Holm's correction for {fixed}: {'; '.join(found)}."

    def _of_traits(self) -> Iterator[str]:
        for each in self.trait_tests:
            if each.p_holm < LEVEL:
                better, worse = (each.group, each.against) if each.rho > 0 else (each.against, each.group)
                yield (
                    f"The larger the trait {each.trait!r} of a dataset, the better {better} in comparison with {worse}: "
                    f"Spearman's correlation {abs(each.rho):.2f}, p {p_text(each.p_holm, '= ')} with Holm's correction."
                )

    def _of_other_metrics(self) -> Iterator[str]:
        if shown := ", ".join(f"{name} {tau:.2f}" for name, tau in self.by_other_metrics.items()):
            yield f"Agreement (τ) with the order by other metrics: {shown}."

    def _of_entries(self) -> Iterator[str]:
        n = len(self.ranking.datasets)
        if shown := ", ".join(f"{name} ({number} of {n})" for name, number in self.left_out.items()):
            yield f"Left out, because they were not measured on every dataset: {shown}."
        if apart := self.about_datasets_apart():
            yield apart
        cold = {each.dataset: each.users["without_history"] for each in self.entries if "without_history" in each.users}
        if shown := ", ".join(f"{number:,} on {name}" for name, number in sorted(cold.items())):
            yield f"Users without a history, who are measured as `cold_users` in the card says: {shown}."
        if len(cpus := {each.cpu for each in self.entries if each.cpu}) > 1:
            yield f"Measured on different machines, so budgets are not equal: {'; '.join(sorted(cpus))}."
        if races := Counter(each.ended for each in self.entries if each.ended):
            shown = ", ".join(f"{races[name]} {name}" for name in ("settled", "exhausted", "still gaining") if races[name])
            yield f"Would more time help? {shown[0].upper()}{shown[1:]}."
        if gains := [gain for each in self.entries if (gain := each.gain(self.metric)) is not None]:
            yield f"The searched setting is better than the defaults by {100 * float(np.median(gains)):.1f} % in the median."
        for foreign in self.foreign:
            if value := foreign.metrics.get(self.metric):
                where = f"{foreign.name} on {foreign.dataset}, fitted on {foreign.fit_on}"
                yield f"Not ranked, because they have no budget: {where}, {self.metric} {value[0]:.4f}."

    def facts(self, rope: float | None = None) -> dict[str, Any]:
        """All of this as JSON values. With `rope`, each method is compared with the first one by `against_first`."""
        board = self.ranking
        bayesian = {name: asdict(each) for name, each in against_first(board, rope).items()} if rope else {}
        return {
            "budget": self.allowed,
            "metric": self.metric,
            "datasets": list(board.datasets),
            "weights": dict(zip(board.datasets, board.weights.tolist(), strict=True)),
            "friedman_p": board.friedman(),
            "methods": [
                {
                    "method": each.method,
                    "mean_rank": each.mean_rank,
                    "copeland": each.wins,
                    "without_result": each.no_result,
                    "over_datasets": {
                        name: asdict(value) if isinstance(value, Interval) else value
                        for name, value in self.spread[each.method]._asdict().items()
                    },
                }
                | ({"against_first": bayesian[each.method]} if each.method in bayesian else {})
                for each in self.standings
            ],
            "comparisons": {
                "fixed": str(self.declared.fixed) if self.declared else None,
                "wilcoxon_holm": [asdict(each) for each in self.paired],
                "traits": [each._asdict() for each in self.trait_tests],
            },
            "metrics_tau": self.by_other_metrics,
            "traits": self.traits,
            "left_out": self.left_out,
            "datasets_apart": self.datasets_apart,
            "notes": list(self.notes),
            "foreign": [asdict(each) for each in self.foreign],
        }


def usual(values: Iterable[T]) -> T:
    """The value that most have; of equally frequent ones, the smallest."""
    return min(Counter(values).items(), key=lambda each: (-each[1], each[0]))[0]


def comparable(entries: Sequence[Result], metric: str | None = None) -> tuple[list[Result], tuple[str, ...]]:
    """Return the entries of one budget that are shown, and sentences about the others. They were chosen by `metric`, if any
    were, and otherwise by the metric of most; and they have the number of threads that most of these have.
    """
    notes = []
    chosen_by = [each.metric for each in entries]
    by = metric if metric in chosen_by else usual(chosen_by)
    if others := Counter(each for each in chosen_by if each != by):
        shown = ", ".join(f"{number} by {name}" for name, number in sorted(others.items()))
        notes.append(
            f"Shown are entries chosen on the validation set by {by}; left out are {shown} (the option metric shows these)."
        )
    entries = [each for each in entries if each.metric == by]
    threads = usual(each.threads for each in entries)
    if others := Counter(each.threads for each in entries if each.threads != threads):
        shown = ", ".join(f"{number} with {n}" for n, number in sorted(others.items()))
        of = counted(threads, "thread")
        notes.append(f"Shown are entries of {of}; left out are {shown} (the option threads shows these).")
    newest = current([each for each in entries if each.threads == threads])
    if older := sum(each.threads == threads for each in entries) - len(newest):
        notes.append(f"Left out are {older} entries on earlier data, or by earlier ranges or code of the method.")
    return newest, tuple(notes)


def current(entries: Sequence[Result]) -> list[Result]:
    """The entries on the data of the newest result of their dataset, each entrant with its newest rules. An entry without a
    result may know the card alone.
    """
    newest: dict[str, Result] = {}
    for each in filter(lambda each: each.finished, entries):
        if each.dataset not in newest or each.started_at > newest[each.dataset].started_at:
            newest[each.dataset] = each
    last: dict[tuple[str, str], Result] = {}
    for each in entries:
        data = newest.get(each.dataset, each)
        if each.card == data.card and each.fingerprint in ("", data.fingerprint):
            place = each.dataset, each.entrant
            if place not in last or (each.started_at, each.finished) > (last[place].started_at, last[place].finished):
                last[place] = each
    return [each for each in entries if last.get((each.dataset, each.entrant)) is each]


def ranking_of(results: Iterable[Result], metric: str, sources: Mapping[str, str] | None = None) -> MethodRanking:
    """The standings of entries with one budget. `sources`: those of datasets that are near-duplicates of others.

    The table has no gaps. A dataset is left out if fewer than half as many methods were run on it as on another one, because
    most cannot be measured there, or if none has a result. Of the methods, those are left out that were not run on all datasets
    that remain. An entry that was measured without this metric counts as not run.
    """
    table: dict[str, dict[str, float]] = {}
    for each in results:
        unknown = each.finished and metric not in each.metrics
        if each.status != "not applicable" and not unknown:
            table.setdefault(each.dataset, {})[each.entrant] = each.metrics[metric][0] if each.finished else math.nan
    most = max(map(len, table.values()), default=0)
    table = {
        name: row for name, row in sorted(table.items()) if 2 * len(row) >= most and not all(map(math.isnan, row.values()))
    }
    everywhere = set.intersection(*(set(row) for row in table.values())) if table else set()
    methods = tuple(sorted(everywhere))
    # Those with a result may be methods that are left out.
    table = {name: row for name, row in table.items() if not methods or not all(math.isnan(row[method]) for method in methods)}
    values = np.array([[row[method] for method in methods] for row in table.values()]).reshape(len(table), len(methods))
    of = sources or {}
    return MethodRanking(tuple(table), methods, values, tuple(of.get(name, own_source(name)) for name in table))


def _percent(found: Interval) -> str:
    """The mean and the interval of a share that has one."""
    return f"{percent(found.mean)} ({interval(100 * (found.low or 0), 100 * (found.high or 0), '.0f')} %)"
