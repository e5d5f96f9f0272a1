"""rankbench ui: browse the results folder in MLflow, on loopback."""

from __future__ import annotations

from typing import Annotated

import typer

from rankbench.cli.console import Json, err, print_json

EXAMPLES = """Example:
  rankbench ui --port 5001
"""


def ui(
    port: Annotated[int, typer.Option(min=1024, max=65535, help="Port to listen on, at 127.0.0.1.")] = 5000,
    json: Json = False,
) -> int:
    """Browse results in MLflow, until interrupted. The address is http://127.0.0.1:PORT."""
    import sys

    from rankbench.core.environment import Environment
    from rankbench.core.errors import StorageError, require
    from rankbench.core.extras import require_extra
    from rankbench.core.redaction import without_password
    from rankbench.tracking import server
    from rankbench.tracking.address import is_server, tracking_uri
    from rankbench.tracking.store import clear_errors, make_tables

    require_extra("tracking", "browsing runs")
    environment = Environment.from_env()
    uri, artifacts = tracking_uri(environment), environment.results / "mlartifacts"
    shown = without_password(uri)
    require(not is_server(uri), f"RANKBENCH_TRACKING_URI={shown} is already an MLflow server; open it in a browser")
    try:
        with server.listening("127.0.0.1", port) as listener:
            with clear_errors(uri):
                make_tables(uri, artifacts)
            with server.serving(listener, uri, artifacts, server.allowed_hosts("127.0.0.1", port, ())) as process:
                if json:
                    print_json({"url": server.url("127.0.0.1", port), "store": shown})
                    sys.stdout.flush()
                else:
                    err.print(f"MLflow on {server.url('127.0.0.1', port)}, store {shown} (press Ctrl-C to stop)")
                raise StorageError(f"the MLflow server ended unexpectedly with exit code {process.wait()}")
    except KeyboardInterrupt:
        # Ctrl-C or SIGTERM is the normal end of a server, not a failure.
        return 0
