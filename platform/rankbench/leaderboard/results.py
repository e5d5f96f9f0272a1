"""The store of a leaderboard: a line of JSON per entry, small enough to be committed, and the values of each user beside it.

DATASET.entries.jsonl                        one line per entry (`Result.key`), also for those without a result
DATASET.ties.jsonl                           one line per set of entries that were compared, and metric
DATASET.foreign.jsonl                        one line per name of foreign lists
users/DATASET/ENTRANT-BUDGET-KEY.parquet     each metric of each user; only where the entry was run
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from rankbench.core.files import atomic_file
from rankbench.evaluation.user_tables import UserValues, values_of, weight_column
from rankbench.ledger.ledger import Ledger
from rankbench.ledger.line import Line, MeasuredFit
from rankbench.tracking.record import RunRecord

ROUNDED = ("metrics", "traits", "seconds", "valid", "peak_memory_gb", "default", "curve")
POINTS = 30  # most points of a curve
_MEASURED = b"started_at"  # metadata of a table of users: when its entry was measured
Search = Literal["asha", "asha by dataset"]  # ASHA with the same settings on all datasets, or with each dataset's own
BY_DATASET: Search = "asha by dataset"
Status = Literal["finished", "over budget", "diverged", "not applicable", "failed"]
Name = Annotated[str, Field(pattern=r"^\w[\w.+-]{0,149}$")]  # part of the name of a file: at most a loss and an encoder
Several = Annotated[int, Field(ge=1)]
Number = Annotated[int, Field(ge=0)]


@dataclass(frozen=True, kw_only=True)
class Result(MeasuredFit):
    """An entrant on a dataset within `allowed`, a budget such as 30s, which are `budget` seconds: a milestone of a race.

    `rules`: key of what the entrant fixes and searches. `params`: those that it chose, by the `metric` whose value on the
    validation set is `valid`, among `tried` settings. `metrics`: means on test over users. `users`: how many were measured, and
    how many have no history, if there are any. `traits`: those of the train part (`traits.py`). `seconds`: of all that the
    budget counts, of the best fit until its best iteration, and of the test. `joules`: of all that the budget counts, as in a
    record. `ended`: whether the race is over, and why. `default`: means on test of the method's defaults. `curve`: points of
    seconds and the best value on the validation set until then. `search`: how settings are searched
    (`sweeps/search/race.py`), and whether those that are drawn depend on the dataset. Without a result, `reason` says why.
    """

    dataset: Name
    entrant: Name
    rules: str
    allowed: Annotated[str, Field(pattern=r"^[0-9][0-9.e+]*s$")]
    budget: Annotated[float, Field(gt=0)]
    metric: str
    status: Status = "finished"
    reason: str = ""
    method: Annotated[str, Field(pattern=r"^[\w.+-]{0,150}$")] = ""
    valid: float | None = None
    tried: Number = 0
    traits: dict[str, float] = field(default_factory=dict)
    threads: Several = 1
    joules: float | None = None
    search: Search = "asha"
    precision: Literal["float32", "float64"] = "float32"
    ended: Literal["", "settled", "exhausted", "still gaining"] = ""
    default: dict[str, float] = field(default_factory=dict)
    curve: tuple[tuple[float, float], ...] = ()

    @property
    def finished(self) -> bool:
        return self.status == "finished"

    @property
    def key(self) -> tuple[Any, ...]:
        """All that a result depends on and that is known before the fits: one of two equal entries replaces the other."""
        return self.entrant, self.allowed, *self.race[2:]

    @property
    def race(self) -> tuple[Any, ...]:
        """The key of the race, whose milestones are entries, and of its dataset."""
        of_data = self.card, self.search, self.precision, self.fingerprint
        return self.dataset, self.entrant, self.threads, self.metric, self.rules, *of_data

    @property
    def over(self) -> bool:
        """Whether the race goes on to no further milestone."""
        return self.ended in ("settled", "exhausted") or self.status in ("diverged", "not applicable")

    @property
    def lost(self) -> bool:
        """Whether the method had its time and has no result, so that it is worse than any other."""
        return self.status in ("over budget", "diverged")

    def gain(self, metric: str) -> float | None:
        """By which share of its value the defaults are worse; None if that is not known."""
        found = self.metrics.get(metric)
        return found[0] / value - 1 if found and (value := self.default.get(metric)) else None

    def replaces(self, other: Result) -> bool:
        """Whether both are one entry."""
        return self.allowed == other.allowed and self.continues(other)

    def continues(self, other: Result) -> bool:
        """Whether both are of one race. An entry without a result may not know its data."""
        return (
            self.entrant == other.entrant
            and self.race[:-1] == other.race[:-1]
            and (self.fingerprint == other.fingerprint or "" in (self.fingerprint, other.fingerprint))
        )

    def yields_to(self, other: Result) -> bool:
        """A failure replaces nothing that says something of the method."""
        return self.status == "failed" != other.status

    def content(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Measurements are rounded; parameters are not, because a fit must be repeatable."""
        for name in ("users", "joules", "ended", "default", "curve"):
            if not getattr(self, name):
                del fields[name]
        return fields | {name: rounded(fields[name]) for name in ROUNDED if name in fields}


@dataclass(frozen=True, kw_only=True)
class Ties(Line):
    """Which of the best methods on a dataset users tell from the `best` one: the `worse` and the `equal` ones. `of`: key of the
    entries that were compared. The values of each user, which the tests need, stay where they were measured; their verdicts
    are small and travel with the store.
    """

    dataset: str
    allowed: str
    metric: str
    of: str
    best: str
    worse: tuple[str, ...]
    equal: tuple[str, ...]

    @property
    def key(self) -> tuple[str, str]:
        return self.of, self.metric

    def verdict(self, method: str) -> str:
        return "worse" if method in self.worse else "= best" if method in self.equal else ""


@dataclass(frozen=True, kw_only=True)
class Foreign(Line):
    """Foreign lists, shown beside the ranks because nobody knows what time and search they took: those called `name` of a
    program that was fitted on `fit_on`, on the data of a fingerprint, with the means of metrics on test and their intervals.
    `sha256`: of the file. `seconds`: of the fit, as the user said. `said`: what was done with users and items.
    """

    dataset: str
    name: str
    fingerprint: str
    fit_on: str
    sha256: str
    metrics: dict[str, tuple[float, float | None, float | None]]
    seconds: float | None = None
    said: tuple[str, ...] = ()
    started_at: str = ""

    @property
    def key(self) -> tuple[Any, ...]:
        return self.name, self.fingerprint

    @classmethod
    def of(cls, record: RunRecord) -> Foreign:
        """The line of a record of lists that were measured on test."""
        assert record.lists is not None
        metrics = {name: (each.mean, each.low, each.high) for name, each in record.metrics.items()}
        return cls(
            dataset=record.dataset.name, name=record.arm or "", fingerprint=record.dataset.fingerprint, fit_on=record.fit_on,
            sha256=record.lists.sha256, metrics=metrics, seconds=record.seconds.get("fit"),
            said=tuple(record.lists.sentences), started_at=record.started_at,
        )  # fmt: skip


class Leaderboard(Ledger):
    """The entries in a folder, and the tables of their users beside them."""

    kinds = {"entries": Result, "ties": Ties, "foreign": Foreign}

    def find(self, wanted: Result) -> Result | None:
        """Return the entry that `wanted` is, or the last one of its race if that was over before; None if it has to be run, as
        after a failure. `wanted` may not know its data.
        """
        race = (each for each in self.lines(Result, wanted.dataset) if each.status != "failed" and each.continues(wanted))
        done = (each for each in race if each.allowed == wanted.allowed or (each.over and each.budget < wanted.budget))
        return next(done, None)

    def tried(self, wanted: Result) -> bool:
        """Whether the entry was run, also without a result."""
        run = (each.replaces(wanted) for each in self.lines(Result, wanted.dataset))
        return any(run) or self.find(wanted) is not None

    def add(self, line: Line, per_user: pa.Table | None = None) -> None:
        """Add a line; of an entry, with the values of its users."""
        if per_user is not None:
            assert isinstance(line, Result), "only entries have users"
            path = self.path_of_users(line)
            about = {**(per_user.schema.metadata or {}), _MEASURED: line.started_at.encode()}
            with atomic_file(path) as scratch:
                pq.write_table(per_user.replace_schema_metadata(about), scratch)
        super().add(line)

    def users_of(self, result: Result, metric: str) -> UserValues | None:
        """The values of the users of an entry, None if they are not on this machine. An entry may come from elsewhere,
        in place of one that was measured here.
        """
        path = self.path_of_users(result)
        schema = pq.read_schema(path) if path.is_file() else None
        if schema is None or (schema.metadata or {}).get(_MEASURED) != result.started_at.encode():
            return None
        needed = {"user", metric, weight_column(metric)}
        return values_of(pq.read_table(path, columns=[name for name in schema.names if name in needed]), metric)

    def path_of_users(self, result: Result) -> Path:
        digest = hashlib.sha256(json.dumps(result.key).encode()).hexdigest()[:10]
        name = f"{result.entrant}-{result.allowed}-{digest}.parquet"
        return self.folder / "users" / result.dataset / name


def within(entries: Iterable[Result], allowed: str) -> list[Result]:
    """Return the entries with the budget `allowed`, and of races that were over before it the last entry."""
    entries = sorted(entries, key=lambda each: each.budget)
    found = {each.race: each for each in entries if each.allowed == allowed}
    over = {each.race: each for each in entries if each.over and each.budget < seconds_of(allowed)}
    return [*(over | found).values()]


def seconds_of(allowed: str) -> float:
    """The seconds of a budget that is called so in the store."""
    return float(allowed.removesuffix("s"))


def thinned(curve: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Return at most POINTS points of a curve, the last one in each of as many equal parts of the logarithm of the seconds."""
    if len(curve) <= POINTS:
        return tuple(curve)
    first, last = math.log(curve[0][0]), math.log(curve[-1][0])
    parts = {int((POINTS - 1) * (math.log(each[0]) - first) / (last - first)): each for each in curve}
    return tuple(parts.values())


def rounded(value: Any) -> Any:
    """Numbers with six digits after the point, or six significant ones if they are smaller than one."""
    if isinstance(value, float):
        return round(value, 6) if abs(value) >= 1 else float(f"{value:.6g}")
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, list | tuple) else value
