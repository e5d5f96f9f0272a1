"""Limits of time of a unit, kept by its own process: compiled code cannot be interrupted, so the process is ended."""

from __future__ import annotations

import faulthandler
from pathlib import Path
from typing import TextIO

from rankbench.core.files import make_folder
from rankbench.experiment.execution import Limit

OVERDUE = "overdue"  # folder beside the records; a file says why a unit is late and, once it is, where it was


class Limits:
    """The limit that a unit of this process works under, if any. `path`: its file in the folder OVERDUE."""

    def __init__(self, path: Path):
        self._path = path
        self._file: TextIO | None = None

    def begin(self, limit: Limit) -> None:
        """End this process after the seconds of `limit`, unless `end` is called or another limit begins."""
        self.end()
        make_folder(self._path.parent)
        self._file = self._path.open("w", encoding="utf-8")
        print(limit.late, file=self._file, flush=True)
        # A thread that needs no lock of Python waits, writes what the others were doing, and ends the process.
        faulthandler.dump_traceback_later(limit.seconds, exit=True, file=self._file)

    def end(self) -> None:
        if self._file:
            faulthandler.cancel_dump_traceback_later()
            self._file.close()
            self._path.unlink(missing_ok=True)
            self._file = None


def why_late(path: Path) -> str | None:
    """Return the reason of a limit if its unit went over it, None if there was no limit or its process ended otherwise."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return lines[0] if len(lines) > 1 else None
