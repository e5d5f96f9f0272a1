"""The state of a running sweep, written to a file every few seconds, and the request to stop it, a file beside that.

If the sweep's results are in a store, both are objects there, too.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from rankbench.core.errors import ConfigError, StorageError
from rankbench.core.files import write_json
from rankbench.core.storage import Storage
from rankbench.schema.shared_sweeps import RUNNING, SILENT, STOP
from rankbench.sweeps.running import Running
from rankbench.sweeps.store import SweepStore
from rankbench.tracking.record import RunRecord

EVERY, EVERY_STORED = 2.0, 10.0  # seconds between two heartbeats, in a folder and in a store


@dataclass
class Progress:
    """Progress of one stage: the number of trials by state, of `of` in total, their cost, the best value of each arm on valid,
    and the fits that run now. `counted`: what is counted, "comparisons" in the stage of the statistics. `reused` of them did
    not run, because a record existed before.
    """

    stage: str
    of: int
    cost_of: float
    started: float = field(default_factory=time.monotonic)  # of a clock that nobody sets
    finished: int = 0
    stopped: int = 0
    failed: int = 0
    cost: float = 0.0
    cached: float = 0.0
    best: dict[str, float] = field(default_factory=dict)
    running: Running = field(default_factory=Running)
    counted: str = "fits"
    reused: int = 0

    @property
    def done(self) -> int:
        return self.finished + self.stopped + self.failed

    def add(self, records: list[RunRecord], cost: float, metric: str, cached: bool) -> None:
        """Add a unit that has ended. `cached` means that its records existed before, so it does not count in the rate. A draw
        that needed no fit has no records.
        """
        failed, stopped = any(record.failed for record in records), any(record.stopped for record in records)
        self.failed += failed
        self.stopped += stopped
        self.finished += not (failed or stopped)
        self.reused += cached
        self.cost += cost
        self.cached += cost * cached
        for record in records:
            if record.finished and record.measured_on == "valid" and metric in record.metrics:
                label = f"{record.dataset.name}/{record.label}"
                self.best[label] = max(record.metrics[metric].mean, self.best.get(label, float("-inf")))

    def reach(self, done: float, cost: float) -> None:
        """Set how much of a stage is done that has no trials."""
        self.finished, self.cost = int(done), cost
        self.running.on_change()

    def remaining(self, now: float) -> float | None:
        """Remaining seconds by the rate so far, at `now` by `time.monotonic`; None before the first unit has run."""
        measured = self.cost - self.cached
        return None if measured <= 0 else (now - self.started) * (self.cost_of - self.cost) / measured


class Heartbeat:
    """A context that writes heartbeats to the sweep's place, and interrupts this process if it is requested to stop.

    It also interrupts this process if another one has taken the sweep over; the block then ends with Superseded. In the main
    thread this is done by a signal of its own, so that the command does not answer it as Ctrl-C.
    """

    def __init__(self, store: SweepStore):
        self.store = store
        self.progress: Progress | None = None
        since = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        self._about = {"pid": os.getpid(), "host": socket.gethostname(), "pids": _pids(), "since": since}
        self._superseded = False
        self._signal: signal.Signals = signal.SIGINT
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Heartbeat:
        self._remove(STOP)
        if threading.current_thread() is threading.main_thread():
            self._signal = signal.SIGUSR2  # SIGUSR1 belongs to Ray Tune
            self._before = signal.signal(self._signal, signal.default_int_handler)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self._signal != signal.SIGINT:
            signal.signal(self._signal, self._before)
        with suppress(OSError, StorageError):
            self._look()
        if self._superseded and self.store.claim:  # what is there now is of the process that runs the sweep
            if self.store.shared:
                (self.store.folder / RUNNING).unlink(missing_ok=True)
            self.store.claim.require_newest()
        self._remove(RUNNING, STOP)

    def _look(self) -> None:
        """Look whether another process has taken the sweep over."""
        self._superseded = self._superseded or not (self.store.claim is None or self.store.claim.is_newest)

    def _remove(self, *names: str) -> None:
        for name in names:
            with suppress(OSError, StorageError):
                (self.store.folder / name).unlink(missing_ok=True)
                if self.store.shared:
                    self.store.shared.remove(name)

    def _beat(self) -> None:
        interrupted = False
        while True:
            # A full disk or an unreachable file server is no reason to end a sweep.
            with suppress(OSError, StorageError):
                self._look()
                if not self._superseded:
                    self._write()
                if (self._superseded or self._stop_requested()) and not interrupted:
                    interrupted = True
                    os.kill(os.getpid(), self._signal if self._superseded else signal.SIGINT)
            if self._over.wait(_every(self.store)):
                return

    def _stop_requested(self) -> bool:
        shared = self.store.shared
        return (self.store.folder / STOP).exists() or (shared is not None and shared.read(STOP) is not None)

    def _write(self) -> None:
        about: dict[str, Any] = self._about | {"seen_at": time.time()}
        if progress := self.progress:  # which the main thread may replace at any moment
            told = {name: value for name, value in vars(progress).items() if name not in ("started", "running")}
            told["best"] = dict(progress.best)
            told["running"] = [
                {"title": fit.title, "done": fit.done, "of": fit.of, "counted": fit.counted} for fit in progress.running.fits
            ]
            about |= {"progress": told, "remaining_seconds": progress.remaining(time.monotonic())}
        path = write_json(self.store.folder / RUNNING, about)
        if self.store.shared:
            self.store.shared.upload(RUNNING, path)


def last_heartbeat(folder: Path, shared: Storage | None = None) -> dict[str, Any] | None:
    """The last heartbeat of a running sweep; None if it has not started, has ended, or was silent for too long, or if its
    process ran on this host and is gone.

    `shared`: the objects of the sweep, if its results are in a store. The clocks of its host and this one must agree within
    SILENT seconds. A heartbeat from the future was written before a clock was set back, and says nothing: a sweep that runs
    writes the next one within seconds.
    """
    try:
        about = json.loads(shared.read(RUNNING) or b"" if shared else (folder / RUNNING).read_bytes())
        # Containers may share the name of a host and count their processes apart.
        here = about["host"] == socket.gethostname() and about.get("pids") == _pids()
        gone = here and not psutil.pid_exists(about["pid"])
        return about if abs(time.time() - about["seen_at"]) < SILENT and not gone else None
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):  # half-written, or edited
        return None


def require_vacant(store: SweepStore, say: Callable[[str], None]) -> None:
    """Raise ConfigError if a process runs the sweep. Whether one on another host has died is known only when it is silent for
    SILENT seconds: this waits until then or until its next heartbeat, and says so.
    """
    seen = last_heartbeat(store.folder, store.shared)
    if seen is None:
        return
    who, first, every = f"process {seen['pid']} on {seen['host']}", seen["seen_at"], _every(store)
    overdue = time.monotonic() + 2 * every
    while seen and seen["seen_at"] == first:
        if time.monotonic() > overdue:
            overdue = float("inf")
            left = SILENT - (time.time() - first)
            say(f"{who} ran this sweep and has fallen silent; waiting {left:.0f} s, after which it counts as dead")
        time.sleep(every / 4)
        seen = last_heartbeat(store.folder, store.shared)
    if seen:
        raise ConfigError(
            f"--resume: {who} has been running {store.folder.name} since {seen.get('since', 'some time')}; "
            "wait for it (`rankbench sweep status`), or --take-over ends it and continues here"
        )


def request_stop(folder: Path, shared: Storage | None = None) -> None:
    """Request that a running sweep stops. Raises ConfigError if it does not run."""
    if last_heartbeat(folder, shared) is None:
        raise ConfigError(f"{folder.name} is not running; nothing to stop")
    if shared:
        shared.write(STOP, b"")
    else:
        (folder / STOP).touch()


def _pids() -> str:
    """The name of the namespace that the ids of processes belong to, on Linux."""
    with suppress(OSError):
        return str(Path("/proc/self/ns/pid").readlink())
    return ""


def _every(store: SweepStore) -> float:
    return EVERY_STORED if store.shared else EVERY
