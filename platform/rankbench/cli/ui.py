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

    from rankbench.errors import ConfigError
    from rankbench.settings import Settings
    from rankbench.tracking.mlflow_sink import MlflowSink, serve_command, tracking_uri

    settings = Settings.from_env()
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise ConfigError(f"--port: 127.0.0.1:{port} is taken; choose another") from None
    uri, artifacts = tracking_uri(settings), settings.results / "mlartifacts"
    if uri.startswith("sqlite:///"):
        # A store that two processes make at once breaks; it is made here, under the lock.
        MlflowSink(uri, "runs", artifacts).open()
    command, environment = serve_command(uri, artifacts, port)
    url = f"http://127.0.0.1:{port}"
    if json:
        print_json({"url": url, "store": uri})
    else:
        err.print(f"MLflow on {url}, store {uri} (Ctrl-C stops it)", markup=False)
    server = subprocess.Popen(command, env=environment)
    try:
        return server.wait()
    finally:
        server.terminate()
        server.wait(timeout=20)
