"""Points of the fits that run, on their way to MLflow. They cost a fit no time: a thread of its own writes the messages.

A fit has at most one message in the spool, and no other before that is delivered: the rows of a slow or dead store wait here,
and all of them are in the record at the end. Fits of a few seconds have none. That a fit was interrupted is said when the sink
is closed, or, if its process is killed, by its last words.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from rankbench.core.errors import RankbenchError
from rankbench.tracking.last_words import LastWords
from rankbench.tracking.spool import CurveMessage, Spool, milliseconds

BEGIN = 1.0  # seconds of a fit until the uploader is started, which takes some itself
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
    """The running fits of one sink. `begin` starts the uploader; nothing is written if it returns False."""

    def __init__(self, spool: Spool, last_words: LastWords, begin: Callable[[], bool]):
        self.spool, self.last_words, self.begin = spool, last_words, begin
        self._fits: dict[str, LiveFit] = {}
        self._adding, self._writing, self._over = threading.Lock(), threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None

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
                self.last_words.take_back(id)
                fit.sent[1].unlink(missing_ok=True)

    def close(self, reason: str = "") -> list[Path]:
        """Say of the fits that still run that they were interrupted, or ended by the error `reason`; return the messages.
        Raises as `Spool.put`.
        """
        self._over.set()
        if self._thread:
            self._thread.join(timeout=1.0)
            self._thread = None
        interrupted = [fit for fit in self._fits.values() if fit.sent]
        self._fits.clear()
        ended = {"ended": True, "reason": reason}
        return [self.spool.put(replace(fit.about, rows=fit.rows, time=milliseconds(), **ended)) for fit in interrupted]

    def _work(self) -> None:
        while not self._over.wait(LOOK):
            now = time.monotonic()
            with self._adding:
                old = [fit for fit in self._fits.values() if now - fit.since >= BEGIN]
            if old and not self.begin():  # which also starts one again that died
                return
            for fit in (each for each in old if each.is_due(now)):
                with self._writing:
                    if self._fits.get(fit.about.id) is fit:
                        self._write(fit)

    def _write(self, fit: LiveFit) -> None:
        with self._adding:
            rows, fit.rows = fit.rows, []
        try:
            if fit.sent is None:
                self.last_words.say(fit.about.id, replace(fit.about, time=milliseconds(), ended=True))
            fit.sent = time.monotonic(), self.spool.put(replace(fit.about, rows=rows, time=milliseconds()))
        except (OSError, RankbenchError):  # as of a full disk; the record has them in the end
            with self._adding:
                fit.rows = rows + fit.rows
