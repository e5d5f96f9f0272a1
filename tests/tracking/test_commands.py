"""`rankbench tracking`, and `run` while MLflow is away, as a user meets them."""

import json
import re
import socket
import subprocess
import sys
from importlib.metadata import version

import psutil
import pytest
from filelock import FileLock
from mlflow.tracking import MlflowClient

from rankbench.cli import _main
from rankbench.tracking.mlflow_internals import VIEW
from rankbench.tracking.record import write_record

from .stores import free_port, run_tags, sink_on, spooled
from .test_record import RECORD
from .test_saved_views import state_of

RUN = ["run", "synthetic", "ease", "lam=50", "--json", "data.source.generator.users=80", "data.source.generator.items=40",
       "data.source.generator.interactions_per_user=10", "--cutoffs", "5,10"]  # fmt: skip


@pytest.fixture(autouse=True)
def results(home):
    return home / "results"


@pytest.fixture
def dead():
    """An address where nobody listens."""
    return f"http://127.0.0.1:{free_port()}"


def spool_one(results):
    sink = sink_on(results, "runs")
    sink.send(RECORD, write_record(results / "runs", RECORD, None))


def test_a_run_while_the_server_is_down_then_sync(results, dead, monkeypatch, capsys):
    monkeypatch.setenv("RANKBENCH_TRACKING_URI", dead)
    assert _main(RUN) == 0
    printed = capsys.readouterr()
    run = json.loads(printed.out)
    assert printed.err.count("\n") == 1 and "2 of 2 messages wait" in printed.err and "Connection refused" in printed.err
    assert _main(["tracking", "sync", "--json"]) == 5
    printed = capsys.readouterr()
    assert json.loads(printed.out)["exit_code"] == 5 and "nothing is lost" in printed.err and printed.err.count("\n") == 1
    assert len(spooled(results)) == 2  # the run, and the view of its experiment
    monkeypatch.delenv("RANKBENCH_TRACKING_URI")  # a command of now uses another store, for which they are not
    assert _main(["tracking", "sync"]) == 5
    assert f"refused: written for {dead}; `tracking sync --all` sends it here" in capsys.readouterr().err
    assert len(spooled(results)) == 2
    assert _main(["tracking", "status"]) == 0
    assert "2 of them were written for another store" in capsys.readouterr().out
    assert _main(["tracking", "sync", "--all", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sent"] == 2
    assert run_tags(results / "mlflow.db", "rankbench.run") == [run["id"]]


def test_nothing_to_send_is_no_error_and_makes_no_store(results, capsys):
    assert _main(["tracking", "status"]) == 0
    assert "does not exist yet; the first run creates it" in capsys.readouterr().out
    assert _main(["tracking", "sync"]) == 0
    assert "0 messages sent" in capsys.readouterr().out
    assert not results.exists()


def test_a_second_sync_at_once_says_so(results, capsys):
    spool_one(results)
    with FileLock(results / "spool" / ".lock"):
        assert _main(["tracking", "sync"]) == 5
    assert "another process is sending" in capsys.readouterr().err
    assert len(spooled(results)) == 1


@pytest.mark.skipif(version("sqlalchemy") < "2.1", reason="postgresql:// means psycopg2 there, which is installed")
def test_an_address_that_cannot_work_is_refused_before_the_work(results, monkeypatch, capsys):
    monkeypatch.setenv("RANKBENCH_TRACKING_URI", "postgresql://me:secret@host/db")
    assert _main(RUN) == 2
    error = capsys.readouterr().err
    assert "postgresql+psycopg2://" in error and "secret" not in error and not (results / "runs").exists()
    for command in (["tracking", "sync"], ["tracking", "status"], ["ui"]):
        assert _main(command) == 2
    assert _main([*RUN, "--no-track"]) == 0


@pytest.mark.parametrize(
    ("variable", "uri", "says"),
    [
        ("MLFLOW_TRACKING_URI", "htpp://host:5000", "MLFLOW_TRACKING_URI=htpp://.*unknown scheme; did you mean http?"),
        ("MLFLOW_RUN_CONTEXT", "{", "MLFLOW_RUN_CONTEXT: not JSON"),
    ],
)
def test_a_misspelt_address_or_context_is_one_line_before_the_fit(results, monkeypatch, capsys, variable, uri, says):
    monkeypatch.setenv(variable, uri)
    assert _main(RUN) == 2
    error = capsys.readouterr().err
    assert re.search(says, error) and error.count("\n") == 1 and not (results / "runs").exists()


def test_mlflows_variables_and_own_tags_reach_the_run(results, tmp_path, monkeypatch, capsys):
    uri = f"sqlite:///{tmp_path}/theirs.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "theirs")
    assert _main([*RUN, "--tag", "team=search", "--run-name", "first try"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert _main(["tracking", "sync"]) == 0  # what a busy machine has not sent in time
    client = MlflowClient(uri)
    (run,) = client.search_runs([client.get_experiment_by_name("theirs").experiment_id])
    assert (run.info.run_name, run.data.tags["team"], run.data.tags["rankbench.run"]) == ("first try", "search", printed["id"])
    assert run.data.tags["mlflow.source.name"] == "rankbench run" and run.inputs.dataset_inputs
    about = client.get_experiment_by_name("theirs")
    (found,) = client.search_runs([about.experiment_id], state_of(about.tags[f"{VIEW}runs"])["searchFilter"])
    assert found.info.run_id == run.info.run_id
    assert not (results / "mlflow.db").exists()
    # rankbench's own variable wins.
    monkeypatch.setenv("RANKBENCH_TRACKING_URI", f"sqlite:///{tmp_path}/own.db")
    assert _main([*RUN, "--seed", "1"]) == _main(["tracking", "sync"]) == 0
    assert len(run_tags(tmp_path / "own.db", "rankbench.run")) == len(run_tags(tmp_path / "theirs.db", "rankbench.run")) == 1


def test_a_tag_without_tracking_is_refused(results, capsys):
    assert _main([*RUN, "--no-track", "--tag", "a=b"]) == 2
    assert "--no-track" in capsys.readouterr().err


def test_ui_refuses_a_server_and_an_old_store(results, dead, monkeypatch, capsys):
    for variable in ("RANKBENCH_TRACKING_URI", "MLFLOW_TRACKING_URI"):  # the message names the one that is set
        monkeypatch.setenv(variable, dead)
        for command, problem in (("ui", "open it in a browser"), ("tracking serve", "name a database")):
            assert _main([*command.split(), "--port", "65432"]) == 2
            error = capsys.readouterr().err
            assert error.startswith(f"error: {variable}=") and problem in error
        monkeypatch.delenv(variable)
    results.mkdir()
    (results / "mlflow.db").write_text("not a database, long enough to be read as one" * 20)
    assert _main(["ui", "--port", "65432"]) == 5
    assert "not a database" in capsys.readouterr().err


@pytest.mark.slow
def test_a_killed_command_leaves_no_uploader(results):
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from rankbench.tracking.mlflow_sink import MlflowSink\n"
        "sink = MlflowSink(sys.argv[1], 'x', Path(sys.argv[2]) / 'mlartifacts')\n"
        "sink.open(); sink.start_sweep('s', {}, {}); print('open', flush=True); time.sleep(60)\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        uri = f"http://127.0.0.1:{listener.getsockname()[1]}"
        driver = subprocess.Popen([sys.executable, "-c", code, uri, results], stdout=subprocess.PIPE, text=True)
        assert driver.stdout.readline() == "open\n"
        (uploader,) = psutil.Process(driver.pid).children()
        listener.accept()  # the uploader hangs in its first call
        driver.kill()
        driver.wait()
        assert psutil.wait_procs([uploader], timeout=60)[1] == []
    assert len(spooled(results)) == 1
