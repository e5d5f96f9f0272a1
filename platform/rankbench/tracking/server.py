"""Run an MLflow server as a child process: start it, wait until it answers, and end it with all its children."""

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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rankbench.core.errors import ConfigError, StorageError
from rankbench.tracking.links import remember
from rankbench.tracking.store import QUIET, clear_errors, make_tables, upgrade

START_SECONDS = 300.0  # 7 to 14 s on an idle machine, minutes on an overloaded one
STOP_SECONDS = 10.0  # the server itself waits 5 s for open requests


def serve(
    uri: str,
    artifacts: Path,
    on_ready: Callable[[], None],
    host: str = "127.0.0.1",
    port: int = 5000,
    names: tuple[str, ...] = (),
    upgraded: Callable[[str], None] | None = None,
) -> int:
    """Serve the store at `uri` until Ctrl-C, and return the exit code. `on_ready` is called when the server answers; `names`
    are those by which other machines reach it. With `upgraded`, a store of an older MLflow is brought up to date first, which
    it is told of, and clients send their files through the server.

    Raises ConfigError if the address is unknown or taken, StorageError if the store cannot be opened or the server ends.
    """
    try:
        with listening(host, port) as listener:
            with clear_errors(uri):
                if upgraded and (done := upgrade(uri)):
                    upgraded(done)
                make_tables(uri, artifacts)
            hosts = allowed_hosts(host, port, names)
            with serving(listener, uri, artifacts, hosts, proxied=upgraded is not None) as process:
                on_ready()
                sys.stdout.flush()
                raise StorageError(f"the MLflow server ended unexpectedly with exit code {process.wait()}")
    except KeyboardInterrupt:
        # Ctrl-C or SIGTERM is the normal end of a server, not a failure.
        return 0


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """Yield a socket that listens on `host` and `port`, so that the second of two servers on one port fails before it starts.

    Raises ConfigError if the address is unknown or taken.
    """
    try:
        (family, _, _, _, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError):
        raise ConfigError(f"--host: unknown host {host!r}") from None
    try:
        listener = socket.create_server(address, family=family, backlog=128)
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            raise ConfigError(f"--host: {host} is not an address of this machine") from None
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(f"--port: {host}:{port} is taken; choose another") from None
        raise ConfigError(f"--port: cannot listen on {host}:{port} ({error.strerror})") from None
    with listener:
        yield listener


@contextmanager
def serving(
    listener: socket.socket, uri: str, artifacts: Path, hosts: tuple[str, ...], proxied: bool = False
) -> Iterator[subprocess.Popen]:
    """Serve the store at `uri` on `listener` during the block, which begins when the server answers.

    It only answers requests for `hosts`. `proxied`: clients send the files of new experiments through the server, which stores
    them under `artifacts`; otherwise clients on this machine write them there. The output goes to stderr. Raises StorageError
    if the server ends, or START_SECONDS pass, before it answers.
    """
    order = {"uri": uri, "artifacts": str(artifacts), "listener": listener.fileno(), "hosts": hosts, "proxied": proxied}
    process = subprocess.Popen(
        # -P: files in the current folder must not be imported in place of libraries.
        [sys.executable, "-P", "-m", "rankbench.tracking.web"],
        env=os.environ | QUIET | {"PYTHONWARNINGS": "ignore"},
        pass_fds=[listener.fileno()],
        # In its own session, so that Ctrl-C reaches only this process, which then ends the server and all it has started.
        start_new_session=True,
        stdin=subprocess.PIPE,
        stdout=2,
    )
    host, port = listener.getsockname()[:2]
    # Only the server holds the socket now, so that it is closed when the server ends.
    listener.close()
    try:
        with suppress(BrokenPipeError), process.stdin as pipe:
            # Not as arguments: the address may contain a password, and every user of the machine can see command lines.
            pipe.write(json.dumps(order).encode() + b"\n")
        _wait(process, reachable(host), port)
        remember(uri, url(reachable(host), port))
        yield process
    finally:
        _end(process)


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def names(host: str, given: str | None) -> tuple[str, ...]:
    """Return the names by which clients on other machines reach a server on `host`: those `given`, comma-separated, or else the
    address and the machine's name; none for a server on loopback. The first one is shown to the user.

    Raises ConfigError for a name that would admit every name.
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
    """Return the Host headers that a server on `host` and `port` accepts: this machine's own names, and `names` with and
    without the port, because a proxy in front of the server may have another port.
    """
    own = ([host] if is_loopback(host) else []) + ["localhost", "127.0.0.1", "::1"]
    others = [_bracketed(name) for name in names]
    return tuple(dict.fromkeys([f"{_bracketed(name)}:{port}" for name in own] + [f"{name}:{port}" for name in others] + others))


def reachable(host: str) -> str:
    """Return the host at which this machine reaches a server that listens on `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def url(host: str, port: int) -> str:
    return f"http://{_bracketed(host)}:{port}"


def _bracketed(host: str) -> str:
    """Return `host` as it is written in a URL: an IPv6 address in brackets."""
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
    connection = http.client.HTTPConnection(host, port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _end(process: subprocess.Popen) -> None:
    try:
        _send_signal(process, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=STOP_SECONDS)
    finally:
        # This also ends children whose parent has ended, and is reached if a second Ctrl-C interrupts the wait.
        _send_signal(process, signal.SIGKILL)
        process.wait()


def _send_signal(process: subprocess.Popen, number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
