"""`rankbench tracking serve` as a user meets it: it answers, takes records and files, and ends with all its processes."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager

import psutil
import pytest
from mlflow.tracking import MlflowClient
from sqlalchemy.engine import make_url

from rankbench.cli import _main
from rankbench.tracking.links import web_address
from rankbench.tracking.record import write_record
from rankbench.tracking.server import allowed_hosts, is_loopback, names
from rankbench.tracking.store import connect, make_tables

from .postgres import postgres, why_not
from .stores import free_port, records, sink_on, spooled


@pytest.fixture(autouse=True)
def results(home):
    return home / "results"


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_it_answers_takes_a_run_and_ends_without_a_process_left(results, tmp_path, number):
    port = free_port()
    with served(["tracking", "serve"], port, end=number) as (server, told):
        assert told["url"] == f"http://127.0.0.1:{port}" and told["store"] == f"sqlite:///{results}/mlflow.db"
        assert web_address(told["store"]) == told["url"]
        with urllib.request.urlopen(f"{told['url']}/", timeout=30) as answer:
            page = answer.read().decode()
            assert int(answer.headers["content-length"]) == len(page.encode())
        assert page.startswith("<!doctype html>") and page.index('"mlflow.workflowType_v1"') < page.index("main.")
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
        assert family
        assert _main(["tracking", "serve", "--port", str(port)]) == 2  # taken
    assert server.returncode == 0
    assert psutil.wait_procs(family, timeout=60)[1] == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        *((["--host", host], "--open-to-network") for host in ("0.0.0.0", "::", "10.1.2.3", "head.example.org")),
        (["--allowed-hosts", "head,"], "expected names"),
        (["--open-to-network", "--host", "192.0.2.7"], "not an address of this machine"),
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


def test_a_server_answers_to_its_names_alone():
    assert [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "127.8.9.1", "0.0.0.0", "head")] == [True] * 4 + [
        False
    ] * 2
    assert names("10.1.2.3", None) == ("10.1.2.3", socket.gethostname()) and names("0.0.0.0", None) == (socket.gethostname(),)
    local = ("localhost:5000", "127.0.0.1:5000", "[::1]:5000")
    assert names("127.0.0.1", None) == () and set(allowed_hosts("127.0.0.1", 5000, ())) == set(local)
    assert set(allowed_hosts("127.8.9.1", 5000, ())) == {*local, "127.8.9.1:5000"}
    assert set(allowed_hosts("0.0.0.0", 5000, names("0.0.0.0", "a.example, b.example"))) == {
        *local, "a.example:5000", "a.example", "b.example:5000", "b.example"
    }  # fmt: skip
    assert "[fd12::3]:5000" in allowed_hosts("fd12::3", 5000, names("fd12::3", None))


@contextmanager
def served(words, port, environment=None, end=signal.SIGTERM):
    """A command that serves, once it answers, and what it printed; ended by a signal, it says no more."""
    command = [sys.executable, "-m", "rankbench", *words, "--port", str(port), "--json"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | (environment or {})
    )
    try:
        said = ""
        while not said.endswith("}\n"):
            line = process.stdout.readline()
            assert line, process.communicate()[1]
            said += line
        yield process, json.loads(said)
    finally:
        process.send_signal(end)
        rest, _ = process.communicate(timeout=60)
    assert rest == ""


def ask(port, path, host=None, content=None, origin=None):
    """Status and body of a request whose Host header is `host`."""
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Host": host or f"127.0.0.1:{port}", "Content-Type": "application/json"} | ({"Origin": origin} if origin else {})
    line.request("GET" if content is None else "POST", path, content, headers)
    answer = line.getresponse()
    return answer.status, answer.read().decode()


CREATE = "/api/2.0/mlflow/experiments/create"


@pytest.mark.parametrize("words", [pytest.param(["ui"], marks=pytest.mark.slow), ["tracking", "serve"]], ids=["ui", "serve"])
@pytest.mark.fault("F14")
def test_a_server_on_loopback_is_closed_to_other_names_and_other_folders(results, words, figure):
    # A run as a command writes it, without a server: its files lie in a folder of its own.
    make_tables(f"sqlite:///{results}/mlflow.db", results / "mlartifacts")
    (record,), lines = records(1), []
    sink = sink_on(results, "direct", lines)
    sink.open()
    sink.send(record, write_record(results / "runs", record, None))
    sink.close()
    assert lines == []
    port = free_port()
    # What the user's own environment says of servers must not open this one.
    loose = {"MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE": "true", "MLFLOW_SERVER_ALLOWED_HOSTS": "*"}
    with served(words, port, loose):
        for name in ("127.0.0.1", "localhost", "[::1]"):
            assert ask(port, "/", f"{name}:{port}")[0] == 200
        for name in (
            "192.168.1.5",
            f"192.168.1.5:{port}",
            f"10.0.0.1:{port}",
            "localhost",
            f"localhost:{port + 1}",
            "evil.example",
        ):
            assert ask(port, "/", name)[0] == 403, name
        own, foreign = f"http://localhost:{port}", "http://evil.example"
        for spelt in ("artifact_location", "artifactLocation"):
            for place in ("file:///etc", "/etc", "file:///a/../../../../etc", "../etc", "s3://bucket"):
                status, said = ask(port, CREATE, None, json.dumps({"name": place, spelt: place}), own)
                assert status == 400 and "decides where" in said
        assert ask(port, CREATE, None, json.dumps({"name": "x"}), foreign)[0] == 403
        status, said = ask(port, CREATE, None, json.dumps({"name": "plain"}), own)
        assert status == 200
        _, said = ask(port, f"/api/2.0/mlflow/experiments/get?experiment_id={json.loads(said)['experiment_id']}")
        place = json.loads(said)["experiment"]["artifact_location"]
        assert place.startswith(f"file://{results}/mlartifacts/" if words == ["ui"] else "mlflow-artifacts:/")
        assert ask(port, "/ajax-api/3.0/mlflow/assistant/config")[0] == 404
        # The earlier run still shows, with its files.
        client = connect(f"http://127.0.0.1:{port}", results)
        (run,) = client.search_runs([client.get_experiment_by_name("direct").experiment_id])
        assert run.info.artifact_uri.startswith("file://")
        status, said = ask(port, f"/get-artifact?path=record.json&run_id={run.info.run_id}")
        assert status == 200 and json.loads(said)["id"] == record.id
    figure("MLflow's server: 6 foreign names and a foreign origin get 403, 5 places outside its folder 400")


def test_of_servers_that_start_at_once_on_one_empty_folder_all_come_up_but_the_second_on_a_port(results):
    ports = [free_port() for _ in range(2)]
    words = [["ui", "--port", str(ports[0])]] * 2 + [["tracking", "serve", "--port", str(ports[1])]]
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "rankbench", *each, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for each in words
    ]
    try:
        # The loser ends while the winner has perhaps not answered yet.
        deadline = time.monotonic() + 120
        while not (ended := [each for each in started if each.poll() is not None]):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        (loser,) = ended
        said, error = loser.communicate()
        assert loser.returncode == 2 and error.count("\n") == 1 and f":{ports[0]} is taken" in error
        assert json.loads(said)["exit_code"] == 2 and loser is not started[2]
        winners = [each for each in started if each is not loser]
        assert [each.stdout.readline() for each in winners] == ["{\n"] * 2  # they answer
        for port in ports:
            status, said = ask(port, "/api/2.0/mlflow/experiments/search?max_results=5")
            assert status == 200 and [each["name"] for each in json.loads(said)["experiments"]] == ["Default"]
    finally:
        for each in started:
            each.send_signal(signal.SIGTERM)
            each.communicate(timeout=60)
    assert [each.returncode for each in winners] == [0, 0]


def test_a_password_stands_in_no_command_line(tmp_path):
    """Of what `serve` starts; its own words are the user's."""
    if why := why_not():
        pytest.skip(why)
    with postgres() as make:
        uri, port = make("quiet"), free_port()
        password = make_url(uri).password
        with served(["tracking", "serve"], port, {"RANKBENCH_TRACKING_URI": uri}) as (process, _):
            family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
            assert len(family) > 1 and not [each for each in family if password in " ".join(each.cmdline())]
            assert ask(port, CREATE, None, json.dumps({"name": "plain"}))[0] == 200
