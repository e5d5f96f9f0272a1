"""A real MLflow server that is frozen and killed in the middle of a sweep: nothing is lost, nothing comes twice."""

import dataclasses
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from rankbench.tracking import mlflow_sink
from rankbench.tracking.delivery import check
from rankbench.tracking.record import write_record
from rankbench.tracking.store import QUIET

from ..sweeps.commands import wait_until
from .stores import content, deliver, free_port, records, run_tags, sink_on, spooled, stored, told, with_curves
from .test_record import RECORD

pytestmark = pytest.mark.slow


class Server:
    """`mlflow server` on loopback over a SQLite file, in a process group of its own."""

    def __init__(self, folder):
        self.folder, self.database = folder, folder / "server.db"
        self.port = free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self):
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port), "--workers", "1"]
        command += ["--backend-store-uri", f"sqlite:///{self.database}", "--artifacts-destination", str(self.folder / "files")]
        self.process = subprocess.Popen(
            command, env=os.environ | QUIET, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_until(lambda: not check(self.uri, self.folder / "artifacts"))

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


@pytest.mark.fault("F9")
def test_a_server_that_hangs_in_mid_sweep(server, tmp_path, monkeypatch, figure):
    monkeypatch.setattr(mlflow_sink, "PATIENCE", 3.0)
    lines = []
    sink = sink_on(tmp_path, "hung", lines, server.uri)
    sink.open()
    sink.start_sweep("hung-1", {"fits": 4}, {})
    first, *rest = records(4)
    sink.send(first, write_record(tmp_path / "records", first, None))
    wait_until(lambda: not spooled(tmp_path))
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


@pytest.mark.fault("F9")
def test_a_server_killed_for_the_middle_third_of_a_sweep(server, tmp_path, figure):
    runs = [dataclasses.replace(record, id=f"thirds-{record.id}") for record in with_curves(records(18), 40)]
    lines = []
    sink = sink_on(tmp_path, "thirds", lines, server.uri)
    sink.open()
    sink.start_sweep("thirds-1", {"fits": len(runs)}, {})
    for position, record in enumerate(runs):
        if position == 6:
            wait_until(lambda: not spooled(tmp_path))
            server.signal(signal.SIGKILL)
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
