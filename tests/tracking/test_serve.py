"""`rankbench tracking serve` as a user meets it: it answers, takes records and files, and ends with all its processes."""

import json
import os
import signal
import socket
import subprocess
import sys

import psutil
import pytest
from mlflow.tracking import MlflowClient

from rankbench.cli import _main
from rankbench.tracking.record import write_record
from rankbench.tracking.server import is_loopback, names
from rankbench.tracking.store import serve_command

from .stores import records, sink_on, spooled


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@pytest.fixture(autouse=True)
def results(tmp_path, monkeypatch):
    monkeypatch.setenv("RANKBENCH_RESULTS", str(tmp_path / "results"))
    monkeypatch.delenv("RANKBENCH_TRACKING_URI", raising=False)
    return tmp_path / "results"


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_it_answers_takes_a_run_and_ends_without_a_process_left(results, tmp_path, number):
    port = free_port()
    command = [sys.executable, "-m", "rankbench", "tracking", "serve", "--port", str(port), "--json"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        said = ""
        while not said.endswith("}\n"):  # printed once it answers
            line = server.stdout.readline()
            assert line, "it ended"
            said += line
        told = json.loads(said)
        assert told["url"] == f"http://127.0.0.1:{port}" and told["store"] == f"sqlite:///{results}/mlflow.db"
        # From another results folder, as from another machine.
        lines, (record,) = [], records(1)
        sink = sink_on(tmp_path / "elsewhere", "served", lines, told["url"])
        sink.open()
        sink.send(record, write_record(tmp_path / "elsewhere" / "runs", record, None))
        sink.close()
        assert lines == [] and spooled(tmp_path / "elsewhere") == []
        client = MlflowClient(told["url"])
        (run,) = client.search_runs([client.get_experiment_by_name("served").experiment_id])
        assert run.data.metrics["test/ndcg_at_20"] == 0.25 and run.info.artifact_uri.startswith("mlflow-artifacts:/")
        assert [path.parents[3] for path in results.rglob("record.json")] == [results / "mlartifacts"]
        family = psutil.Process(server.pid).children(recursive=True)
        assert len(family) >= 2  # MLflow, and the worker that it starts
        assert _main(["tracking", "serve", "--port", str(port)]) == 2  # taken
    finally:
        server.send_signal(number)
        rest = server.communicate(timeout=60)[0]
    assert (server.returncode, rest) == (0, "")
    assert psutil.wait_procs(family, timeout=10)[1] == []


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "head.example.org"])
def test_the_network_is_not_served_unasked(results, capsys, host):
    assert _main(["tracking", "serve", "--host", host]) == 2
    error = capsys.readouterr().err
    assert "--open-to-network" in error and error.count("\n") == 1 and not results.exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--allowed-hosts", "head"], "only where the server is open"),
        (["--open-to-network", "--host", "192.0.2.7"], "no address of this machine"),
        (["--open-to-network", "--host", "0.0.0.0", "--allowed-hosts", "head,*"], "expected names"),
        (["--store", "http://127.0.0.1:5000"], "name a database"),
        (["--store", "postgres://me:secret@host/db"], r"--store=postgres://me:***@host/db: write postgresql+psycopg2://"),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_line(results, capsys, words, says):
    assert _main(["tracking", "serve", "--port", str(free_port()), *words]) == 2
    error = capsys.readouterr().err
    assert says in error and "secret" not in error and error.count("\n") == 1 and not results.exists()


def test_a_port_that_is_taken_is_refused_before_the_store_is_touched(results, capsys):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert _main(["tracking", "serve", "--port", str(listener.getsockname()[1])]) == 2
    error = capsys.readouterr().err
    assert "is taken" in error and error.count("\n") == 1 and not results.exists()


def test_an_open_server_answers_to_its_names_alone(tmp_path):
    assert [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "127.8.9.1", "0.0.0.0", "head")] == [True] * 4 + [
        False
    ] * 2
    assert names("10.1.2.3", None)[:2] == ("10.1.2.3", socket.gethostname())
    assert names("0.0.0.0", None)[0] == socket.gethostname()
    command, environment = serve_command(
        "sqlite:///s", tmp_path, 5000, "0.0.0.0", names("0.0.0.0", "a.example, b.example"), proxied=True
    )
    hosts = command[command.index("--allowed-hosts") + 1].split(",")
    assert {"a.example", "a.example:5000", "b.example", "b.example:5000", "127.0.0.1:5000"} < set(hosts) and "*" not in hosts
    assert "http://a.example:5000" in command[command.index("--cors-allowed-origins") + 1].split(",")
    assert "sqlite:///s" not in command and environment["MLFLOW_BACKEND_STORE_URI"] == "sqlite:///s"
    assert environment["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] == "false" and os.environ.items() <= environment.items()
