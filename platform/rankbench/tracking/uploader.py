"""The process that sends messages to MLflow: `python -m rankbench.tracking.uploader`, started only by delivery.py.

It is a separate process because a call that hangs in a socket or in SQLite's busy wait can be ended in no other way. It reads
its order from stdin, one line of JSON; the end of stdin then means that no more messages will come. It writes one line of
JSON per event: ready, open, sent, aside, refused, busy or failed.
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

from rankbench.core.errors import DataError, UnreadableError
from rankbench.core.redaction import RedactedStream, reason, without_password
from rankbench.tracking.address import is_server
from rankbench.tracking.spool import Spool
from rankbench.tracking.store import connect

POLL = 0.5  # seconds between two checks of the spool
PAUSES = (2.0, 60.0)  # seconds after a failure: the first pause, doubled up to the last

# Errors about a single message. Any other error concerns the store and ends the attempt.
REFUSALS = {"INVALID_PARAMETER_VALUE", "BAD_REQUEST", "RESOURCE_DOES_NOT_EXIST", "RESOURCE_ALREADY_EXISTS"}
LATER = {408, 429}  # answers of a server that is busy

Report = Callable[..., None]


class Uploader:
    """Sends the messages in the spool to the store at `uri`, one process at a time, until no more will come."""

    def __init__(self, order: dict, ended: threading.Event, report: Report):
        self.uri, self.artifacts, self.queue = order["uri"], Path(order["artifacts"]), order["queue"]
        self.every, self.store = order["every"], without_password(self.uri)
        self.root = self.artifacts.parent
        self.spool = Spool.beside(self.artifacts)
        self.ended, self.report = ended, report
        self.runs = None
        self.refused: set[Path] = set()

    def work(self) -> int:
        """Send messages. Returns 0 if all were delivered or set aside, 1 if messages are left."""
        import mlflow  # noqa: F401

        # Reported after the import, which may take seconds on a busy machine, whatever the store.
        self.report(ready=True)
        (pause, longest), failed, left = PAUSES, 0, -1  # `failed`: attempts in a row that sent nothing
        self.spool.folder.mkdir(parents=True, exist_ok=True)
        while True:
            # Read before the drain, which thus sees every message written before the end.
            last = self.ended.is_set()
            try:
                with FileLock(self.spool.lock, timeout=0):
                    self._drain()
                if last:
                    return 1 if self.refused else 0
                pause, failed = PAUSES[0], 0
                self.ended.wait(POLL)
            except Timeout:
                self.report(busy=True)
                if not self.queue:
                    return 1
                time.sleep(POLL)
            except Exception as error:
                self.report(failed=reason(error, self.uri))
                n = len(self.spool.waiting())
                failed, left = (failed + 1 if n == left else 1), n
                if last and failed > 1:  # a server may refuse one request of many
                    return 1
                time.sleep(pause) if last else self.ended.wait(pause)
                pause = min(2 * pause, longest)

    def _drain(self) -> None:
        from mlflow.exceptions import MlflowException

        from rankbench.tracking.mlflow_runs import MlflowRuns

        if self.runs is None:
            client = connect(self.uri, self.artifacts)
            self.runs = MlflowRuns(client, self.root, None if is_server(self.uri) else self.artifacts)
            self.report(open=True)
        while fresh := [path for path in self.spool.waiting() if path not in self.refused]:
            for path in fresh:
                try:
                    message = self.spool.read(path)
                    if not self.every and message.store not in ("", self.store):
                        self.refused.add(path)
                        self.report(
                            refused=path.name, reason=f"written for {message.store}; `tracking sync --all` sends it here"
                        )
                        continue
                    self.runs.take(message)
                except UnreadableError as error:
                    self.refused.add(path)
                    self.report(refused=path.name, reason=str(error))
                except DataError as error:
                    self.spool.set_aside(path)
                    self.report(aside=path.name, reason=str(error))
                except (OSError, ImportError, MlflowException) as error:
                    if not self._is_of_message(error):
                        raise
                    if path.exists():  # otherwise another process has delivered it
                        self.refused.add(path)
                        self.report(refused=path.name, reason=reason(error, self.uri))
                else:
                    path.unlink(missing_ok=True)
                    self.report(sent=path.name)

    def _is_of_message(self, error: Exception) -> bool:
        """Whether an error is about one message: of its values or files, such as one that a server finds too large."""
        from mlflow.exceptions import MlflowException

        if isinstance(error, ImportError) or (isinstance(error, OSError) and error.filename is not None):
            return True  # there is no package for the files of its experiment, or they cannot be written
        if isinstance(error, MlflowException):
            if error.error_code in REFUSALS:
                return True
            status = error.get_http_status_code()
        else:
            status = getattr(getattr(error, "response", None), "status_code", 0)  # of requests; 0: the connection failed
        if not 400 <= status < 500 or status in LATER:
            return False
        try:
            self.runs.client.search_experiments(max_results=1)
        except Exception:
            return False  # the store refuses everything
        return True


def _check(order: dict, report: Report) -> int:
    try:
        connect(order["uri"], Path(order["artifacts"])).search_experiments(max_results=1)
    except Exception as error:
        report(failed=reason(error, order["uri"]))
        return 1
    report(open=True)
    return 0


def _private_stdout() -> TextIO:
    """Return the pipe to the parent, and redirect what libraries print to stderr."""
    pipe = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return pipe


def main() -> int:
    pipe = _private_stdout()

    def report(**event: object) -> None:
        print(json.dumps(event), file=pipe, flush=True)

    order = json.loads(sys.stdin.readline())
    sys.stdout = sys.stderr = RedactedStream(sys.stderr, order["uri"])
    if order["check"]:
        return _check(order, report)
    ended = threading.Event()

    def watch_parent() -> None:
        # Not sys.stdin.read, whose lock would be held while the interpreter ends.
        while os.read(0, 4096):
            pass
        ended.set()
        while os.getppid() == order["parent"]:
            time.sleep(1.0)
        # The parent was killed, so nothing else would end this process. The next delivery completes what was partly sent.
        os._exit(1)

    threading.Thread(target=watch_parent, daemon=True).start()
    return Uploader(order, ended, report).work()


if __name__ == "__main__":
    sys.exit(main())
