"""A card and its raw files, side by side in a folder; a raw file without a card; a server that misbehaves on purpose."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from rankbench.data.cards import Read
from rankbench.data.raw import RawFile
from rankbench.data.readers import reader


@pytest.fixture
def write(tmp_path: Path):
    """write(card, {"raw.csv": "..."}) → the card's path; a card without a name is called toy."""

    def write(card: dict[str, Any], files: dict[str, str | bytes] | None = None) -> str:
        folder = tmp_path / "cards"
        folder.mkdir(exist_ok=True)
        for name, content in (files or {}).items():
            (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
        path = folder / "toy.yaml"
        path.write_text(yaml.safe_dump({"name": "toy"} | card), encoding="utf-8")
        return str(path)

    return write


@pytest.fixture(scope="session")
def rows_of(tmp_path_factory):
    """rows_of(content, spec, name, member) → a tuple a row, in the order user, item, value, time."""
    folder = tmp_path_factory.mktemp("raw")

    def rows_of(content: str | bytes, spec: Read, name: str = "raw.dat", member: str | None = None) -> list[tuple]:
        path: Path = folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        tables = list(reader(spec.format)(RawFile("all", path, "", spec, "file", member)))
        if not tables:
            return []
        table = pa.concat_tables(tables)
        names = [name for name in ("user", "item", "value", "time") if name in table.column_names]
        return list(zip(*(table[name].to_pylist() for name in names), strict=True))

    return rows_of


class FileServer(ThreadingHTTPServer):
    """Answers from `plan`, one entry a request (the last one for all that follow), and remembers the requests."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.plan, self.requests, self.tag, self.content = [{}], [], '"v1"', b""

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/data.zip"

    def ranges(self):
        return [headers.get("Range") for headers in self.requests]


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        server = self.server
        step = server.plan[min(len(server.requests), len(server.plan) - 1)]
        server.requests.append(dict(self.headers))
        if "status" in step:
            self.send_response(step["status"])
            for name, value in step.get("headers", {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        start, wanted = 0, self.headers.get("Range")
        if wanted and not step.get("ignores_range") and self.headers.get("If-Range") in (None, server.tag):
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
        body = server.content[start:]
        self.send_response(206 if start else 200)
        self.send_header("ETag", server.tag)
        if start:
            first = start + step.get("shifts_range", 0)
            self.send_header("Content-Range", f"bytes {first}-{len(server.content) - 1}/{len(server.content)}")
        if not step.get("no_length"):
            self.send_header("Content-Length", str(len(body) + step.get("lies", 0)))
        self.end_headers()
        self.wfile.write(body[: step.get("drops_after", len(body))])


@pytest.fixture
def file_server():
    server = FileServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()
