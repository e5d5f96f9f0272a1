"""Serve a store by MLflow until the command is interrupted."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from rankbench.core.errors import StorageError
from rankbench.tracking.server import allowed_hosts, listening, serving
from rankbench.tracking.store import clear_errors, make_tables
from rankbench.tracking.upgrade import upgrade


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
