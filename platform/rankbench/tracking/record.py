"""The record of a run: record.json and per_user.parquet. Tables, reports and MLflow runs are all made from it."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from dataclasses import replace as with_values
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ConfigDict

from rankbench.core.code import fingerprint_with
from rankbench.core.config import adapter, read_json
from rankbench.core.errors import DataError, first_line, shown
from rankbench.core.files import Fence, atomic_folder
from rankbench.tracking.foreign_lists import ForeignLists

FORMAT = 1
TIED, SHARE_TIED = "tied", 0.01  # users whose list ends between equal scores, and from which share on that is said


@dataclass(frozen=True)
class Measured:
    """Mean of a metric over users with its 95 % interval. Metrics of whole lists, such as coverage, have no interval."""

    mean: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class DatasetInfo:
    """The dataset of a run. An unfinished run may know only the name: its fingerprint is empty, and only the name is stored.
    `cold_users`: how users without a history are measured.
    """

    __pydantic_config__ = ConfigDict(extra="ignore")

    name: str
    fingerprint: str = ""
    protocol: str = ""
    split_seed: int = 0
    recall: str = ""
    stand_in: str | None = None
    counts: dict[str, int] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)
    sources: list[dict[str, Any]] = field(default_factory=list)
    raw_gone: str | None = None
    cold_users: str = ""


@dataclass(frozen=True)
class Searched:
    """What a run within a budget of time did before its measurement: it tried settings, of which the best had the value `valid`
    on the validation set. `ended`: whether more time would have helped. `default`: means on test of the method's defaults,
    which had as much time as any other setting. `traits`: those of the train part. `refused`: the method cannot be measured on
    these data, and nothing else is known.
    """

    valid: float = 0.0
    tried: int = 0
    ended: Literal["", "settled", "exhausted", "still gaining"] = ""
    default: dict[str, float] = field(default_factory=dict)
    traits: dict[str, float] = field(default_factory=dict)
    refused: bool = False


def ties_in_words(tied: int, users: int) -> str | None:
    """A sentence if the lists of a hundredth of the users or more end between equal scores; otherwise None."""
    if tied < max(1, SHARE_TIED * users):
        return None
    return f"the lists of {tied:,} of {users:,} users end between items with equal scores, and those with lower ids are in"


@dataclass(frozen=True)
class RunRecord:
    """A setting that was fitted and measured once, with JSON values only. `status`: finished, failed, or stopped early because
    other trials of its arm did better; `error` is the reason.

    `curve`: for iterative methods one row per iteration, with iteration, training seconds and loss per interaction; some rows
    have metrics on a sample of users or the validation metric. `iterations`: the number after which the kept model was taken,
    if early stopping chose it. `same_as`: id of a run whose ranking is provably the same. `seconds`: by phase; if
    `fit_shared_by` settings share a fit, each states all of its time. `tiles`: rows per tile if the item-item matrix did not
    fit into memory and was solved by tiles in a file. `peak_memory_bytes`: resident memory.
    `groups`: means of the users with and without a history, if there are both.
    `joules`: energy of the machine during the fit, if it was measured and the fit had the machine for itself.
    `workers`: processes that made the gradient steps together; their memory does not count. `searched`: for an entry of a
    leaderboard. `lists`: of foreign lists, which were measured and not fitted here.
    """

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)

    id: str
    method: str
    params: dict[str, Any]
    dataset: DatasetInfo
    fit_on: str
    measured_on: str
    seed: int
    dtype: str
    status: Literal["finished", "failed", "stopped"] = "finished"
    error: str | None = None
    arm: str | None = None
    stage: str = "run"
    metrics: dict[str, Measured] = field(default_factory=dict)
    users: dict[str, int] = field(default_factory=dict)
    groups: dict[str, dict[str, float]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    curve: list[dict[str, int | float]] = field(default_factory=list)
    iterations: int | None = None
    fit_shared_by: int = 1
    tiles: int | None = None
    same_as: str | None = None
    peak_memory_bytes: int = 0
    joules: float | None = None
    threads: int = 0
    workers: int = 1
    device: str = "cpu"
    searched: Searched | None = None
    lists: ForeignLists | None = None
    environment: dict[str, Any] = field(default_factory=dict)
    started_at: str = ""
    format: Literal[1] = FORMAT

    @property
    def label(self) -> str:
        """The name of its row in a table: that of its arm, or of the method of a run without one."""
        return self.arm or self.method

    @property
    def finished(self) -> bool:
        return self.status == "finished"

    @property
    def failed(self) -> bool:
        return self.status == "failed"

    @property
    def stopped(self) -> bool:
        return self.status == "stopped"

    @property
    def code(self) -> str:
        """The fingerprint of the code that made it: of the package and of the plugins that it used."""
        plugins = (plugin["sha256"] for plugin in self.environment.get("plugins", ()))
        return fingerprint_with(self.environment.get("code") or "unknown", plugins)

    @property
    def own_seconds(self) -> float:
        """The seconds of the fit, of a stopped one until its last evaluation; of a fit that settings share, its part."""
        until_stopped = self.curve[-1].get("seconds", 0.0) if self.stopped and self.curve else 0.0
        return self.seconds.get("fit", until_stopped) / max(self.fit_shared_by, 1)

    @property
    def tie_warning(self) -> str | None:
        """A sentence if ids decide which items are in the lists of a hundredth of the users or more, as if a method knows
        nothing of most items.
        """
        return ties_in_words(self.users.get(TIED, 0), self.users.get("measured", 0))

    def interval_warning(self, names: Iterable[str] | None = None) -> str | None:
        """Return a sentence if the intervals of the metrics `names` (default: all) tell nothing: one user was measured, or
        all users have the same value, though not because the list is the whole catalogue. Otherwise None.
        """
        if (n_users := self.users.get("measured")) == 1:
            return "only one user was measured, so no interval or test says anything about other users"
        n_items = self.dataset.counts.get("items", sys.maxsize)
        cut = [name for name in (self.metrics if names is None else names) if int(name.partition("@")[2] or 0) < n_items]
        chosen = [(name, self.metrics[name]) for name in cut if name in self.metrics]
        # Means of equal values differ by rounding alone.
        flat = [name for name, m in chosen if m.low is not None and m.high is not None and m.high - m.low <= 1e-9 * abs(m.high)]
        if not flat:
            return None
        return f"all {n_users:,} users have the same {', '.join(flat)}, so an interval of no width is no sign of precision"


def about_cold_users(records: Sequence[RunRecord], metric: str | None = None) -> str | None:
    """Return a sentence on the users without a history in finished runs on one dataset, with the means of both groups: of
    `metric`, by default the first nDCG, over the runs of an arm. None if all users have a history.
    """
    # How many there are depends on the parts that a model was fitted on: a user's history may be in validation alone.
    numbers = {each.fit_on: each.users.get("without_history", 0) for each in reversed(records)}
    first = next((each for each in records if numbers[each.fit_on]), None)
    if first is None:
        return None
    number = numbers.pop(first.fit_on)
    mode, dropped = first.dataset.cold_users, first.dataset.cold_users == "drop"
    how = {"drop": "they are left out", "popularity": "popularity ranks for them", "keep": "each method ranks for them"}[mode]
    total = first.users["measured"] + number * dropped
    text = f"{number:,} of {total:,} users with {first.measured_on} items have no history for a model fitted on {first.fit_on}"
    text += "".join(f" ({other:,} for one fitted on {parts})" for parts, other in numbers.items())
    text += f", and {how} (cold_users: {mode})"
    names = [metric or "", *(name for name in first.metrics if name.startswith("ndcg@")), *first.metrics]
    name = next((name for name in names if name in first.groups["without_history"]), "")
    arms: dict[str, list[tuple[float, float]]] = {}
    for record in records:
        if name in record.groups.get("with_history", {}):
            both = record.groups["without_history"][name], record.groups["with_history"][name]
            arms.setdefault(record.label, []).append(both)
    if not arms:
        return text
    if dropped:
        return f"{text}; popularity has {name} {first.groups['without_history'][name]:.4f} on them"
    means = {arm: np.mean(both, axis=0) for arm, both in arms.items()}
    return f"{text}; {name} of users without and with history: " + ", ".join(
        f"{arm} {without:.4f} and {known:.4f}" for arm, (without, known) in means.items()
    )


def record_content(record: RunRecord) -> dict[str, Any]:
    """Return what record.json holds."""
    content = asdict(record)
    if not record.dataset.fingerprint:
        content["dataset"] = {"name": record.dataset.name}
    for name in ("searched", "lists", "joules"):
        if content[name] is None:
            del content[name]
    return content


def write_record(
    folder: Path, record: RunRecord, per_user: pa.Table | None, replace: bool = False, fence: Fence | None = None
) -> Path:
    """Write folder/<id>/, whole or not at all, and return it. A finished record of the same id is kept unless `replace`; any
    other is replaced once the new one is complete. With a `fence` nothing is written once that is superseded.
    """
    target = folder / record.id
    earlier = None if replace else find_record(target)
    with atomic_folder(target, replace=earlier is None or not earlier.finished, fence=fence) as scratch:
        _write_content(scratch, record)
        if per_user is not None:
            pq.write_table(per_user, scratch / "per_user.parquet", compression="zstd")
    return target


def require_own(folder: Path, record: RunRecord) -> None:
    """Raise DataError if the content of a record, which may be of others, would name a folder elsewhere."""
    if record.id != folder.name or not re.fullmatch(r"\w+", record.code):
        raise DataError(f"{folder}: its record is of {shown(record.id)}, of the code {shown(record.code)}; remove the folder")


def keep_aside(folder: Path, record: RunRecord) -> Path:
    """Copy the `record` in `folder`, which one of other code will replace, to <id>.<fingerprint of its code>; return that.
    Raises DataError as `require_own` does.
    """
    require_own(folder, record)
    kept = with_values(record, id=f"{record.id}.{record.code}")
    with atomic_folder(folder.parent / kept.id, replace=True) as scratch:
        shutil.copytree(folder, scratch, dirs_exist_ok=True)
        _write_content(scratch, kept)
    return folder.parent / kept.id


def _write_content(folder: Path, record: RunRecord) -> None:
    text = json.dumps(record_content(record), indent=2, allow_nan=False)
    (folder / "record.json").write_text(text + "\n", encoding="utf-8")


def read_record(folder: Path) -> RunRecord:
    """Return the record in `folder`. Raises DataError if there is none or it has another format."""
    path = folder / "record.json"
    record = read_json(path, adapter(RunRecord), "a run record")
    if record.finished and not record.dataset.fingerprint:
        raise DataError(f"{path}: not a run record (dataset.fingerprint: missing)")
    return record


def record_of(content: dict[str, Any]) -> RunRecord:
    """Return the record that `record_content` wrote, of a fit that may not have ended. Raises ValidationError."""
    return adapter(RunRecord).validate_python(content)


def find_record(folder: Path) -> RunRecord | None:
    """Return the record in `folder`, None if the folder or its record.json is missing. Raises DataError as read_record."""
    return read_record(folder) if (folder / "record.json").is_file() else None


def read_records(folder: Path) -> list[RunRecord]:
    """Return the records directly under `folder`, sorted by id. Raises DataError for the first that cannot be read."""
    return [read_record(path.parent) for path in sorted(folder.glob("[!.]*/record.json"))]


def per_user_table(user_ids: pa.Array, columns: dict[str, np.ndarray]) -> pa.Table:
    """Return a table with the column user (raw ids) and one float32 column per metric, or of weights."""
    return pa.table({"user": user_ids} | {name: value.astype(np.float32) for name, value in columns.items()})


def read_per_user(folder: Path) -> pa.Table:
    """Return the per-user metrics of a finished record. Raises DataError if they are missing or damaged."""
    path = folder / "per_user.parquet"
    if not path.is_file():  # reading a pipe would never end
        raise DataError(f"{path}: no such file")
    try:
        table = pq.ParquetFile(path).read()
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path}: {first_line(error)}") from None
    if "user" not in table.column_names:
        raise DataError(f"{path}: no column user")
    for name, column in zip(table.column_names, table.columns, strict=True):
        if column.null_count:
            raise DataError(f"{path}: {column.null_count} rows have no {name}")
        if name != "user" and not pa.types.is_floating(column.type):
            raise DataError(f"{path}: column {name} holds {column.type}, not numbers")
    return table
