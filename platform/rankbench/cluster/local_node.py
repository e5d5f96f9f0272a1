"""The Ray node of a local cluster, started in a separate process with a deadline, and with a second try.

`ray.init` waits in C++ code that holds Python's lock: if it hangs, no thread and no signal handler of its process runs. A
separate process, which starts the node and joins it first, can be ended from outside and started again.
"""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rankbench.cluster.advice import advice, keep_logs, logs_of
from rankbench.cluster.private_folder import FOLDER, end_processes
from rankbench.cluster.ray_internals import session_folder_option
from rankbench.core.errors import ClusterError

PATIENCE = 120.0  # seconds for one try; an idle machine needs 3, a busy one many more
NOTICE = 15.0  # seconds after which the user is informed of the delay
TRIES = 2
_LOG = "start.log"
_N_LINES = 2  # maximum number of log lines in an error message
# Errors in the logs of Ray's processes, and of Python.
_SEVERE = r"^\[[^]]* [EFC] \d+ \d+\] "
_ERROR = re.compile(rf"{_SEVERE}|\bERROR\b|^[\w.]*(Error|Exception)\b")


@contextmanager
def local_node(folder: Path, **options: Any) -> Iterator[str]:
    """Yield the address of a new node, which ends with the block. `folder` is private to this user; `options` are those of
    `ray.init`.

    Raises ClusterError if the node does not start within `PATIENCE` seconds in any try. Its message has the last errors of the
    logs, the path of a file with their ends, and what the user can do.
    """
    for attempt in range(1, TRIES + 1):
        session_folder = folder / str(attempt)  # a new one, since files of a failed try may have caused the failure
        process = _start(folder, session_folder, options)
        try:
            if address := _address(process, attempt):
                yield address
                return
        finally:
            # Killed at once, because Ray's own shutdown waits for each process in turn.
            end_processes(folder)
            process.wait()
            process.stdin.close()
            process.stdout.close()
        reason = (f"no answer in {PATIENCE:.0f} s; " if address is None else "") + _last_errors(session_folder)
        if attempt < TRIES:
            warn(f"Ray did not start ({reason}); trying once more")
    log = keep_logs(session_folder)
    where = f"; see {log}" if log else ""
    what_to_do = advice(options.get("object_store_memory") or 0)
    raise ClusterError(f"cannot start a local Ray cluster, tried {TRIES} times: {reason}{where}; {what_to_do}")


def warn(line: str) -> None:
    """Print a warning with a system call, because Python's streams may not be usable while Ray starts."""
    os.write(2, f"warning: {line}\n".encode())


def _start(folder: Path, session_folder: Path, options: dict[str, Any]) -> subprocess.Popen:
    session_folder.mkdir()
    arguments = {"patience": PATIENCE} | session_folder_option(session_folder) | options
    with (session_folder / _LOG).open("w", encoding="utf-8") as log:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "rankbench.cluster.node_process", json.dumps(arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=os.environ | {FOLDER: str(folder)},
            start_new_session=True,  # Ctrl-C reaches this process alone, which then ends the node
        )


def _address(process: subprocess.Popen, attempt: int) -> str | None:
    """Return the address that the process prints, which is empty if it ends without one; None after `PATIENCE` seconds."""
    notice = min(NOTICE, PATIENCE)
    if not _ready(process, notice):
        warn(f"Ray has not started after {notice:.0f} s; waiting for up to {PATIENCE:.0f} s (try {attempt} of {TRIES})")
        if not _ready(process, PATIENCE - notice):
            return None
    return os.read(process.stdout.fileno(), 1024).decode()


def _ready(process: subprocess.Popen, seconds: float) -> bool:
    """Whether the process prints something, or ends, within `seconds`."""
    return bool(select.select([process.stdout], [], [], seconds)[0])


def _last_errors(session_folder: Path) -> str:
    """Return the last error lines of the most recently changed log that has any."""
    for name, lines in reversed(logs_of(session_folder)):
        if errors := [re.sub(_SEVERE, "", line).strip() for line in lines if _ERROR.search(line)]:
            return f"{name}: {' | '.join(errors[-_N_LINES:])}"
    return "its logs give no reason"
