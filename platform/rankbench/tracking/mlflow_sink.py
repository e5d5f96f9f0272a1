"""Records as MLflow runs: a view for browsing, kept in a spool, sent by a process of its own, never a reason to fail or wait.

A run or sweep only writes small files (spool.py). At its end it waits for the uploader: at most PATIENCE seconds without a
message taken, at most LIMIT in all. What is then left stays in the spool, for the next command or `rankbench tracking sync`.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rankbench.tracking.address import tracking_uri
from rankbench.tracking.delivery import Delivery
from rankbench.tracking.mlflow_runs import metric_key
from rankbench.tracking.record import RunRecord
from rankbench.tracking.redaction import without_password
from rankbench.tracking.spool import Message, RunMessage, Spool, SweepEnd, SweepStart

__all__ = ["LIMIT", "PATIENCE", "MlflowSink", "metric_key", "tracking_uri"]

log = logging.getLogger(__name__)

PATIENCE, LIMIT = 10.0, 30.0  # s; a local store takes about thirty runs a second


@dataclass
class MlflowSink:
    """Sends records to the store at `uri`, through the spool beside `artifacts`; failures are one warning, at the end.

    A record is sent once: a run that carries its id in the tag rankbench.run is left as it is. `waiting` is told, while
    `close` waits, how many messages are left.
    """

    uri: str = field(repr=False)
    experiment: str
    artifacts: Path
    warn: Callable[[str], None] = log.warning
    waiting: Callable[[int], None] = lambda left: None
    _delivery: Delivery | None = None
    _sweep: str | None = None
    _published: dict[str, str] = field(default_factory=dict)
    _sent: set[str] = field(default_factory=set)
    _mine: list[Path] = field(default_factory=list)
    _unwritten: int = 0
    _why_unwritten: str = ""

    @property
    def spool(self) -> Spool:
        return Spool(self.artifacts.parent / "spool")

    def open(self) -> bool:
        """Start the uploader, which connects and makes a new store's tables; False when no process can be started."""
        try:
            self._delivery = Delivery(self.uri, self.artifacts)
            self._delivery.start()
        except OSError as error:
            self._delivery = None
            self.warn(f"tracking: no uploader ({error.strerror}); messages wait in {self.spool.folder}")
            return False
        return True

    def start_sweep(
        self, sweep_id: str, params: dict[str, Any], tags: dict[str, str], published: dict[str, Any] | None = None
    ) -> None:
        """The parent run of all that follows; on resume, the one of before.

        `published`: the paper and its table or figure that the runs are held against, tags of the parent and of each child.
        """
        self._sweep = sweep_id
        self._published = {f"rankbench.{name}": str(value) for name, value in (published or {}).items() if value is not None}
        words = {name: str(value) for name, value in params.items() if value is not None}
        told = tags | self._published
        self._put(SweepStart(experiment=self.experiment, time=_now(), sweep=sweep_id, params=words, tags=told))

    def send(self, record: RunRecord, folder: Path, named: Iterable[str] = ()) -> None:
        """One record as a run, under the parent where there is one.

        `named`: the parameters that tell it from its siblings, for its name; without them it shows all it has room for.
        """
        if record.id not in self._sent:
            self._sent.add(record.id)
            where = self._relative(folder)
            self._put(
                RunMessage(
                    experiment=self.experiment, time=_now(), record=where, sweep=self._sweep,
                    tags=self._published, named=list(named),
                )
            )  # fmt: skip

    def finish_sweep(self, metrics: dict[str, float], files: list[Path], ok: bool, note: str = "") -> None:
        """Close the parent run, with its headline metrics, report files and a description in Markdown; then `close`."""
        finite = {name: float(value) for name, value in metrics.items() if math.isfinite(value)}
        names = [self._relative(path) for path in files]
        self._put(
            SweepEnd(
                experiment=self.experiment, time=_now(), sweep=self._sweep or "",
                metrics=finite, files=names, note=note, ok=ok,
            )
        )  # fmt: skip
        self.close()

    def close(self) -> None:
        """Wait for the store as long as this module's docstring says, and warn once of what it did not take."""
        if self._delivery is not None:
            self._delivery.finish(self._left, PATIENCE, LIMIT, self.waiting)
            if self._delivery.note:
                self.warn(self._delivery.note)
        left, total = self._left(), len(self._mine)
        if left:
            why = self._delivery.reason if self._delivery is not None else "no uploader"
            self.warn(
                f"tracking at {without_password(self.uri)}: {left} of {total} messages wait in {self.spool.folder} ({why}); "
                "results are complete on disk, `rankbench tracking sync` sends the rest"
            )
        if self._unwritten:
            self.warn(
                f"tracking: {self._unwritten} messages could not be kept in {self.spool.folder} ({self._why_unwritten}); "
                "results are complete on disk, MLflow shows a part of them"
            )
        self._delivery, self._mine, self._unwritten = None, [], 0

    def _left(self) -> int:
        return sum(path.exists() for path in self._mine)

    def _put(self, message: Message) -> None:
        try:
            self._mine.append(self.spool.put(message))
        except Exception as error:
            self._unwritten += 1
            self._why_unwritten = (str(error).splitlines() or [type(error).__name__])[0]

    def _relative(self, path: Path) -> str:
        """As seen from the results folder, so that moved results can still be sent."""
        path, root = path.resolve(), self.artifacts.parent.resolve()
        return str(path.relative_to(root) if path.is_relative_to(root) else path)


def _now() -> int:
    return int(time.time() * 1000)
