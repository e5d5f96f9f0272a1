"""A real MLflow server that is stopped, slowed and killed in the middle of a sweep: nothing is lost, nothing comes twice."""

import dataclasses
import http.client
import http.server
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time

import pytest

from rankbench.tracking import mlflow_sink
from rankbench.tracking.delivery import Delivery, check
from rankbench.tracking.record import write_record
from rankbench.tracking.store import QUIET

from .stores import content, records, run_tags, sink_on, spooled, stored, sweep, told, with_curves
from .test_record import RECORD

pytestmark = pytest.mark.slow


class Server:
    """`mlflow server` on loopback over a SQLite file, in a process group of its own."""

    def __init__(self, folder):
        self.folder, self.database = folder, folder / "server.db"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.uri = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self):
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port), "--workers", "1"]
        command += ["--backend-store-uri", f"sqlite:///{self.database}", "--artifacts-destination", str(self.folder / "files")]
        self.process = subprocess.Popen(
            command, env=os.environ | QUIET, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_until(lambda: not check(self.uri, self.folder / "artifacts"), 120)

    def signal(self, number):
        os.killpg(self.process.pid, number)  # the group we started: server and worker
        if number == signal.SIGKILL:
            self.process.wait(timeout=60)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("server"))
    yield server
    server.signal(signal.SIGCONT)
    server.signal(signal.SIGKILL)


def deliver(root, uri):
    delivery = Delivery(uri, root / "artifacts", queue=False)
    delivery.start()
    return delivery.finish(lambda: len(spooled(root)), 60.0, 200.0), delivery.reason


def wait_until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def wait_until_sent(root):
    wait_until(lambda: not spooled(root))


def whole_sweep(server, experiment, n):
    """Each record is there once, finished, with every metric and param, and its file; and the sweep is."""
    with sqlite3.connect(f"file:{server.database}?mode=ro", uri=True) as connection:
        rows = connection.execute(
            "SELECT tags.value, status, (SELECT count(*) FROM metrics WHERE metrics.run_uuid = runs.run_uuid),"
            " (SELECT count(*) FROM params WHERE params.run_uuid = runs.run_uuid), artifact_uri FROM runs"
            " JOIN tags USING (run_uuid) JOIN experiments USING (experiment_id) WHERE experiments.name = ?"
            " AND tags.key IN ('rankbench.run', 'rankbench.sweep') AND runs.lifecycle_stage = 'active'",
            (experiment,),
        ).fetchall()
    params = len({"method", "dataset", "dtype", "seed", "split_seed"} | RECORD.params.keys())
    expected = [(record.id, "FINISHED", len(told(record)), params) for record in records(n)]
    expected += [(f"{experiment}-1", "FINISHED", 0, 1)]  # the parent has no metric: it would be a chart with a single bar
    assert sorted(row[:4] for row in rows) == sorted(expected)
    runs = [row[4].removeprefix("mlflow-artifacts:/") for row in rows if row[0].startswith("run-")]
    assert all((server.folder / "files" / where.lstrip("/") / "record.json").is_file() for where in runs)


def test_a_whole_sweep_through_a_server(server, tmp_path):
    lines = []
    sink = sink_on(tmp_path, "calm", lines, server.uri)
    sink.open()
    sweep(sink, "calm-1", 5)
    assert lines == [] and spooled(tmp_path) == []
    whole_sweep(server, "calm", 5)


@pytest.mark.fault("F9")
def test_a_server_that_hangs_in_mid_sweep(server, tmp_path, monkeypatch, figure):
    monkeypatch.setattr(mlflow_sink, "PATIENCE", 3.0)
    lines = []
    sink = sink_on(tmp_path, "hung", lines, server.uri)
    sink.open()
    sink.start_sweep("hung-1", {"fits": 4}, {})
    first, *rest = records(4)
    sink.send(first, write_record(tmp_path / "records", first, None))
    wait_until_sent(tmp_path)
    server.signal(signal.SIGSTOP)
    begun = time.monotonic()
    for record in rest:
        sink.send(record, write_record(tmp_path / "records", record, None))
    assert time.monotonic() - begun < 20  # files, no calls
    sink.finish_sweep([], ok=True)
    assert time.monotonic() - begun < 50
    assert len(lines) == 1 and "no answer" in lines[0] and len(spooled(tmp_path)) == 4
    shutil.copytree(tmp_path / "spool", tmp_path / "kept")
    server.signal(signal.SIGCONT)
    assert deliver(tmp_path, server.uri) == (0, "")
    whole_sweep(server, "hung", 4)
    before = content(server.database)
    shutil.copytree(tmp_path / "kept", tmp_path / "spool", dirs_exist_ok=True)
    assert deliver(tmp_path, server.uri) == (0, "")
    assert content(server.database) == before
    figure("a server frozen in mid-sweep: 4 of 4 runs after it woke up; a second replay changes nothing")


def slow_door(port, seconds):
    """A door to the server at `port` that passes every request on `seconds` late."""

    class Door(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            time.sleep(seconds)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            inner = http.client.HTTPConnection("127.0.0.1", port)
            headers = {key: value for key, value in self.headers.items() if key.lower() != "host"}
            inner.request(self.command, self.path, body, headers)
            answer = inner.getresponse()
            content = answer.read()
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.getheader("Content-Type", "application/json"))
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

        def log_message(self, *_):
            pass

    return http.server.ThreadingHTTPServer(("127.0.0.1", 0), Door)


@pytest.mark.fault("F9")
def test_a_server_of_five_seconds_a_call(server, tmp_path, figure):
    with slow_door(server.port, 5.0) as door:
        threading.Thread(target=door.serve_forever, daemon=True).start()
        lines, begun = [], time.monotonic()
        sink = sink_on(tmp_path, "slow", lines, f"http://127.0.0.1:{door.server_port}")
        sink.open()
        sweep(sink, "slow-1", 2)
        assert time.monotonic() - begun < mlflow_sink.LIMIT + 10
        assert len(lines) == 1 and "messages wait" in lines[0]
        door.shutdown()
    assert deliver(tmp_path, server.uri) == (0, "")
    whole_sweep(server, "slow", 2)
    figure("a server of 5 s a call: one warning, 2 of 2 runs later")


@pytest.mark.fault("F9")
def test_a_server_killed_in_mid_sweep_and_started_again(server, tmp_path, figure):
    lines = []
    sink = sink_on(tmp_path, "killed", lines, server.uri)
    sink.open()
    sink.start_sweep("killed-1", {"fits": 30}, {})
    for record in records(30):
        sink.send(record, write_record(tmp_path / "records", record, None))
    wait_until(lambda: len(spooled(tmp_path)) <= 20)  # some are there, and one is under way
    server.signal(signal.SIGKILL)
    sink.finish_sweep([], ok=True)
    assert len(lines) == 1 and "Connection refused" in lines[0]
    server.start()
    assert deliver(tmp_path, server.uri) == (0, "")
    whole_sweep(server, "killed", 30)
    assert run_tags(server.database, "rankbench.sweep").count("killed-1") == 1
    figure("a server killed in mid-sweep and started again: 30 of 30 runs")


@pytest.mark.fault("F9")
def test_a_server_stopped_for_the_middle_third_of_a_sweep(server, tmp_path, figure):
    runs = [dataclasses.replace(record, id=f"thirds-{record.id}") for record in with_curves(records(18), 40)]
    lines = []
    sink = sink_on(tmp_path, "thirds", lines, server.uri)
    sink.open()
    sink.start_sweep("thirds-1", {"fits": len(runs)}, {})
    for position, record in enumerate(runs):
        if position == 6:
            wait_until_sent(tmp_path)
            server.signal(signal.SIGTERM)
            server.process.wait(timeout=30)
        if position == 12:
            wait_until(lambda: sink._delivery.reason)  # the uploader has met the closed door
            server.start()
        sink.send(record, write_record(tmp_path / "records", record, None))
    sink.finish_sweep([], ok=True)
    assert lines == [] or "messages wait" in lines[0]
    environment = os.environ | {"RANKBENCH_RESULTS": str(tmp_path), "RANKBENCH_TRACKING_URI": server.uri}
    sync = [sys.executable, "-m", "rankbench", "tracking", "sync"]
    assert subprocess.run(sync, env=environment, check=False).returncode == 0
    assert spooled(tmp_path) == []
    found = stored(f"sqlite:///{server.database}", "thirds")
    assert found == {record.id: ("FINISHED", told(record)) for record in runs}
    assert run_tags(server.database, "rankbench.sweep").count("thirds-1") == 1
    figure("a server away for a third of a sweep: 18 of 18 runs with every point of their curves")
