"""rankbench ui: the MLflow server over this results folder, on loopback."""

from __future__ import annotations

from typing import Annotated

import typer

from rankbench.cli.console import Json, err, print_json

EXAMPLES = """Example:

  rankbench ui --port 5001
"""


def ui(
    port: Annotated[int, typer.Option(min=1024, max=65535, help="Port on 127.0.0.1.")] = 5000,
    json: Json = False,
) -> int:
    """Browse results in MLflow at http://127.0.0.1:PORT until interrupted."""
    import socket
    import subprocess

    from rankbench.errors import ConfigError, StorageError, require
    from rankbench.settings import Settings
    from rankbench.tracking.store import is_server, make_tables, reason, serve_command, tracking_uri, without_password

    settings = Settings.from_env()
    uri, artifacts = tracking_uri(settings), settings.results / "mlartifacts"
    shown = without_password(uri)
    require(not is_server(uri), f"RANKBENCH_TRACKING_URI={shown} is an MLflow server already: open it in a browser")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise ConfigError(f"--port: 127.0.0.1:{port} is taken; choose another") from None
    try:
        make_tables(uri, artifacts)
    except StorageError:
        raise
    except Exception as error:
        raise StorageError(f"{shown}: {reason(error, uri)}") from None
    command, environment = serve_command(uri, artifacts, port)
    url = f"http://127.0.0.1:{port}"
    if json:
        print_json({"url": url, "store": shown})
    else:
        err.print(f"MLflow on {url}, store {shown} (Ctrl-C stops it)", markup=False)
    server = subprocess.Popen(command, env=environment)
    try:
        return server.wait()
    finally:
        server.terminate()
        server.wait(timeout=20)
