"""An MLflow server as a child of this process: started, waited for until it answers, and ended with all its children."""

from __future__ import annotations

import errno
import http.client
import ipaddress
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from rankbench.errors import ConfigError, StorageError

START_SECONDS = 120.0  # 7 to 14 s on an idle machine
STOP_SECONDS = 10.0  # the server itself waits 5 s for requests under way


@contextmanager
def serving(command: list[str], environment: dict[str, str], host: str, port: int) -> Iterator[subprocess.Popen]:
    """The server of `command`, which listens on `host` and `port`, from its first answer to the end of the block.

    Its output goes to stderr. Raises StorageError when it ends, or START_SECONDS pass, before it answers.
    """
    # A session of its own: Ctrl-C is for this process, which then ends the whole group, whatever it has started.
    process = subprocess.Popen(command, env=environment, start_new_session=True, stdin=subprocess.DEVNULL, stdout=2)
    try:
        _wait(process, reachable(host), port)
        yield process
    finally:
        _end(process)


def require_free(host: str, port: int) -> None:
    """Raises ConfigError when nobody can listen on `host` and `port`."""
    try:
        (family, kind, _, _, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror:
        raise ConfigError(f"--host: no such name {host!r}") from None
    with socket.socket(family, kind) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                raise ConfigError(f"--host: {host} is no address of this machine") from None
            raise ConfigError(f"--port: {host}:{port} is taken; choose another") from None


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def names(host: str, given: str | None) -> tuple[str, ...]:
    """The names by which clients may call a server on `host`: those `given`, comma-separated, or else the address and the
    machine's name; and those of this machine for itself. The first is the one to tell others.

    Raises ConfigError for a name that would let every name in.
    """
    if given is None:
        wildcard = reachable(host) != host
        wanted = [socket.gethostname()] if wildcard else [host, socket.gethostname()]
    else:
        wanted = [name.strip() for name in given.split(",")]
    for name in wanted:
        if not name.strip("*") or "/" in name:
            raise ConfigError(f"--allowed-hosts: expected names such as head.example.org, got {name!r}")
    return tuple(dict.fromkeys([*wanted, "localhost", "127.0.0.1"]))


def reachable(host: str) -> str:
    """Where this machine reaches a server that listens on `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _wait(process: subprocess.Popen, host: str, port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not _answers(host, port):
        if process.poll() is not None:
            raise StorageError(f"the MLflow server ended with code {process.returncode} before it answered")
        if time.monotonic() > deadline:
            raise StorageError(f"the MLflow server at {url(host, port)} did not answer within {START_SECONDS:.0f} s")
        time.sleep(0.2)


def _answers(host: str, port: int) -> bool:
    line = http.client.HTTPConnection(host, port, timeout=5)
    try:
        line.request("GET", "/health")
        return line.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        line.close()


def _end(process: subprocess.Popen) -> None:
    try:
        _tell(process, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=STOP_SECONDS)
    finally:
        # Also of those whose parent is gone already, and when a second Ctrl-C cuts the wait short.
        _tell(process, signal.SIGKILL)
        process.wait()


def _tell(process: subprocess.Popen, number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
