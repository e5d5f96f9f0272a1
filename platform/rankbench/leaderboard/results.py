"""The store of a leaderboard: a line of JSON per entry, small enough to be committed, and the values of each user beside it.

DATASET.jsonl                            one line per entrant and budget, also for those without a result
users/DATASET/ENTRANT-BUDGET.parquet     each metric of each user, its mean over the seeds; only where the entry was run
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock
from pydantic import ConfigDict

from rankbench.core.errors import DataError
from rankbench.core.files import atomic_file, write_text
from rankbench.core.json_lines import read_json_lines
from rankbench.evaluation.user_tables import UserValues, values_of, weight_column

_MEASURED = b"started_at"  # metadata of a table of users: when its entry was measured
Status = Literal["finished", "over budget", "not applicable", "failed"]


@dataclass(frozen=True)
class Result:
    """An entrant on a dataset within `allowed`, a budget such as 30s or 30s/M, which here are `budget` seconds.

    `card`: key of the dataset's card; `fingerprint`: that of the prepared data. `rules`: key of what the entrant fixes and
    searches. `params`: those that it chose, by the `metric` whose value on the validation set is `valid`, among `tried`
    settings. `metrics`: means on test over users and `seeds`, with 95 % intervals over users. `by_seed`: means of `metric` on
    test. `traits`: those of the train part (`traits.py`). `seconds`: of the search, of all that the budget counts, of the best
    fit until its best iteration, and of the test. Without a result, `reason` says why.
    """

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)

    dataset: str
    card: str
    entrant: str
    rules: str
    allowed: str
    budget: float
    metric: str
    status: Status = "finished"
    reason: str = ""
    fingerprint: str = ""
    method: str = ""
    params: dict[str, Any] = field(default_factory=dict)
    valid: float | None = None
    tried: int = 0
    seeds: tuple[int, ...] = ()
    iterations: int | None = None
    metrics: dict[str, tuple[float, float | None, float | None]] = field(default_factory=dict)
    by_seed: tuple[float, ...] = ()
    traits: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    threads: int = 1
    peak_memory_gb: float = 0.0
    cpu: str = ""
    revision: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    started_at: str = ""

    @property
    def finished(self) -> bool:
        return self.status == "finished"

    @property
    def key(self) -> tuple[Any, ...]:
        """What makes two entries the same: one of them replaces the other."""
        return self.entrant, self.allowed


class Results:
    """The entries in a folder, which need not exist. `add` writes the file of the dataset anew, whole or not at all."""

    def __init__(self, folder: Path):
        """Read the folder. Raises DataError naming file and line for what cannot be read."""
        self.folder = folder
        self.of_dataset: dict[str, list[Result]] = {}
        for path in sorted(folder.glob("[!.]*.jsonl")):  # not what another process is writing
            self.of_dataset[path.name.removesuffix(".jsonl")] = _read(path)

    def all(self) -> Iterable[Result]:
        for entries in self.of_dataset.values():
            yield from entries

    def find(
        self, dataset: str, card: str, fingerprint: str, entrant: str, rules: str, allowed: str, metric: str, threads: int
    ) -> Result | None:
        """Return the entry with these rules on these data, None if it has to be run, as after a failure. `fingerprint`: that of
        the data now; an entry without a result may not have one. `threads`: those of a fit, since they decide what a budget
        buys.
        """
        wanted = (card, entrant, rules, allowed, metric, threads)
        for each in self.of_dataset.get(dataset, ()):
            same = (each.card, each.entrant, each.rules, each.allowed, each.metric, each.threads) == wanted
            if same and each.status != "failed" and each.fingerprint in ("", fingerprint):
                return each
        return None

    def add(self, result: Result, per_user: pa.Table | None = None) -> None:
        """Add an entry, in place of an earlier one of the same entrant and budget, with the values of its users; but a failure
        replaces nothing that was measured. Entries that another process has added to the file of the dataset are kept.
        """
        if per_user is not None:
            path = self.path_of_users(result)
            path.parent.mkdir(parents=True, exist_ok=True)
            about = {**(per_user.schema.metadata or {}), _MEASURED: result.started_at.encode()}
            with atomic_file(path) as scratch:
                pq.write_table(per_user.replace_schema_metadata(about), scratch)
        path = self.folder / f"{result.dataset}.jsonl"
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / f".{result.dataset}.lock"):
            stored = _read(path) if path.is_file() else []
            earlier = next((each for each in stored if each.key == result.key), None)
            kept = earlier if earlier and earlier.finished and result.status == "failed" else result
            entries = sorted([*(each for each in stored if each.key != result.key), kept], key=lambda each: each.key)
            self.of_dataset[result.dataset] = entries
            write_text(path, "".join(f"{_line(each)}\n" for each in entries))

    def users_of(self, result: Result, metric: str) -> UserValues | None:
        """The values of the users of an entry, None if they are not on this machine. An entry may come from elsewhere,
        in place of one that was measured here.
        """
        path = self.path_of_users(result)
        if not path.is_file():
            return None
        schema = pq.read_schema(path)
        if (schema.metadata or {}).get(_MEASURED) != result.started_at.encode():
            return None
        needed = {"user", metric, weight_column(metric)}
        return values_of(pq.read_table(path, columns=[name for name in schema.names if name in needed]), metric)

    def path_of_users(self, result: Result) -> Path:
        return self.folder / "users" / result.dataset / f"{result.entrant}-{result.allowed.replace('/', '-per-')}.parquet"


def _line(result: Result) -> str:
    """The line of an entry. Measurements are rounded; parameters are not, because a fit must be repeatable."""
    content = asdict(result)
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


def _read(path: Path) -> list[Result]:
    results = read_json_lines(path, Result)
    for number, each in enumerate(results, start=1):
        # Names become names of files.
        if each.dataset != path.stem or not re.fullmatch(r"\w[\w.+-]*", each.entrant):
            raise DataError(f"{path}:{number}: {each.entrant} on {each.dataset} does not belong into this file")
    return results
