"""Send records to MLflow as runs for browsing. No run fails because of the store, and none waits for it for long.

A run or sweep only writes small files (spool.py), which an uploader process sends: records as they are finished, and points of
the fits that run (live_fits.py). At its end it waits for the uploader: at most PATIENCE seconds while the store accepts
nothing, at most LIMIT in all. The messages that are left stay in the spool for the next command or `rankbench tracking sync`.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from rankbench.core.environment import Environment
from rankbench.core.errors import RankbenchError, first_line
from rankbench.core.extras import installed, missing_packages
from rankbench.core.redaction import without_password
from rankbench.tracking.address import artifacts_folder, origin, tracking_uri
from rankbench.tracking.delivery import Delivery
from rankbench.tracking.labels import Labels
from rankbench.tracking.last_words import LastWords
from rankbench.tracking.live_fits import LiveFits
from rankbench.tracking.mlflow_internals import PRIMARY_METRIC
from rankbench.tracking.record import RunRecord
from rankbench.tracking.run_fields import record_params, record_tags
from rankbench.tracking.saved_views import View
from rankbench.tracking.spool import (
    ArmMessage,
    CurveMessage,
    EntryMessage,
    ExperimentMessage,
    Message,
    RunMessage,
    Spool,
    SweepEnd,
    SweepStart,
    milliseconds,
)

log = logging.getLogger(__name__)

PATIENCE, LIMIT = 10.0, 30.0  # seconds; a local store accepts about thirty runs per second
AFTER_ERRORS = 3.0  # seconds for saying that fits were interrupted, after an error or Ctrl-C

Rows = Sequence[Mapping[str, float]]


@dataclass
class MlflowSink:
    """Sends records to the store at `uri` through the spool beside `artifacts`. Failures are one warning at the end.

    `experiment` is the name of the experiment unless `labels`, which are the user's choices, name another. A record is sent
    once: an existing run with its id in the tag rankbench.run is not changed. While `close` waits, it calls `waiting` with the
    number of messages left. As a context it ends the uploader, also where an error or Ctrl-C comes before `close`.
    """

    uri: str = field(repr=False)
    experiment: str
    artifacts: Path
    warn: Callable[[str], None] = log.warning
    waiting: Callable[[int], None] = lambda left: None
    labels: Labels = field(default_factory=Labels)
    origin: Callable[[], str] = lambda: ""
    _delivery: Delivery | None = None
    _live: LiveFits = field(init=False)
    _last_words: LastWords = field(init=False)
    _opening: threading.Lock = field(default_factory=threading.Lock)
    _sweep: str | None = None
    _begun: str = ""
    _published: dict[str, str] = field(default_factory=dict)
    _sent: set[str] = field(default_factory=set)
    _messages: list[Path] = field(default_factory=list)
    _unwritten: int = 0
    _write_error: str = ""

    @classmethod
    def of(
        cls, environment: Environment, experiment: str, labels: Labels | None = None, warn: Callable[[str], None] = log.warning
    ) -> MlflowSink:
        """Return what sends records to the store of a command. Raises ConfigError if its address cannot work."""
        uri, artifacts = tracking_uri(environment), artifacts_folder(environment)
        return cls(uri, experiment, artifacts, warn, labels=labels or Labels(), origin=cache(lambda: origin(environment)))

    def __post_init__(self) -> None:
        self._last_words = LastWords(self.spool)
        self._live = LiveFits(self.spool, self._last_words, self.open)

    def __enter__(self) -> MlflowSink:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        said: list[Path] = []
        with suppress(OSError, RankbenchError):  # as on a full disk; then the last words remain
            said = self._live.close(first_line(error) if isinstance(error, RankbenchError) else "")
            if self._sweep:
                said.append(self.spool.put(self._interrupted_sweep()))
            self._last_words.close()
        self._messages += said
        if self._delivery is not None:
            if self._left():
                self._delivery.finish(self._left, AFTER_ERRORS, AFTER_ERRORS)
            self._delivery.stop()
        self._warn_of_the_rest()

    @property
    def spool(self) -> Spool:
        return Spool.beside(self.artifacts)

    def open(self) -> bool:
        """Start the uploader, unless it runs; it connects and creates the tables of a new store. Returns False if no process
        starts, and without MLflow, when messages wait until it is installed.
        """
        if not installed("tracking"):
            return False
        with self._opening:
            if self._delivery is not None:
                with suppress(OSError):
                    self._delivery.revive()
                return True
            with suppress(OSError):
                self.spool.inherit()
            try:
                delivery = Delivery(self.uri, self.artifacts)
                delivery.start()
            except OSError as error:
                self.warn(f"tracking: no uploader ({error.strerror}); messages wait in {self.spool.folder}")
                return False
            self._delivery = delivery
            return True

    def start_sweep(
        self,
        sweep_id: str,
        params: dict[str, Any],
        tags: dict[str, str],
        published: dict[str, Any] | None = None,
        views: Iterable[View] = (),
    ) -> None:
        """Open the parent run of all runs that follow. A resumed sweep continues its parent run.

        `published`: paper and table or figure that the runs are compared with, as tags of the parent and of each run. `views`
        are kept by the experiment; the metric that the first one sorts by becomes the experiment's primary metric.
        """
        self._sweep, self._begun = sweep_id, f"{milliseconds()} {os.getpid()}"
        self._published = {f"rankbench.{name}": str(value) for name, value in (published or {}).items() if value is not None}
        texts = {name: str(value) for name, value in params.items() if value is not None}
        views, now = list(views), milliseconds()
        primary = {PRIMARY_METRIC: views[0].metric} if views else {}
        self._put(
            SweepStart(
                **self._place(), sweep=sweep_id, params=texts, tags=tags | self._published | self.labels.tags,
                name=self.labels.name, experiment_tags=dict(view.tag(now) for view in views) | primary, begun=self._begun,
            )
        )  # fmt: skip
        self._say_last_words()

    def send(
        self,
        record: RunRecord,
        folder: Path,
        name: str = "",
        params: Iterable[str] | None = None,
        first: str = "",
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Send a record as a run, under `name`. `params`: the parameters that the fit used; None: all of the record. `tags` are
        those of this run alone.

        `first`: the metric that is sent first, which MLflow's page of compared runs then shows at first.
        """
        if record.id not in self._sent:
            self._sent.add(record.id)
            self._live.end(record.id)
            self._put(
                RunMessage(
                    **self._place(), record=self._relative(folder), sweep=self._sweep, tags=self._tags(tags),
                    name=self._name(name), params=None if params is None else list(params), first=first,
                )
            )  # fmt: skip
            self._say_last_words()

    def follow(
        self,
        record: RunRecord,
        folder: Path,
        name: str = "",
        params: Iterable[str] | None = None,
        tags: Mapping[str, str] | None = None,
        **_: Any,
    ) -> Callable[[Rows], None]:
        """Return a function that sends new rows of the curve of a fit while it runs, and costs it no time. `record`: what is
        known of its record; the rest as in `send`, whose run it will be.
        """
        known = {key: str(value) for key, value in record_params(record, params).items() if value is not None}
        all_tags = record_tags(record, folder) | self._published | dict(tags or {})
        started = milliseconds(record.started_at)
        return self.follow_entry(record.id, name, all_tags, known, started, sweep=self._sweep, stage=record.stage)

    def follow_entry(
        self, id: str, name: str, tags: dict[str, str], params: dict[str, str], started: int, **place: str | None
    ) -> Callable[[Rows], None]:
        """Like `follow`, for what has no record and is sent by `send_entry`. `place`: sweep and stage of what has one."""
        about = CurveMessage(
            **self._place(), **place, id=id, started=started, name=self._name(name), tags=tags | self.labels.tags,
            params=params, rows=[],
        )  # fmt: skip
        return lambda rows: self._live.add(about, rows)

    def send_entry(self, id: str, name: str, tags: dict[str, str], **shown: Any) -> None:
        """Send what has no record. `shown`: the other fields of `spool.EntryMessage`."""
        self._live.end(id)
        self._put(EntryMessage(**self._place(), id=id, name=self._name(name), tags=tags | self.labels.tags, **shown))

    def describe(self, view: View, description: str) -> None:
        """Give the experiment a view and a description, if it has none yet."""
        tags = dict([view.tag(milliseconds())]) | {PRIMARY_METRIC: view.metric}
        self._put(ExperimentMessage(**self._place(), tags=tags, description=description))

    def send_arm(self, id: str, name: str, tags: dict[str, str], **shown: Any) -> None:
        """Send the means of an arm of the sweep. `shown`: the other fields of `spool.ArmMessage`."""
        sweep = self._sweep or ""
        own = {"id": f"{sweep} {id}", "sweep": sweep, "name": self._name(name)}
        self._put(ArmMessage(**self._place(), **own, tags=self._tags(tags), **shown))

    def finish_sweep(self, files: list[Path], ok: bool, note: str = "") -> None:
        """Close the parent run, with its report files and a description in Markdown; then `close`."""
        names = [self._relative(path) for path in files]
        self._put(SweepEnd(**self._place(), sweep=self._sweep or "", files=names, note=note, ok=ok, begun=self._begun))
        self._sweep = None
        self.close()

    def close(self) -> None:
        """Wait for the uploader within the limits above, and warn once about what was not sent."""
        with suppress(OSError, RankbenchError):
            self._messages += self._live.close()
            self._last_words.close()
        if self._delivery is not None:
            self._delivery.finish(self._left, PATIENCE, LIMIT, self.waiting)
            if self._delivery.note:
                self.warn(self._delivery.note)
        self._warn_of_the_rest()

    def _warn_of_the_rest(self) -> None:
        left, total = self._left(), len(self._messages)
        if left:
            no_uploader = "no uploader" if installed("tracking") else f"this needs {missing_packages('tracking')}"
            why = self._delivery.reason if self._delivery is not None else no_uploader
            self.warn(
                f"tracking at {without_password(self.uri)}: {left} of {total} messages wait in {self.spool.folder} ({why}); "
                "results are complete on disk, `rankbench tracking sync` sends the rest"
            )
        if self._unwritten:
            self.warn(
                f"tracking: {self._unwritten} messages could not be written to {self.spool.folder} ({self._write_error}); "
                "results are complete on disk, MLflow shows only a part of them"
            )
        self._delivery, self._messages, self._unwritten = None, [], 0

    def _place(self) -> dict[str, Any]:
        """Return what each message says about when it was written and where its run belongs."""
        store = "" if self.uri.startswith("sqlite") else without_password(self.uri)
        return self.labels.place(self.experiment) | {"time": milliseconds(), "store": store, "origin": self.origin()}

    def _interrupted_sweep(self) -> SweepEnd:
        ended = {"ok": False, "interrupted": True, "begun": self._begun}
        return SweepEnd(**self._place(), sweep=self._sweep or "", files=[], note="", **ended)

    def _say_last_words(self) -> None:
        """Keep what is sent if this process is killed: the sweep ended now, or at the next record."""
        if self._sweep:
            with suppress(OSError, RankbenchError):
                self._last_words.say(self._sweep, self._interrupted_sweep())

    def _tags(self, tags: Mapping[str, str] | None) -> dict[str, str]:
        return self._published | dict(tags or {}) | self.labels.tags

    def _name(self, name: str) -> str:
        return f"{self.labels.name} {name}".strip()

    def _left(self) -> int:
        return sum(path.exists() for path in self._messages)

    def _put(self, message: Message) -> None:
        try:
            self._messages.append(self.spool.put(message))
            if self._delivery is not None:
                self.open()
        except Exception as error:
            self._unwritten += 1
            self._write_error = first_line(error)

    def _relative(self, path: Path) -> str:
        """Return `path` relative to the results folder, so that results can still be sent after they were moved."""
        # Links in the results folder, as to a larger disk, are not followed: messages may name only what is in it.
        root = self.artifacts.parent
        if not path.absolute().is_relative_to(root.absolute()):
            path, root = path.resolve(), root.resolve()
        return os.path.relpath(path, root)
