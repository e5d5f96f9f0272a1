"""An MLflow server as a child of this process: started, waited for until it answers, and ended with all its children."""

from __future__ import annotations

import errno
import http.client
import ipaddress
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rankbench.core.errors import ConfigError, StorageError
from rankbench.tracking.store import QUIET

START_SECONDS = 300.0  # 7 to 14 s on an idle machine, minutes on one with many more processes than processors
STOP_SECONDS = 10.0  # the server itself waits 5 s for requests under way


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """A socket that listens on `host` and `port`: of two servers on one port the later is told before it starts.

    Raises ConfigError when nobody can listen there.
    """
    try:
        (family, _, _, _, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError):
        raise ConfigError(f"--host: no such name {host!r}") from None
    try:
        listener = socket.create_server(address, family=family, backlog=128)
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            raise ConfigError(f"--host: {host} is no address of this machine") from None
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(f"--port: {host}:{port} is taken; choose another") from None
        raise ConfigError(f"--port: cannot listen on {host}:{port} ({error.strerror})") from None
    with listener:
        yield listener


@contextmanager
def serving(
    listener: socket.socket, uri: str, artifacts: Path, hosts: tuple[str, ...], proxied: bool = False
) -> Iterator[subprocess.Popen]:
    """An MLflow server of the store at `uri` on `listener`, from its first answer to the end of the block.

    It answers only to requests for `hosts`. `proxied`: the files of new experiments go through the server and lie under
    `artifacts`; otherwise clients on this machine write them there themselves. Its output goes to stderr. Raises StorageError
    when it ends, or START_SECONDS pass, before it answers.
    """
    order = {"uri": uri, "artifacts": str(artifacts), "listener": listener.fileno(), "hosts": hosts, "proxied": proxied}
    process = subprocess.Popen(
        # -P: a file of the user's folder must not be taken for a library.
        [sys.executable, "-P", "-m", "rankbench.tracking.web"],
        env=os.environ | QUIET | {"PYTHONWARNINGS": "ignore"},
        pass_fds=[listener.fileno()],
        # A session of its own: Ctrl-C is for this process, which then ends the whole group, whatever it has started.
        start_new_session=True,
        stdin=subprocess.PIPE,
        stdout=2,
    )
    host, port = listener.getsockname()[:2]
    # From now on it is the server's alone, and closed when that ends.
    listener.close()
    try:
        with suppress(BrokenPipeError), process.stdin as pipe:
            # Not arguments: the address may hold a password, and every user of the machine sees a command line.
            pipe.write(json.dumps(order).encode() + b"\n")
        _wait(process, reachable(host), port)
        yield process
    finally:
        _end(process)


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def names(host: str, given: str | None) -> tuple[str, ...]:
    """The names by which clients on other machines call a server on `host`: those `given`, comma-separated, or else the
    address and the machine's name; none for a server on loopback. The first is the one to tell others.

    Raises ConfigError for a name that would let every name in.
    """
    if given is not None:
        wanted = [name.strip() for name in given.split(",")]
    elif is_loopback(host):
        wanted = []
    else:
        wildcard = reachable(host) != host
        wanted = [socket.gethostname()] if wildcard else [host, socket.gethostname()]
    for name in wanted:
        if not name.strip("*") or "*" in name or "/" in name:
            raise ConfigError(f"--allowed-hosts: expected names such as head.example.org, got {name!r}")
    return tuple(dict.fromkeys(wanted))


def allowed_hosts(host: str, port: int, names: tuple[str, ...]) -> tuple[str, ...]:
    """The Host headers that a server on `host` and `port` answers to: this machine's for itself, and `names` with and
    without the port, since a proxy in front of it may have another one.
    """
    own = ([host] if is_loopback(host) else []) + ["localhost", "127.0.0.1", "::1"]
    others = [_bracketed(name) for name in names]
    return tuple(dict.fromkeys([f"{_bracketed(name)}:{port}" for name in own] + [f"{name}:{port}" for name in others] + others))


def reachable(host: str) -> str:
    """Where this machine reaches a server that listens on `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def url(host: str, port: int) -> str:
    return f"http://{_bracketed(host)}:{port}"


def _bracketed(host: str) -> str:
    """`host` as it stands in an address: an IPv6 address is in brackets."""
    try:
        return f"[{host}]" if ipaddress.ip_address(host).version == 6 else host
    except ValueError:
        return host


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
