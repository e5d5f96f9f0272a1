"""The Ray node of a local cluster: started in a process of its own, with a deadline, and tried twice.

`ray.init` waits in C++ code that holds Python's lock: where it hangs, no thread and no signal handler of its process runs. A
process that starts the node, and joins it first, can be ended from outside and started again.
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

from rankbench.cluster.private_folder import FOLDER, end_processes
from rankbench.core.errors import ClusterError

PATIENCE = 120.0  # seconds for one try: an idle machine takes 3, and a busy one must not be taken for a dead one
NOTICE = 15.0  # seconds after which the user is told what takes so long
TRIES = 2
_LOG = "start.log"
_LINES = 2  # of a log
# How Ray's processes, and then Python, mark a line that says what went wrong.
_SEVERE = r"^\[[^]]* [EFC] \d+ \d+\] "
_TELLING = re.compile(rf"{_SEVERE}|\bERROR\b|^[\w.]*(Error|Exception)\b")


@contextmanager
def local_node(folder: Path, **options: Any) -> Iterator[str]:
    """Yield the address of a new node, which ends with the block. `folder` is private to this user; `options` are those of
    `ray.init`.

    Raises ClusterError with the last words of Ray's logs when the node does not come up in `PATIENCE` seconds, twice.
    """
    for attempt in range(1, TRIES + 1):
        place = folder / str(attempt)  # a fresh one: what a failed try left may be why it failed
        process = _start(folder, place, options)
        try:
            if address := _answer(process, attempt):
                yield address
                return
        finally:
            # At once: Ray's own shutdown is polite to each process in turn.
            end_processes(folder)
            process.wait()
            process.stdin.close()
            process.stdout.close()
        reason = (f"no answer in {PATIENCE:.0f} s; " if address is None else "") + _last_words(place)
        if attempt < TRIES:
            say(f"Ray did not start ({reason}); trying once more")
    raise ClusterError(f"cannot start a local Ray cluster, tried {TRIES} times: {reason}")


def say(line: str) -> None:
    """Tell the user directly: while Ray starts, the process may be in no state to do more."""
    os.write(2, f"warning: {line}\n".encode())


def _start(folder: Path, place: Path, options: dict[str, Any]) -> subprocess.Popen:
    place.mkdir()
    words = {"patience": PATIENCE, "_temp_dir": str(place), **options}
    with (place / _LOG).open("w", encoding="utf-8") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "rankbench.cluster.node_process", json.dumps(words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=os.environ | {FOLDER: str(folder)},
            start_new_session=True,  # Ctrl-C reaches this process alone, which then ends the node
        )


def _answer(process: subprocess.Popen, attempt: int) -> str | None:
    """Return the address that the process prints, which is empty if it ends without one; None after `PATIENCE` seconds."""
    notice = min(NOTICE, PATIENCE)
    if not _ready(process, notice):
        say(f"Ray has not started after {notice:.0f} s; waiting for up to {PATIENCE:.0f} s (try {attempt} of {TRIES})")
        if not _ready(process, PATIENCE - notice):
            return None
    return os.read(process.stdout.fileno(), 1024).decode()


def _ready(process: subprocess.Popen, seconds: float) -> bool:
    """Whether the process prints something, or ends, within `seconds`."""
    return bool(select.select([process.stdout], [], [], seconds)[0])


def _last_words(place: Path) -> str:
    """Return the last lines that say what went wrong, of the log in which they were written last."""
    logs = [place / _LOG, *place.glob("session_*/logs/*.*")]
    for log in sorted(logs, key=lambda path: path.stat().st_mtime, reverse=True):
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        if telling := [re.sub(_SEVERE, "", line).strip() for line in lines if _TELLING.search(line)]:
            return f"{log.name}: {' | '.join(telling[-_LINES:])}"
    return "its logs do not say why"
