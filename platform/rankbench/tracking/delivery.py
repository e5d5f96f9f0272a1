"""Start the uploader process, wait for it within limits, and end it."""

from __future__ import annotations

import atexit
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rankbench.tracking.spool import Spool
from rankbench.tracking.store import QUIET

log = logging.getLogger(__name__)

# With MLflow's defaults, a dead server would block the uploader for minutes. It tries again itself, and first looks for the run
# that a request may have made which was not answered in time.
PATIENT_UPLOADS = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "30", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}

REVIVE = 60.0  # seconds between two starts of a process that dies


@dataclass
class Delivery:
    """An uploader from the spool beside `artifacts` to the store at `uri`. With `queue`, it waits for another uploader; with
    `every`, it also sends what was meant for another store.
    """

    uri: str = field(repr=False)
    artifacts: Path
    queue: bool = True
    every: bool = False
    reason: str = ""  # why the store has accepted nothing since the last success
    aside: list[str] = field(default_factory=list)  # why messages were set aside
    _refusal: str = ""
    _process: Any = None
    _started: float = 0.0
    _ready: bool = False
    _progress_at: float = 0.0
    _reader: Any = None

    def start(self, check: bool = False) -> None:
        """Start the process. Raises OSError if that fails."""
        about = {"uri": self.uri, "artifacts": str(self.artifacts), "queue": self.queue, "every": self.every}
        order = about | {"check": check, "parent": os.getpid()}
        self._started = time.monotonic()
        self._process = subprocess.Popen(
            # -P: files in the current folder must not be imported in place of libraries.
            [sys.executable, "-P", "-m", "rankbench.tracking.uploader"],
            env=PATIENT_UPLOADS | os.environ | QUIET,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if log.isEnabledFor(logging.INFO) else subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C reaches only the command, which then ends this process
        )
        atexit.register(self.stop)
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()
        try:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            log.info("the uploader ended at its start")

    def revive(self) -> None:
        """Start the process again if it has died, as for lack of memory. Raises OSError if that fails."""
        if self._process.poll() is not None and time.monotonic() - self._started > REVIVE:
            self.start()

    def finish(
        self, left: Callable[[], int], patience: float, limit: float, progress: Callable[[int], None] = lambda left: None
    ) -> int:
        """Wait until `left()` is 0, the store accepts nothing for `patience` s, or `limit` s are over; then end the uploader.

        Returns the number of messages left; `reason` then says why they are left.
        """
        started = self._progress_at = time.monotonic()
        self._close_stdin()
        fewest = left()
        while fewest and self._process.poll() is None:
            progress(fewest)
            time.sleep(0.05)
            count, now = left(), time.monotonic()
            if count < fewest:
                fewest, self._progress_at = count, now
            if self._ready and now - self._progress_at > patience:
                self.reason = self.reason or f"no answer in {patience:.0f} s"
                break
            if now - started > limit:
                self.reason = self.reason or f"{limit:.0f} s were not enough"
                break
        # An uploader that is done ends by itself, one that hangs never does.
        self.stop(seconds=0.0 if self.reason else 1.0)
        remaining = left()
        ended = f"the uploader ended with code {self._process.returncode}"
        self.reason = (self.reason or self._refusal or ended) if remaining else ""
        return remaining

    @property
    def note(self) -> str:
        """A line about the messages that were set aside; empty if there are none."""
        if not self.aside:
            return ""
        folder, n = Spool.beside(self.artifacts).folder, len(self.aside)
        return f"tracking: {n} message{'s' * (n > 1)} set aside in {folder} (*.bad); the first: {self.aside[0]}"

    def wait(self, seconds: float) -> bool:
        """Wait for the result of a check: True if the store answered."""
        self._close_stdin()
        try:
            return self._process.wait(timeout=seconds) == 0
        except subprocess.TimeoutExpired:
            self.reason = f"no answer in {seconds:.0f} s"
            return False
        finally:
            self.stop()

    def stop(self, seconds: float = 0.0) -> None:
        """End the uploader, at once or after `seconds`. The next delivery completes a run that was partly sent."""
        atexit.unregister(self.stop)
        self._close_stdin()
        try:
            self._process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(timeout=1.0)

    def _close_stdin(self) -> None:
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            log.info("the uploader has already ended")

    def _read(self, pipe: Any) -> None:
        with pipe:
            for line in pipe:
                event = json.loads(line)
                if "failed" in event:
                    self.reason = event["failed"]
                elif "busy" in event:
                    self.reason = "another process is sending"
                elif "aside" in event:
                    self.aside.append(event["reason"])
                elif "refused" in event:
                    self._refusal = f"refused: {event['reason']}"
                self._ready = True
                if not {"failed", "busy"} & set(event):
                    self.reason, self._progress_at = "", time.monotonic()


def check(uri: str, artifacts: Path, seconds: float = 8.0) -> str:
    """Return why the store at `uri` does not answer within `seconds`; empty if it does."""
    delivery = Delivery(uri, artifacts)
    delivery.start(check=True)
    return "" if delivery.wait(seconds) else delivery.reason or "the check ended without an answer"
