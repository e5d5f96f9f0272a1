"""What MLflow has still to be told: a folder of small messages, each kept until the store has taken it.

A message is one JSON file that appears whole, under a name that sorts by time. It says all that its delivery needs, or
names a record's folder relative to the results; so a delivery may come days later, from another process, and twice.
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
    """A record to be shown: its folder, and the sweep it belongs to."""

    experiment: str
    time: int  # when it was written, ms since 1970
    record: str
    sweep: str | None = None
    tags: dict[str, str] = field(default_factory=dict)  # what the sweep says of all its runs
    named: list[str] = field(default_factory=list)  # parameters that its name shows; none: all
    kind: Literal["run"] = "run"


@dataclass(frozen=True, kw_only=True)
class SweepStart:
    """A sweep began, or goes on."""

    experiment: str
    time: int
    sweep: str
    params: dict[str, str]
    tags: dict[str, str]
    kind: Literal["sweep-start"] = "sweep-start"


@dataclass(frozen=True, kw_only=True)
class SweepEnd:
    """A sweep is over: its headline metrics, report files and a note in Markdown."""

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
_NAMING = threading.Lock()
_newest = 0


@dataclass(frozen=True)
class Spool:
    """The messages in `folder`, which need not exist."""

    folder: Path

    @property
    def lock(self) -> Path:
        """Held by the one process that delivers."""
        return self.folder / ".lock"

    def put(self, message: Message) -> Path:
        """Keep a message. Raises OSError or StorageError where the disk does not take it."""
        path = self.folder / f"{_stamp():020d}-{os.getpid()}.json"
        write_json(path, asdict(message))
        return path

    def waiting(self) -> list[Path]:
        """Oldest first; what a killed writer left half-written is not among them."""
        return sorted(self.folder.glob("[!.]*.json"))

    def read(self, path: Path) -> Message:
        """Raises DataError for a damaged message, FileNotFoundError when another process has delivered it."""
        try:
            return _FORMAT.validate_json(path.read_bytes())
        except ValidationError as error:
            raise DataError(f"{path}: not a tracking message ({error.errors()[0]['msg']})") from None

    def set_aside(self, path: Path) -> Path:
        """Rename a message that can never be delivered, so that it blocks no other."""
        return path.rename(path.with_suffix(".bad"))

    def aside(self) -> list[Path]:
        return sorted(self.folder.glob("[!.]*.bad"))


def _stamp() -> int:
    """Nanoseconds since 1970, larger at every call of this process even where the clock stands or goes back."""
    global _newest
    with _NAMING:
        _newest = max(time.time_ns(), _newest + 1)
        return _newest
