"""What a user of this machine can do if Ray does not start on it, from what is found to be short or in the way."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from rankbench.cluster.private_folder import FOLDER, PARENT
from rankbench.core.environment import Environment
from rankbench.core.files import write_text
from rankbench.core.memory import available_memory

ENOUGH_MEMORY, ENOUGH_DISK = 2e9, 1e9  # bytes
SHARED = Path("/dev/shm")
_LINES = 200  # of each log that are kept
_PATIENCE = 2.0  # seconds for a connection to this machine itself


def advice(object_store_memory: int) -> str:
    """Return what to do, one clause for each cause that is found; without any, the command that checks the machine."""
    return "; ".join(_causes(object_store_memory)) or "`rankbench doctor` checks this machine"


def _causes(object_store_memory: int) -> Iterator[str]:
    if (free := available_memory()) < ENOUGH_MEMORY:
        yield f"only {free / 1e9:.1f} GB of memory are free: stop other programs"
    if SHARED.is_dir() and (room := shutil.disk_usage(SHARED).free) < object_store_memory:
        yield f"only {room / 1e6:.0f} MB are free in {SHARED}: start the container with --shm-size=2g"
    if (disk := shutil.disk_usage(PARENT).free) < ENOUGH_DISK:
        yield f"only {disk / 1e6:.0f} MB are free in {PARENT}: Ray keeps its files there"
    if not _loopback():
        yield "no connection to 127.0.0.1: let the firewall allow connections of this machine to itself"
    if others := _other_nodes():
        which = f"process{'es' * (len(others) > 1)} {', '.join(map(str, others[:4]))}"
        yield f"another Ray runs on this machine ({which}): join it with --address auto, or end it with `ray stop`"


def _loopback() -> bool:
    """Whether this machine accepts a connection from itself."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname()[:2], timeout=_PATIENCE).close()
    except OSError:
        return False
    return True


def _other_nodes() -> list[int]:
    """The processes of Ray nodes that are not local clusters of this program."""
    found = []
    for process in psutil.process_iter(["name"]):
        with suppress(psutil.Error):
            if process.info["name"] == "raylet" and FOLDER not in process.environ():
                found.append(process.pid)
    return found


def logs_of(session_folder: Path) -> list[tuple[str, list[str]]]:
    """The names of the logs of a Ray node and their lines, the most recently changed log last."""
    logs = [*session_folder.glob("*.log"), *session_folder.glob("session_*/logs/*.*")]
    by_age = sorted(logs, key=lambda path: path.stat().st_mtime)
    return [(log.name, log.read_text(encoding="utf-8", errors="replace").splitlines()) for log in by_age]


def keep_logs(session_folder: Path) -> Path | None:
    """Copy the ends of Ray's logs, whose folder is about to be removed, into one file of the cache.

    Returns its path, or None if it cannot be written.
    """
    parts = ["\n".join([f"==> {name}", *lines[-_LINES:]]) for name, lines in logs_of(session_folder) if lines]
    with suppress(Exception):  # the reason why Ray did not start matters more than why this file cannot be written
        return write_text(Environment.from_env().data / "ray-start.log", "\n".join(parts) + "\n")
    return None
