"""The spool: a folder of small messages for MLflow, each kept until the store has accepted it.

A message is one JSON file that is written atomically, under a name that sorts by time. It contains all that its delivery
needs, or the folder of a record relative to the results. So it may be delivered days later, by another process, and twice.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

from filelock import FileLock, Timeout
from pydantic import Field, TypeAdapter, ValidationError

from rankbench.core.errors import DataError
from rankbench.core.files import write_json

AFTER, LOCK = "after", "lock"  # the folder of what last_words.py keeps, and the lock of each process


@dataclass(frozen=True, kw_only=True)
class Placed:
    """What all messages say: when they were written (ms since 1970) and where their runs belong.

    The experiment is named, or has an id that MLflow gave it. `parent` is a run that the user chose (MLFLOW_RUN_ID). `store`:
    the server or database that they were written for; empty for a SQLite file. `origin`: the results that they are of, by which
    runs of other people on the same server are told apart; empty in messages of version 0.2.
    """

    experiment: str
    time: int
    store: str = ""
    origin: str = ""
    experiment_id: str | None = None
    parent: str | None = None


@dataclass(frozen=True, kw_only=True)
class RunMessage(Placed):
    """A record to send: its folder, the sweep it belongs to, and its name.

    `params` are the parameters that the fit used, and None in messages of version 0.1, which show all of them.
    """

    record: str
    sweep: str | None = None
    tags: dict[str, str] = field(default_factory=dict)
    name: str = ""
    params: list[str] | None = None
    first: str = ""  # the metric that is logged first
    kind: Literal["run"] = "run"


@dataclass(frozen=True, kw_only=True)
class SweepStart(Placed):
    """A sweep started or resumed. `experiment_tags`: for the experiment, such as views. `begun`: the name of the start."""

    sweep: str
    params: dict[str, str]
    tags: dict[str, str]
    name: str = ""
    experiment_tags: dict[str, str] = field(default_factory=dict)
    begun: str = ""
    kind: Literal["sweep-start"] = "sweep-start"


@dataclass(frozen=True, kw_only=True)
class SweepEnd(Placed):
    """A sweep ended: its report files and a note in Markdown. `interrupted`: it has neither, and may be resumed. `begun`: that
    of its start; the end of a process counts for nothing once another one has started the sweep again.
    """

    sweep: str
    files: list[str]
    note: str
    ok: bool
    interrupted: bool = False
    begun: str = ""
    kind: Literal["sweep-end"] = "sweep-end"


@dataclass(frozen=True, kw_only=True)
class Shown(Placed):
    """What a run shows that is made from the message alone. `id` is what runs are found by, `started` in ms since 1970."""

    id: str
    name: str
    tags: dict[str, str]
    params: dict[str, str]
    started: int


@dataclass(frozen=True, kw_only=True)
class EntryMessage(Shown):
    """What was measured without a record, as an entry of a leaderboard.

    `rows`: of a curve, as in a record. A `reason` makes it a failed run.
    """

    metrics: dict[str, float]
    seconds: float
    rows: list[dict[str, float]] = field(default_factory=list)
    reason: str = ""
    kind: Literal["entry"] = "entry"


@dataclass(frozen=True, kw_only=True)
class ArmMessage(Shown):
    """An arm of a sweep on a dataset: the means over its seeds, whose records have the ids `seeds`, and what the tests say.

    Another message of the same id replaces its run. `seconds` and `reason`: as in EntryMessage. `curve`: one row per iteration,
    as in a record.
    """

    sweep: str
    seeds: list[str]
    metrics: dict[str, float]
    curve: list[dict[str, float]]
    seconds: float
    reason: str = ""
    kind: Literal["arm"] = "arm"


@dataclass(frozen=True, kw_only=True)
class CurveMessage(Shown):
    """New points of a fit that runs, and all that its run shows before its end; each attempt at a fit has another `started`.

    `rows`: of the curve. `stage`: as in its record. `ended`: nobody goes on with the fit, and it has no record; `reason`: the
    error that ended it.
    """

    rows: list[dict[str, float]]
    sweep: str | None = None
    stage: str = ""
    ended: bool = False
    reason: str = ""
    kind: Literal["curve"] = "curve"


@dataclass(frozen=True, kw_only=True)
class ExperimentMessage(Placed):
    """Tags of an experiment, among them views, and its description. What it has already, perhaps from its user, stays."""

    tags: dict[str, str]
    description: str
    kind: Literal["experiment"] = "experiment"


Message = RunMessage | SweepStart | SweepEnd | EntryMessage | ArmMessage | CurveMessage | ExperimentMessage

_FORMAT = TypeAdapter(Annotated[Message, Field(discriminator="kind")])
_STAMP_LOCK = threading.Lock()
_last_stamp = 0


@dataclass(frozen=True)
class Spool:
    """The messages in `folder`, which need not exist yet."""

    folder: Path

    @classmethod
    def beside(cls, artifacts: Path) -> Spool:
        return cls(artifacts.parent / "spool")

    @property
    def lock(self) -> Path:
        """The lock file of the one process that delivers messages."""
        return self.folder / ".lock"

    def put(self, message: Message) -> Path:
        """Write a message and return its file. Raises OSError or StorageError if that fails."""
        return write_json(self._next(), asdict(message))

    def _next(self) -> Path:
        return self.folder / f"{_stamp():020d}-{os.getpid()}.json"

    def inherit(self) -> None:
        """Make messages of what processes have left in the folder `AFTER`, if they have ended."""
        for left in self.folder.glob(f"{AFTER}/[!.]*"):
            try:
                with FileLock(left / LOCK, timeout=0):
                    for path in sorted(left.glob("[!.]*.json")):
                        path.rename(self._next())
            except Timeout:
                continue
            shutil.rmtree(left, ignore_errors=True)

    def waiting(self) -> list[Path]:
        """Return the messages, oldest first, without the incomplete files of killed writers."""
        return sorted(self.folder.glob("[!.]*.json"))

    def read(self, path: Path) -> Message:
        """Read a message. Raises DataError if it is damaged, FileNotFoundError if another process has delivered it."""
        try:
            return _FORMAT.validate_json(path.read_bytes())
        except ValidationError as error:
            raise DataError(f"{path}: not a tracking message ({error.errors()[0]['msg']})") from None

    def of_others(self, store: str) -> int:
        """Return how many messages were written for another server or database than `store`."""
        n = 0
        for path in self.waiting():
            with suppress(DataError, OSError):
                n += self.read(path).store not in ("", store)
        return n

    def set_aside(self, path: Path) -> Path:
        """Rename a message that can never be delivered, so that it does not block others."""
        return path.rename(path.with_suffix(".bad"))

    def aside(self) -> list[Path]:
        return sorted(self.folder.glob("[!.]*.bad"))


def milliseconds(at: str | None = None) -> int:
    """Return ms since 1970 of a time in ISO format, by default of now."""
    return int(1000 * (time.time() if at is None else datetime.fromisoformat(at).timestamp()))


def _stamp() -> int:
    """Return nanoseconds since 1970, larger with every call in this process even if the clock stands still or goes back."""
    global _last_stamp
    with _STAMP_LOCK:
        _last_stamp = max(time.time_ns(), _last_stamp + 1)
        return _last_stamp
