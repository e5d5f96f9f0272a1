"""The store of a leaderboard: a line of JSON per entry, small enough to be committed, and the values of each user beside it.

DATASET.jsonl                                one line per entry (`Result.key`), also for those without a result
users/DATASET/ENTRANT-BUDGET-KEY.parquet     each metric of each user, its mean over the seeds; only where the entry was run
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ConfigDict, Field

from rankbench.core.files import atomic_file
from rankbench.core.json_lines import JsonLines
from rankbench.evaluation.user_tables import UserValues, values_of, weight_column

_MEASURED = b"started_at"  # metadata of a table of users: when its entry was measured
Status = Literal["finished", "over budget", "not applicable", "failed"]
Name = Annotated[str, Field(pattern=r"^\w[\w.+-]{0,149}$")]  # part of the name of a file: at most a loss and an encoder
Several = Annotated[int, Field(ge=1)]
Number = Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class Result:
    """An entrant on a dataset within `allowed`, a budget such as 30s or 30s/M, which here are `budget` seconds.

    `card`: key of the dataset's card; `fingerprint`: that of the prepared data. `rules`: key of what the entrant fixes and
    searches. `params`: those that it chose, by the `metric` whose value on the validation set is `valid`, among `tried`
    settings. `metrics`: means on test over users and `seeds`, with 95 % intervals over users. `by_seed`: means of `metric` on
    test. `users`: how many were measured, and how many have no history, if there are any. `traits`: those of the train part
    (`traits.py`). `seconds`: of the search, of all that the budget counts, of the best fit until its best iteration, and of the
    test. Without a result, `reason` says why.
    """

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)

    dataset: Name
    card: str
    entrant: Name
    rules: str
    allowed: Annotated[str, Field(pattern=r"^[0-9][0-9.e+]*s(/M)?$")]
    budget: Annotated[float, Field(gt=0)]
    metric: str
    status: Status = "finished"
    reason: str = ""
    fingerprint: str = ""
    method: Annotated[str, Field(pattern=r"^[\w.+-]{0,150}$")] = ""
    params: dict[str, Any] = field(default_factory=dict)
    valid: float | None = None
    tried: Number = 0
    seeds: tuple[int, ...] = ()
    iterations: int | None = None
    metrics: dict[str, tuple[float, float | None, float | None]] = field(default_factory=dict)
    by_seed: tuple[float, ...] = ()
    users: dict[str, int] = field(default_factory=dict)
    traits: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    threads: Several = 1
    peak_memory_gb: float = 0.0
    cpu: str = ""
    revision: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    started_at: str = ""

    @property
    def finished(self) -> bool:
        return self.status == "finished"

    @property
    def setting(self) -> tuple[str, str, int, str]:
        """What entries must share with others to be compared with them, and the entrant: the order of the lines of a file."""
        return self.entrant, self.allowed, self.threads, self.metric

    @property
    def key(self) -> tuple[Any, ...]:
        """All that a result depends on and that is known before the fits: one of two equal entries replaces the other."""
        return *self.setting, self.rules, self.card, self.fingerprint

    def is_same(self, other: Result) -> bool:
        """Whether both are one entry. One without a result may not know its data."""
        return self.key[:-1] == other.key[:-1] and (
            self.fingerprint == other.fingerprint or "" in (self.fingerprint, other.fingerprint)
        )


class Results:
    """The entries in a folder, which need not exist. `add` writes the file of the dataset anew, whole or not at all."""

    def __init__(self, folder: Path, skipped: list[str] | None = None):
        """Read the folder. Raises DataError naming file and line for what cannot be read; with `skipped`, it is described there
        and left out.
        """
        self.folder, self.skipped = folder, skipped
        self.of_dataset: dict[str, list[Result]] = {}
        for path in sorted(folder.glob("[!.]*.jsonl")):  # not what another process is writing
            dataset = path.name.removesuffix(".jsonl")
            self.of_dataset[dataset] = self._file(dataset).read(skipped)

    def _file(self, dataset: str) -> JsonLines[Result]:
        return JsonLines(self.folder / f"{dataset}.jsonl", Result, lambda each: each.key, dataset, _line)

    def all(self) -> Iterable[Result]:
        for entries in self.of_dataset.values():
            yield from entries

    def find(self, wanted: Result) -> Result | None:
        """Return the entry that `wanted` is, None if it has to be run, as after a failure. `wanted` may not know its data."""
        same = (each for each in self.of_dataset.get(wanted.dataset, ()) if each.is_same(wanted))
        return next((each for each in same if each.status != "failed"), None)

    def read_again(self, dataset: str) -> None:
        """Read the file of a dataset, to which other processes may have added entries."""
        self.of_dataset[dataset] = self._file(dataset).read()

    def add(self, result: Result, per_user: pa.Table | None = None) -> None:
        """Add an entry, in place of an earlier one that is the same, with the values of its users; but a failure replaces
        nothing that was measured. Entries that another process has added to the file of the dataset are kept.
        """

        def added(stored: list[Result]) -> list[Result]:
            if result.status == "failed" and any(each.finished and each.is_same(result) for each in stored):
                return stored
            return sorted([*(each for each in stored if not each.is_same(result)), result], key=lambda each: each.key)

        if per_user is not None:
            path = self.path_of_users(result)
            about = {**(per_user.schema.metadata or {}), _MEASURED: result.started_at.encode()}
            with atomic_file(path) as scratch:
                pq.write_table(per_user.replace_schema_metadata(about), scratch)
        self.of_dataset[result.dataset] = self._file(result.dataset).update(added)

    def users_of(self, result: Result, metric: str) -> UserValues | None:
        """The values of the users of an entry, None if they are not on this machine. An entry may come from elsewhere,
        in place of one that was measured here.
        """
        for path in (self.path_of_users(result), self._former_path_of_users(result)):
            if not path.is_file():
                continue
            schema = pq.read_schema(path)
            if (schema.metadata or {}).get(_MEASURED) == result.started_at.encode():
                needed = {"user", metric, weight_column(metric)}
                columns = [name for name in schema.names if name in needed]
                return values_of(pq.read_table(path, columns=columns), metric)
        return None

    def path_of_users(self, result: Result) -> Path:
        digest = hashlib.sha256(json.dumps(result.key).encode()).hexdigest()[:10]
        former = self._former_path_of_users(result)
        return former.with_name(f"{former.stem}-{digest}.parquet")

    def _former_path_of_users(self, result: Result) -> Path:
        """Where the values are that were stored when an entry was known by entrant and budget alone."""
        return self.folder / "users" / result.dataset / f"{result.entrant}-{result.allowed.replace('/', '-per-')}.parquet"


def _line(result: Result) -> str:
    """The line of an entry. Measurements are rounded; parameters are not, because a fit must be repeatable."""
    content = asdict(result)
    if not result.users:
        del content["users"]  # so that lines are those of the time before the field
    for name in ("metrics", "by_seed", "traits", "seconds", "valid", "peak_memory_gb"):
        content[name] = _rounded(content[name])
    return json.dumps(content, sort_keys=True, allow_nan=False)


def _rounded(value: Any) -> Any:
    """Numbers with six digits after the point, or six significant ones if they are smaller than one."""
    if isinstance(value, float):
        return round(value, 6) if abs(value) >= 1 else float(f"{value:.6g}")
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list | tuple) else value
