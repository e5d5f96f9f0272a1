"""The spool: a folder of small messages for MLflow, each kept until the store has accepted it.

A message is one JSON file that is written atomically, under a name that sorts by time. It contains all that its delivery
needs, or the folder of a record relative to the results. So it may be delivered days later, by another process, and twice.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from rankbench.core.errors import DataError
from rankbench.core.files import write_json


@dataclass(frozen=True, kw_only=True)
class RunMessage:
    """A record to send: its folder, and the sweep it belongs to."""

    experiment: str
    time: int  # when it was written, ms since 1970
    record: str
    sweep: str | None = None
    tags: dict[str, str] = field(default_factory=dict)  # tags of all runs of the sweep
    named: list[str] = field(default_factory=list)  # parameters in the name of the run; empty: all
    kind: Literal["run"] = "run"


@dataclass(frozen=True, kw_only=True)
class SweepStart:
    """A sweep started or resumed."""

    experiment: str
    time: int
    sweep: str
    params: dict[str, str]
    tags: dict[str, str]
    kind: Literal["sweep-start"] = "sweep-start"


@dataclass(frozen=True, kw_only=True)
class SweepEnd:
    """A sweep ended: its headline metrics, report files and a note in Markdown."""

    experiment: str
    time: int
    sweep: str
    metrics: dict[str, float]
    files: list[str]
    note: str
    ok: bool
    kind: Literal["sweep-end"] = "sweep-end"


Message = RunMessage | SweepStart | SweepEnd

_FORMAT = TypeAdapter(Annotated[Message, Field(discriminator="kind")])
_STAMP_LOCK = threading.Lock()
_last_stamp = 0


@dataclass(frozen=True)
class Spool:
    """The messages in `folder`, which need not exist yet."""

    folder: Path

    @property
    def lock(self) -> Path:
        """The lock file of the one process that delivers messages."""
        return self.folder / ".lock"

    def put(self, message: Message) -> Path:
        """Write a message and return its file. Raises OSError or StorageError if that fails."""
        path = self.folder / f"{_stamp():020d}-{os.getpid()}.json"
        write_json(path, asdict(message))
        return path

    def waiting(self) -> list[Path]:
        """Return the messages, oldest first, without the incomplete files of killed writers."""
        return sorted(self.folder.glob("[!.]*.json"))

    def read(self, path: Path) -> Message:
        """Read a message. Raises DataError if it is damaged, FileNotFoundError if another process has delivered it."""
        try:
            return _FORMAT.validate_json(path.read_bytes())
        except ValidationError as error:
            raise DataError(f"{path}: not a tracking message ({error.errors()[0]['msg']})") from None

    def set_aside(self, path: Path) -> Path:
        """Rename a message that can never be delivered, so that it does not block others."""
        return path.rename(path.with_suffix(".bad"))

    def aside(self) -> list[Path]:
        return sorted(self.folder.glob("[!.]*.bad"))


def _stamp() -> int:
    """Return nanoseconds since 1970, larger with every call in this process even if the clock stands still or goes back."""
    global _last_stamp
    with _STAMP_LOCK:
        _last_stamp = max(time.time_ns(), _last_stamp + 1)
        return _last_stamp
