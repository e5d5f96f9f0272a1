"""The process of an MLflow server: `python -m rankbench.tracking.web`, started only by server.py.

It runs MLflow's own application in uvicorn, as `mlflow server` does, except that

- it listens on a socket that its parent has bound, so that it cannot take another port or share one;
- only the server decides where the files of an experiment are stored: MLflow lets a client name any folder, and then reads
  and writes there with the rights of the server's user;
- MLflow's assistant is disabled, because it runs commands on this machine for anyone who reaches the port;
- it opens with the list of experiments, and a new browser sees the pages of model training, not those of agents.

It reads its order from stdin, one line of JSON with the address of the store.
"""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import Any

from rankbench.core.redaction import RedactedStream
from rankbench.tracking.mlflow_internals import server_application

ASSISTANT = "/mlflow/assistant"

# What the pages keep in the browser. They look there, not at the kind of an experiment, for what to show at first.
FIRST_VISIT = {"mlflow.workflowType_v1": "machine_learning", "mlflow.assistant.fab.autoOpenedOnFirstLoad_v1": True}

START = 'if (!location.hash) location.replace("#/experiments")'


def main() -> None:
    order = json.loads(sys.stdin.readline())
    sys.stdout = sys.stderr = RedactedStream(sys.stderr, order["uri"])
    listener = socket.socket(fileno=order["listener"])

    import uvicorn

    # Otherwise, an open browser tab would keep the server running.
    config = uvicorn.Config(_application(order), log_level="warning", timeout_graceful_shutdown=5)
    uvicorn.Server(config).run(sockets=[listener])


def _application(order: dict[str, Any]) -> Any:
    """Return MLflow's ASGI application for the store in `order`."""
    files = Path(order["artifacts"]).resolve().as_uri()
    app = server_application(order["uri"], files, order["proxied"], tuple(order["hosts"]))

    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        if ASSISTANT in scope.get("path", ""):
            await send({"type": "http.response.start", "status": 404, "headers": [(b"content-type", b"text/plain")]})
            await send({"type": "http.response.body", "body": b"the assistant is disabled"})
        elif scope["type"] == "http" and scope["path"] == "/" and scope["method"] == "GET":
            await _send_with_first_visit(app, scope, receive, send)
        else:
            await app(scope, receive, send)

    return application


async def _send_with_first_visit(app: Any, scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Send the page of `app` with a script in it: FIRST_VISIT, unless the browser has stored other choices."""
    events: list[dict[str, Any]] = []

    async def keep(event: dict[str, Any]) -> None:
        events.append(event)

    await app(scope, receive, keep)
    start, *parts = events
    page = b"".join(part.get("body", b"") for part in parts).replace(b"<head>", b"<head>" + _script().encode(), 1)
    # The page differs from the file whose date and checksum the server states.
    stale = (b"content-length", b"etag", b"last-modified")
    headers = [(name, value) for name, value in start["headers"] if name.lower() not in stale]
    await send(start | {"headers": [*headers, (b"content-length", str(len(page)).encode())]})
    await send({"type": "http.response.body", "body": page})


def _script() -> str:
    choices = json.dumps({key: json.dumps(value) for key, value in FIRST_VISIT.items()})
    store = "if (localStorage.getItem(key) === null) localStorage.setItem(key, value)"
    return f"<script>for (const [key, value] of Object.entries({choices})) {store};{START}</script>"


if __name__ == "__main__":
    main()
