"""The lines of the store of what was measured: fits, searches, studies, and the paired tests of claims and of rows."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any, Literal

from rankbench.judge.convergence import TrainingCurve
from rankbench.ledger.line import Line, MeasuredFit

Part = Literal["valid", "test"]  # the part that a search chooses on


def stamp(run: str, started_at: str) -> str:
    """Return what tells one measurement from all others: the id of its run, and when it was started."""
    return f"{run} {started_at}".strip()


@dataclass(frozen=True, kw_only=True)
class StoredFit(MeasuredFit):
    """A setting that was fitted once.

    `params`: the parameters that the fit reads. `users`: number measured, and without targets. `idle`: whether nothing else ran
    on the machine, so that its seconds can be compared. `run`: id of its record, where that still is. `curves`: on validation
    users, if the fit looked at them, and on test users; none of fits without steps, and of lines that are older than curves.
    """

    fit_on: str
    seed: int
    dtype: str
    counts: dict[str, int] = field(default_factory=dict)
    fit_shared_by: int = 1
    device: str = "cpu"
    idle: bool = False
    run: str = ""
    curves: tuple[TrainingCurve, ...] = ()

    @property
    def key(self) -> tuple[Any, ...]:
        return self.method, json.dumps(self.params, sort_keys=True), self.fit_on, self.dtype, self.seed, self.card

    @property
    def stamp(self) -> str:
        """Which measurement it is: a setting that is measured again has the same run id, and other numbers."""
        return stamp(self.run, self.started_at)

    @property
    def own_seconds(self) -> float:
        """The seconds of the fit; of one that several settings share, its part."""
        return self.seconds.get("fit", 0.0) / max(self.fit_shared_by, 1)

    def content(self, fields: dict[str, Any]) -> dict[str, Any]:
        return fields if self.curves else {name: value for name, value in fields.items() if name != "curves"}


@dataclass(frozen=True)
class StoredSearch(Line):
    """The result of a search: `chosen`, the parameters with the best value of `metric` on the validation set or, as some papers
    did, `on` test.

    `space`: the parameters of the arm, with those that were searched as in an experiment file. `beyond`: settings that were
    tried outside of the ranges because the best draw lay on an edge. `edges`: parameters whose best value still is the last
    one tried. `stopped`: settings that the search ended early because they fell behind. `seconds`: training time of all draws.
    `bound`: the time after which no further draw was begun.
    """

    dataset: str
    card: str
    method: str
    space: dict[str, Any]
    metric: str
    draws: int
    chosen: dict[str, Any]
    value: float
    failed: int = 0
    beyond: int = 0
    edges: tuple[str, ...] = ()
    stopped: int = 0
    on: Part = "valid"
    seconds: float = 0.0
    bound: float | None = None
    seed: int = 0
    revision: str | None = None
    started_at: str = ""

    @property
    def key(self) -> tuple[Any, ...]:
        return self.method, json.dumps(self.space, sort_keys=True), self.metric, self.on, self.seed, self.card

    def yields_to(self, other: StoredSearch) -> bool:
        """A search that its bound has ended replaces none that tried more, as on a faster machine."""
        return self.bound is not None and self.draws + self.beyond < other.draws + other.beyond


@dataclass(frozen=True)
class StoredStudy(Line):
    """What a study measured on a dataset: `values`, "row: metric" → number. Its seed is that of all its random numbers."""

    dataset: str
    card: str
    study: str
    params: dict[str, Any]
    seed: int
    values: dict[str, float]
    seconds: float = 0.0
    revision: str | None = None
    started_at: str = ""

    @property
    def key(self) -> tuple[Any, ...]:
        return self.study, json.dumps(self.params, sort_keys=True), self.seed, self.card


Verdict = Literal["better", "worse", "not distinguishable"]


@dataclass(frozen=True)
class StoredPair:
    """A paired test of two rows over users; the value of a user is the mean over the seeds of its row. `seeds`: number of seeds
    that both rows have; `agreeing`: in how many of them the row called better has the higher mean. `tests`: number of tests
    that Holm's correction covers; None in older lines.
    """

    better: str
    than: str
    difference: float
    low: float
    high: float
    p_bootstrap_holm: float
    p_wilcoxon_holm: float
    verdict: Verdict
    seeds: int
    agreeing: int
    tests: int | None = None

    @property
    def rows(self) -> tuple[str, str]:
        return self.better, self.than


@dataclass(frozen=True, kw_only=True)
class StoredTests(Line):
    """Paired tests of rows of a table in a metric. `runs`: the stamps of the fits that were compared; `missing`: rows that were
    not. `tests`: number of tests that Holm's correction covers, in the last call.
    """

    dataset: str
    card: str
    table: str
    metric: str
    users: int
    tests: int
    pairs: tuple[StoredPair, ...]
    runs: tuple[str, ...]
    missing: tuple[str, ...] = ()

    def content(self, fields: dict[str, Any]) -> dict[str, Any]:
        pairs = [{name: value for name, value in pair.items() if value is not None} for pair in fields["pairs"]]
        return fields | {"pairs": pairs}  # lines of earlier versions stay as they are


@dataclass(frozen=True, kw_only=True)
class StoredNeighbours(StoredTests):
    """The tests of each row of a table against the next one, in the order of their measured means. Rows whose values are on
    several machines are tested in several calls, each with a correction of its own.
    """

    @property
    def key(self) -> tuple[Any, ...]:
        return self.table, self.metric, self.card

    def corrected_for(self, pair: StoredPair) -> int | None:
        """Return the number of tests that Holm's correction of one of the pairs covers. None if nobody can know: an older line
        has only that of the last call, in which not all of its rows were tested.
        """
        rows = len({label for each in self.pairs for label in each.rows})
        return pair.tests or (self.tests if self.tests == math.comb(rows, 2) else None)


@dataclass(frozen=True, kw_only=True)
class StoredClaim(StoredTests):
    """The tests of a paper's claim, in its words, on a dataset."""

    text: str

    @property
    def key(self) -> tuple[Any, ...]:
        return self.table, self.text, self.metric, self.card

    @property
    def verdict(self) -> str:
        """Contradicted if a pair is worse; it holds if every pair is better, over all rows or those measured so far; otherwise
        the difference is not significant.
        """
        found = {pair.verdict for pair in self.pairs}
        if "worse" in found or found != {"better"}:
            return "contradicted" if "worse" in found else "not significant"
        return "holds so far" if self.missing else "holds"
