"""Commands as a user runs them, in processes of their own: what they print and leave, and nodes of a cluster on loopback."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rankbench.tracking.record import RunRecord, read_record

NODES = Path(__file__).parents[1] / "cluster" / "nodes.py"


def start(home: Path, *words: str, program: str = "", **variables: str) -> subprocess.Popen:
    """A command whose files are all in `home`, and for which no setting of the caller counts. `program`: Python code instead
    of the command itself.
    """
    home.mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_A", "RANKBENCH_"))}
    places = {"RANKBENCH_DATA": str(home / "data"), "RANKBENCH_RESULTS": str(home / "results"), "RANKBENCH_OFFLINE": "1"}
    return subprocess.Popen(
        [sys.executable, *(("-c", program) if program else ("-m", "rankbench")), *words],
        env=kept | places | variables, cwd=home, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def output(process: subprocess.Popen, code: int = 0) -> tuple[str, str]:
    """What a command has printed that ends with this exit code, on stdout and stderr."""
    out, err = process.communicate(timeout=580)
    assert process.returncode == code, err
    return out, err


def records_of(home: Path) -> dict[str, RunRecord]:
    """The records of a sweep, or of all sweeps of a command's home, by their id. They may run: other folders come and go."""
    places = [home, *home.glob("results/sweeps/*")]
    folders = [path.parent for place in places for path in place.glob("records/[!.]*/record.json")]
    return {folder.name: read_record(folder) for folder in folders}


def wait_until(condition: Callable[[], object], process: subprocess.Popen | None = None, seconds: float = 200) -> None:
    """Wait for a condition, which `process` is to bring about, if it is given: then its end is an error."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


@contextmanager
def nodes(*words: str) -> Iterator[dict]:
    """What `nodes.py` says of the cluster that it starts: its address, what a command needs to join, the pids of raylets."""
    process = subprocess.Popen([sys.executable, str(NODES), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield json.loads(process.stdout.readline())
    finally:
        process.stdin.close()
        process.wait(timeout=60)
