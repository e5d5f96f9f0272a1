"""rankbench ui: browse the results folder in MLflow, on loopback."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

import typer

from rankbench.cli.console import Json, err, print_json, program
from rankbench.core.environment import Environment
from rankbench.core.errors import require
from rankbench.core.extras import require_extra
from rankbench.core.redaction import without_password
from rankbench.tracking.address import artifacts_folder, is_server, tracking_uri, variable

EXAMPLES = """Example:
  rankbench ui --port 5001
"""


def ui(
    port: Annotated[int, typer.Option(min=1024, max=65535, help="Port to listen on, at 127.0.0.1.")] = 5000,
    json: Json = False,
) -> int:
    """Browse results in MLflow, until interrupted. The address is http://127.0.0.1:PORT."""
    from rankbench.tracking.server import serve, url
    from rankbench.tracking.spool import Spool

    require_extra("tracking", "browsing runs")
    environment = Environment.from_env()
    uri, at = tracking_uri(environment), url("127.0.0.1", port)
    shown = without_password(uri)
    require(not is_server(uri), f"{variable(environment)}={shown} is already an MLflow server; open it in a browser")

    spool = Spool.beside(artifacts_folder(environment))
    with suppress(OSError):  # as of somebody else's folder
        spool.inherit()

    def on_ready() -> None:
        if json:
            print_json({"url": at, "store": shown})
        else:
            err.print(f"MLflow on {at}, store {shown} (press Ctrl-C to stop)")
            if n := len(spool.waiting()):
                err.print(f"{n} messages wait for MLflow; `{program()} tracking sync` sends them")

    return serve(uri, artifacts_folder(environment), on_ready, port=port)
