"""The process that talks to MLflow: `python -m rankbench.tracking.uploader`, started by delivery.py and by nobody else.

A process of its own, because a call that hangs in a socket or in SQLite's busy wait can be ended in no other way. It reads
one line of JSON, its order, and then the end of stdin, which says that no further message will come. It writes a line of
JSON an event: ready, open, sent, aside, refused, busy, failed.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from filelock import FileLock, Timeout

from rankbench.core.errors import DataError
from rankbench.tracking.address import is_server
from rankbench.tracking.redaction import RedactedStream, reason
from rankbench.tracking.spool import Spool
from rankbench.tracking.store import connect

POLL = 0.5  # s between two looks into the spool
PAUSES = (2.0, 60.0)  # s after a failure: the first, doubled until the last

# What the store says of one message; any other error is one of the store, which ends the attempt.
REFUSALS = {"INVALID_PARAMETER_VALUE", "BAD_REQUEST", "RESOURCE_DOES_NOT_EXIST", "RESOURCE_ALREADY_EXISTS"}

Tell = Callable[..., None]


class Uploader:
    """Delivers the messages under `root` to the store at `uri`, one process at a time, until told that none will follow."""

    def __init__(self, order: dict, ended: threading.Event, tell: Tell):
        self.uri, self.artifacts, self.queue = order["uri"], Path(order["artifacts"]), order["queue"]
        self.root = self.artifacts.parent
        self.spool = Spool(self.root / "spool")
        self.ended, self.tell = ended, tell
        self.runs = None
        self.refused: set[Path] = set()

    def work(self) -> int:
        """0 when all was delivered that the store takes, 1 when messages wait."""
        import mlflow  # noqa: F401

        # The seconds that this takes on a busy machine say nothing of the store.
        self.tell(ready=True)
        pause, longest = PAUSES
        self.spool.folder.mkdir(parents=True, exist_ok=True)
        while True:
            # Asked before the drain, which so sees everything that was put before the end.
            last = self.ended.is_set()
            try:
                with FileLock(self.spool.lock, timeout=0):
                    self._drain()
                if last:
                    return 1 if self.refused else 0
                pause = PAUSES[0]
                self.ended.wait(POLL)
            except Timeout:
                self.tell(busy=True)
                if not self.queue:
                    return 1
                time.sleep(POLL)
            except Exception as error:
                self.tell(failed=reason(error, self.uri))
                if last:
                    return 1
                self.ended.wait(pause)
                pause = min(2 * pause, longest)

    def _drain(self) -> None:
        from mlflow.exceptions import MlflowException

        from rankbench.tracking.mlflow_runs import MlflowRuns

        if self.runs is None:
            client = connect(self.uri, self.artifacts)
            self.runs = MlflowRuns(client, self.root, None if is_server(self.uri) else self.artifacts)
            self.tell(open=True)
        while fresh := [path for path in self.spool.waiting() if path not in self.refused]:
            for path in fresh:
                try:
                    self.runs.take(self.spool.read(path))
                except DataError as error:
                    self.spool.set_aside(path)
                    self.tell(aside=path.name, reason=str(error))
                except FileNotFoundError:
                    if path.exists():
                        raise
                except MlflowException as error:
                    if error.error_code not in REFUSALS:
                        raise
                    self.refused.add(path)
                    self.tell(refused=path.name, reason=reason(error, self.uri))
                else:
                    path.unlink(missing_ok=True)
                    self.tell(sent=path.name)


def _check(order: dict, tell: Tell) -> int:
    try:
        connect(order["uri"], Path(order["artifacts"])).search_experiments(max_results=1)
    except Exception as error:
        tell(failed=reason(error, order["uri"]))
        return 1
    tell(open=True)
    return 0


def _private_stdout() -> TextIO:
    """The pipe to the parent; what libraries print goes to stderr from here on."""
    pipe = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return pipe


def main() -> int:
    pipe = _private_stdout()

    def tell(**event: object) -> None:
        print(json.dumps(event), file=pipe, flush=True)

    order = json.loads(sys.stdin.readline())
    sys.stdout = sys.stderr = RedactedStream(sys.stderr, order["uri"])
    if order["check"]:
        return _check(order, tell)
    ended = threading.Event()

    def watch_parent() -> None:
        # Not sys.stdin.read, whose lock would be held while the interpreter ends.
        while os.read(0, 4096):
            pass
        ended.set()
        while os.getppid() == order["parent"]:
            time.sleep(1.0)
        # Killed, it left nobody who would end this process; the next delivery completes what is half sent.
        os._exit(1)

    threading.Thread(target=watch_parent, daemon=True).start()
    return Uploader(order, ended, tell).work()


if __name__ == "__main__":
    sys.exit(main())
