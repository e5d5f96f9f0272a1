"""What the entries of a leaderboard with one budget say: standings, and what can be concluded."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rankbench.evaluation.summary import Interval
from rankbench.judge.compare import FEW, LEVEL
from rankbench.judge.declared import Declared
from rankbench.judge.over_datasets import LEAST, Paired, Spread, TraitTest, paired, spread, trait_tests
from rankbench.judge.printing import counted, in_words, interval, p_text, percent
from rankbench.judge.ranking import MethodRanking, against_first, agreement
from rankbench.leaderboard.comparable import ranking_of, value_of
from rankbench.leaderboard.results import BY_DATASET, Foreign, Result, seconds_of

if TYPE_CHECKING:
    import pandas as pd

OTHERS = ("recall@20", "ndcg@10", "ndcg@50", "mrr@20", "precision@20")  # metrics whose order is compared, if they were measured
DECLARED = "comparisons.yaml"  # the file of a store with the comparisons that were fixed beforehand
RIVAL = 0.05  # share of the resamples in which a method is first, from which on it is named
SEARCHED = 10  # settings from which on the gain over the defaults is also stated apart


class Standing(NamedTuple):
    """A method of a ranking; methods with one mean rank share a place. `wins`: minus losses. `shares`: of the datasets on which
    it has the best value, 95 % and 90 % of it. `no_result`: number of datasets on which it had none within the budget.
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
        return ranking_of(self.entries, self.metric, self.sources)

    @cached_property
    def counted(self) -> list[Result]:
        """The entries of ranked methods on ranked datasets. Of the methods that do not go on to a larger budget, a board has
        the races that were over before, and no others.
        """
        methods, datasets = {*self.ranking.methods}, {*self.ranking.datasets}
        return [each for each in self.entries if each.entrant in methods and each.dataset in datasets]

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
        ranks, none = board.mean_ranks, np.isnan(board.values).sum(axis=0)
        places = 1 + (ranks[:, None] > ranks).sum(axis=1)
        return [
            Standing(int(places[i]), board.methods[i], float(ranks[i]), int(wins[i]), tuple(shares[i].tolist()), int(none[i]))
            for i in board.order
        ]

    @property
    def columns(self) -> tuple[list[str], list[list[str]]]:
        """The standings as header and cells of a table."""
        header = ["method", "place", "mean rank", "wins − losses", "best", "within 5 %", "within 10 %", "no result"]
        return header, [
            [name, str(place), f"{rank:.2f}", f"{wins:+d}", *map(percent, shares), str(no_result)]
            for place, name, rank, wins, shares, no_result in self.standings
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
        return agreement(self.ranking, {name: ranking_of(self.entries, name, self.sources) for name in others})

    @cached_property
    def traits(self) -> dict[str, dict[str, float]]:
        """The traits of each dataset."""
        return {each.dataset: each.traits for each in self.entries if each.traits}

    @cached_property
    def by_dataset(self) -> dict[str, list[Result]]:
        """The entries of each dataset, those that were measured by the metric best first, and then the others."""
        found: dict[str, list[Result]] = {}
        for each in sorted(self.entries, key=lambda each: (each.dataset, -self._value(each), each.entrant)):
            found.setdefault(each.dataset, []).append(each)
        return found

    def ranked(self, dataset: str) -> list[Result]:
        """The entries of a dataset that were measured by the metric, best first."""
        return [each for each in self.by_dataset[dataset] if self._value(each) > -math.inf]

    def _value(self, entry: Result) -> float:
        value = value_of(entry, self.metric)
        return -math.inf if value is None or math.isnan(value) else value

    @cached_property
    def processors(self) -> dict[str, Counter[str]]:
        """The kinds of processors that measured each dataset, with their numbers of entries, as far as these say it."""
        return {name: Counter(each.cpu for each in entries if each.cpu) for name, entries in self.by_dataset.items()}

    @property
    def datasets_apart(self) -> dict[str, int]:
        """Datasets that are not part of the ranking, with the number of methods that were measured on them."""
        others = (item for item in self.by_dataset.items() if item[0] not in self.ranking.datasets)
        return {name: sum(each.finished for each in entries) for name, entries in others}

    @property
    def left_out(self) -> dict[str, int]:
        """Methods that were not measured on every dataset of the ranking, with the number of those on which they were."""
        board = self.ranking
        of_ranking = [each for each in self.entries if each.dataset in board.datasets]
        measured = Counter(each.entrant for each in of_ranking if value_of(each, self.metric) is not None)
        return {name: measured[name] for each in self.entries if (name := each.entrant) not in board.methods}

    def conclusions(self) -> list[str]:
        """What the tests say, and what a reader has to know beside them, in sentences."""
        return [*self.findings(), *self._of_foreign(), *self.caveats()]

    def findings(self) -> list[str]:
        """What the tests and the values say."""
        return [*self._of_tests(), *self._of_pairs(), *self._of_traits(), *self._of_other_metrics(), *self._of_entries()]

    def caveats(self) -> list[str]:
        """What is not part of the ranking, and what of it cannot be compared."""
        left_out, draws, code = self._of_what_is_left_out(), self._of_draws(), self._of_code()
        return [*left_out, *draws, *self._of_processors(), *code, *self.notes]

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
            name, *equal = [each.method for each in self.standings if each.place == 1]
            rank, share, first, leads = self.spread[name]
            if equal:
                yield f"{in_words([name, *equal], 'methods')} share the best mean rank, {rank.mean:.1f}."
                return
            yield f"{name} has the best mean rank, {rank.mean:.1f} ({interval(rank.low, rank.high, '.1f')})."
            most = max(self.standings, key=lambda each: each.wins)
            if most.wins > self.standings[0].wins:
                lost = f"; it has no result on {counted(most.no_result, 'dataset')}, which counts as the last rank"
                yield (
                    f"One by one, {most.method} beats the most methods ({most.wins:+d} wins − losses), although its mean rank "
                    f"is at place {most.place}{lost if most.no_result else ''}."
                )
            yield (
                f"{name} reaches {_percent(share)} of the best value on the mean dataset, and is the best on {_percent(first)} "
                "of them. In parentheses: 95 % intervals by the bootstrap over sources of datasets."
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
            after = f" after {self.declared.after}" if self.declared.after else ""
            fixed = f"the {len(self.declared.pairs)} comparisons fixed on {self.declared.fixed}{after}"
        # A few datasets can move the mean one way while the ranks of all others point the other way.
        clear = [each for each in self.paired if each.p_holm < LEVEL and each.difference * (each.better - each.worse) > 0]
        differ = sorted(clear, key=lambda each: (each.p_holm, each.method))
        shown = [
            f"{each.method if each.difference > 0 else each.against} is better than "
            f"{each.against if each.difference > 0 else each.method} (p {p_text(each.p_holm, '= ')})"
            for each in differ
        ]
        found = [in_words(shown, "pairs")] if shown else []
        if rest := [f"{each.method} and {each.against}" for each in self.paired if each not in differ]:
            alike = f"{len(rest)} of {n} do not differ significantly" if shown else f"none of {n} differs significantly"
            found.append(f"{alike} ({', '.join(rest)})")
        yield f"Wilcoxon's signed-rank test over datasets, with Holm's correction for {fixed}: {'; '.join(found)}."

    def _of_traits(self) -> Iterator[str]:
        for each in self.trait_tests:
            if each.p_holm < LEVEL:
                sign = 1 if each.rho > 0 else -1
                better, worse = map(self._group, (each.group, each.against)[::sign])
                shown = (
                    f"The larger the trait {each.trait!r} of a dataset, the better {better} in comparison with {worse}: "
                    f"Spearman's correlation {abs(each.rho):.2f}, p {p_text(each.p_holm, '= ')} with Holm's correction."
                )
                if each.rho_complete is not None:
                    shown += (
                        f" A method without a result counts as 0; it is {sign * each.rho_complete:.2f} on the "
                        f"{counted(each.complete, 'source')} where every method of both groups has one."
                    )
                yield shown

    def _group(self, name: str) -> str:
        """The name of a group of methods that was fixed beforehand, with those that this board does not have."""
        assert self.declared is not None, "groups are declared"
        missing = [each for each in self.declared.groups[name] if each not in self.ranking.methods]
        return f"{name} (without {in_words(missing, 'methods')})" if missing else name

    def _of_other_metrics(self) -> Iterator[str]:
        if shown := ", ".join(f"{name} {tau:.2f}" for name, tau in self.by_other_metrics.items()):
            yield f"Agreement (τ) with the order by other metrics: {shown}."

    def _of_entries(self) -> Iterator[str]:
        entries = self.counted
        if races := Counter(each.ended for each in entries if each.ended):
            shown = ", ".join(f"{races[name]} {name}" for name in ("settled", "exhausted", "still gaining") if races[name])
            yield f"Would more time help? {shown[0].upper()}{shown[1:]}."
        gains = np.array([(gain, each.tried) for each in entries if (gain := each.gain(self.metric)) is not None])
        if len(gains):
            gain, tried = gains.T
            many = gain[tried >= SEARCHED]
            apart = f"; by {_median(many)} in the {len(many):,} that tried {SEARCHED} settings or more" if len(many) else ""
            yield (
                f"The searched setting is better than the defaults by {_median(gain)} in the median of {len(gain):,} entries, "
                f"of which {(gain == 0).sum():,} ended with the value of the defaults and {(tried == 1).sum():,} tried nothing "
                f"else{apart}."
            )

    def _of_foreign(self) -> Iterator[str]:
        for foreign in self.foreign:
            if value := foreign.metrics.get(self.metric):
                where = f"{foreign.name} on {foreign.dataset}, fitted on {foreign.fit_on}"
                yield f"Not ranked, because they have no budget: {where}, {self.metric} {value[0]:.4f}."

    def _of_what_is_left_out(self) -> Iterator[str]:
        if missing := [name for name in self.sources if name not in self.by_dataset]:
            names = f": {', '.join(missing)}" if 2 * len(missing) < len(self.sources) else ""
            yield f"{len(missing)} of the {len(self.sources)} datasets of the collection are not on this board{names}."
        n, ranked = len(self.ranking.datasets), {*self.ranking.datasets}
        refused = Counter(each.entrant for each in self.entries if each.dataset in ranked and each.status == "not applicable")
        unfit = [f"{name} ({n - refused[name]} of {n})" for name in self.left_out if refused[name]]
        missing = [f"{name} ({number} of {n})" for name, number in self.left_out.items() if not refused[name]]
        if unfit:
            yield f"Left out, because they are not applicable to every dataset, as their entries say: {', '.join(unfit)}."
        if missing:
            yield f"Left out, because they were not measured on every dataset: {', '.join(missing)}."
        if failed := [f"{each.entrant} on {each.dataset}" for each in self.entries if each.status == "failed"]:
            shown = in_words(failed, "entries")
            yield f"Failed, which says nothing of a method and counts as not measured; the next command tries again: {shown}."
        if shown := ", ".join(f"{name} ({number})" for name, number in self.datasets_apart.items()):
            why = "Not part of the ranking, because most methods were not measured there (number measured)"
            yield f"{why}: {shown}."
        cold = {each.dataset: each.users["without_history"] for each in self.entries if "without_history" in each.users}
        if shown := ", ".join(f"{number:,} on {name}" for name, number in sorted(cold.items())):
            yield f"Users without a history, who are measured as `cold_users` in the card says: {shown}."

    def _of_draws(self) -> Iterator[str]:
        datasets = {each.dataset: each.search for each in self.entries}
        alike = sum(search != BY_DATASET for search in datasets.values())
        if alike > 1:
            yield (
                f"On {alike} of the {len(datasets)} datasets, the races of a method tried the same settings in the same order. "
                "What a method owes to the luck of its first draws is the same there, so intervals and tests over datasets do "
                "not contain it."
            )

    def _of_code(self) -> Iterator[str]:
        revisions: dict[str, set[str]] = {}
        for each in self.entries:
            revisions.setdefault(each.dataset, set()).update(filter(None, [each.revision]))
        if shown := ", ".join(f"{name} ({len(several)})" for name, several in revisions.items() if len(several) > 1):
            yield f"Entries on one dataset are of several revisions of the code, between which a method may differ: {shown}."

    def _of_processors(self) -> Iterator[str]:
        """Which processor measured which dataset, if it was not the same one everywhere."""
        datasets: dict[str, list[str]] = {}
        for name, cpus in self.processors.items():
            datasets.setdefault(" and ".join(sorted(cpus)), []).append(name)
        most, *others = sorted(filter(None, datasets), key=lambda cpu: (-len(datasets[cpu]), cpu)) or [""]
        if others:
            shown = "; ".join(f"{cpu}: {', '.join(datasets[cpu])}" for cpu in others)
            yield (
                "Not all datasets were measured with one kind of processor, so a second of one is not that of another; methods "
                f"are compared on each dataset alone. {shown}; {most}: the other {len(datasets[most])}."
            )
        several = {name: cpus.most_common() for name, cpus in self.processors.items() if len(cpus) > 1}
        if shown := "; ".join(f"{name} ({', '.join(f'{n} on {cpu}' for cpu, n in each)})" for name, each in several.items()):
            yield f"Entries on one dataset had different processors, so their budgets are not equal: {shown}."

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
            "processors": self.processors,
            "left_out": self.left_out,
            "datasets_apart": self.datasets_apart,
            "notes": list(self.notes),
            "foreign": [asdict(each) for each in self.foreign],
        }


def _median(gains: np.ndarray) -> str:
    return f"{100 * float(np.median(gains)):.1f} %"


def _percent(found: Interval) -> str:
    """The mean and the interval of a share that has one."""
    return f"{percent(found.mean)} ({interval(100 * (found.low or 0), 100 * (found.high or 0), '.0f')} %)"
