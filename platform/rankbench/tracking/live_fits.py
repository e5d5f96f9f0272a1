"""Points of the fits that run, on their way to MLflow. They cost a fit no time: a thread of its own writes the messages.

A fit has at most one message in the spool, and no other before that is delivered: the rows of a slow or dead store wait here,
and all of them are in the record at the end. Fits of a few seconds have none. Beside the spool, each fit that runs has the
message that it was interrupted. This process sends it at its end, or, if it was killed, the next uploader (`Spool.inherit`).
"""

from __future__ import annotations

import hashlib
import math
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from filelock import FileLock

from rankbench.core.errors import RankbenchError
from rankbench.core.files import make_folder, write_json
from rankbench.tracking.spool import LIVE, LOCK, CurveMessage, Spool

YOUNG = 3.0  # seconds that a fit may take before it has a run
EVERY = 2.0  # seconds between two messages of a fit
LOOK = 0.25  # seconds between two looks at what is to be sent


@dataclass
class LiveFit:
    """A fit with the `rows` that are not sent yet. `about` is its message without any, `since` the time at which it began, and
    `sent` the time and the file of its last message.
    """

    about: CurveMessage
    rows: list[dict[str, float]]
    since: float
    sent: tuple[float, Path] | None = None

    def is_due(self, now: float) -> bool:
        if self.sent is None:
            return now - self.since >= YOUNG
        at, path = self.sent
        return bool(self.rows) and now - at >= EVERY and not path.exists()


class LiveFits:
    """The running fits of one sink. `begin` is called before the first message, which is not written if it returns False."""

    def __init__(self, spool: Spool, begin: Callable[[], bool]):
        self.spool, self.begin = spool, begin
        self._fits: dict[str, LiveFit] = {}
        self._adding, self._writing, self._over = threading.Lock(), threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None
        self._lock: FileLock | None = None  # in the folder of the messages for the time after this process
        self._after = spool.folder / LIVE / f"{os.getpid()}-{secrets.token_hex(4)}"

    def add(self, about: CurveMessage, rows: Sequence[Mapping[str, float]]) -> None:
        """Take new rows of a fit. One that begins again, because its worker was lost, has another start."""
        finite = [{name: value for name, value in row.items() if math.isfinite(value)} for row in rows]
        if not finite:
            return
        with self._adding:
            fit = self._fits.get(about.id)
            if fit is None or fit.about.started != about.started:
                fit = self._fits[about.id] = LiveFit(about, [], time.monotonic() - finite[-1]["seconds"])
            fit.rows += finite
            if self._thread is None:
                self._over.clear()
                self._thread = threading.Thread(target=self._work, daemon=True)
                self._thread.start()

    def end(self, id: str) -> None:
        """Forget a fit, whose record says everything."""
        with self._adding:
            fit = self._fits.pop(id, None)
        if fit and fit.sent:
            with self._writing, suppress(OSError):
                fit.sent[1].unlink(missing_ok=True)
                self._said_after(id).unlink(missing_ok=True)

    def close(self) -> list[Path]:
        """Say of the fits that still run that they were interrupted; return the messages."""
        self._over.set()
        if self._thread:
            self._thread.join(timeout=1.0)
            self._thread = None
        messages = []
        with suppress(OSError, RankbenchError):
            for fit in self._fits.values():
                if fit.sent:
                    messages.append(self.spool.put(replace(fit.about, rows=fit.rows, time=now(), ended=True)))
            shutil.rmtree(self._after, ignore_errors=True)
        self._fits.clear()
        if self._lock:
            self._lock.release()
            self._lock = None
        return messages

    def _work(self) -> None:
        begun = False
        while not self._over.wait(LOOK):
            with self._adding:
                due = [fit for fit in self._fits.values() if fit.is_due(time.monotonic())]
            if due and not begun and not (begun := self.begin()):
                return
            for fit in due:
                with self._writing:
                    if self._fits.get(fit.about.id) is fit:
                        self._write(fit)

    def _write(self, fit: LiveFit) -> None:
        with self._adding:
            rows, fit.rows = fit.rows, []
        try:
            if fit.sent is None:
                self._write_for_after(fit)
            fit.sent = time.monotonic(), self.spool.put(replace(fit.about, rows=rows, time=now()))
        except (OSError, RankbenchError):  # as of a full disk; the record has them in the end
            with self._adding:
                fit.rows = rows + fit.rows

    def _write_for_after(self, fit: LiveFit) -> None:
        if self._lock is None:
            hidden = self._after.with_name(f".{self._after.name}")
            make_folder(hidden)
            lock = FileLock(hidden / LOCK)
            lock.acquire()
            hidden.rename(self._after)  # seen by others only now: a folder without a lock is one of a process that has ended
            self._lock = lock
        write_json(self._said_after(fit.about.id), asdict(replace(fit.about, time=now(), ended=True)))

    def _said_after(self, id: str) -> Path:
        return self._after / f"{hashlib.sha256(id.encode()).hexdigest()[:16]}.json"


def now() -> int:
    """Return ms since 1970."""
    return int(time.time() * 1000)
