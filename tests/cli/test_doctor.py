"""rankbench doctor: what is wrong is found, named, and decides the exit code."""

import json
import os
import socket
import subprocess
import sys
from importlib.metadata import version

import pytest

from rankbench.cli import _main
from rankbench.cli import checks as doctor
from rankbench.core.environment import Environment
from rankbench.data.prepare import load
from rankbench.tracking.store import make_tables


@pytest.fixture
def results(tmp_path):
    return tmp_path / "results"


@pytest.fixture(autouse=True)
def home(home, monkeypatch):
    monkeypatch.delenv("RANKBENCH_OFFLINE")
    return home


def checks(capsys, *words, code=0):
    """name → [status, detail, advice] of the checks."""
    assert _main(["doctor", "--json", *words]) == code
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] == (code == 0)
    return {check["what"]: (check["status"], check["detail"], check["advice"]) for check in found["checks"]}


def test_a_good_machine_is_ready_and_nothing_is_left_behind(home, capsys):
    found = checks(capsys)
    assert {"packages", "machine", "BLAS", "RANKBENCH_DATA", "RANKBENCH_RESULTS", "cache", "mirror", "tracking"} <= set(found)
    assert not [status for status, *_ in found.values() if status == "fail"]
    assert found["packages"][0] == "ok" and found["tracking"][0] == "ok" and "GFLOP/s" in found["BLAS"][1]
    assert "openblas" in found["BLAS"][1]  # as in every wheel of NumPy for Linux
    assert not list(home.iterdir())


def test_a_folder_that_cannot_be_written_fails_and_is_named(home, capsys, monkeypatch):
    (home / "file").write_text("")
    monkeypatch.setenv("RANKBENCH_DATA", str(home / "file" / "below"))
    status, detail, advice = checks(capsys, code=2)["RANKBENCH_DATA"]
    assert status == "fail" and "file/below: not writable" in detail and "RANKBENCH_DATA" in advice
    assert _main(["doctor"]) == 2
    printed = capsys.readouterr()
    assert "fail" in printed.out and printed.err.startswith("error: 1 of ") and printed.err.count("\n") == 1


def test_results_that_cannot_be_written_do_not_end_the_checks(home, capsys, monkeypatch):
    (home / "file").write_text("")
    monkeypatch.setenv("RANKBENCH_RESULTS", str(home / "file" / "below"))
    found = checks(capsys, code=2)
    assert found["RANKBENCH_RESULTS"][0] == "fail" and found["tracking"][0] == "warn"


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can become somebody else")
def test_folders_that_may_not_be_entered_do_not_end_the_checks(tmp_path):
    tmp_path.chmod(0o700)
    environment = Environment.from_env()
    list(doctor.checks(environment))  # imports what it needs while it may
    os.seteuid(65534)
    try:
        found = {check.what: check for check in doctor.checks(environment)}
    finally:
        os.seteuid(0)
    assert found["RANKBENCH_DATA"].status == found["RANKBENCH_RESULTS"].status == "fail"
    assert "Permission denied" in found["RANKBENCH_DATA"].detail and "mirror" in found
    assert found["tracking"].status != "ok"


def test_a_mirror_that_is_not_there_is_one_line(home, capsys, monkeypatch):
    monkeypatch.setenv("RANKBENCH_MIRROR", str(home / "nowhere"))
    assert _main(["doctor", "--json"]) == 2
    printed = capsys.readouterr()
    assert json.loads(printed.out)["exit_code"] == 2 and "nowhere: no such folder" in printed.err


@pytest.mark.parametrize("uri", ["file:///runs", "postgres://user@host/runs", "sqlite:///"])
def test_an_address_that_is_no_store_fails_beside_the_other_checks(uri, capsys, monkeypatch):
    monkeypatch.setenv("RANKBENCH_TRACKING_URI", uri)
    found = checks(capsys, code=2)
    assert found["tracking"][0] == "fail" and found["tracking"][1].startswith("RANKBENCH_TRACKING_URI=")
    assert found["RANKBENCH_DATA"][0] == "ok"


def test_a_server_that_hangs_is_not_waited_for(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "SERVER_TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("RANKBENCH_TRACKING_URI", f"http://127.0.0.1:{silent.getsockname()[1]}")
        status, detail, _ = checks(capsys)["tracking"]
    assert status == "warn" and detail.endswith("no answer in time")


def test_a_store_that_is_there_answers(results, capsys, monkeypatch):
    # The wait of a store that never answers is no test of one that does.
    problem = doctor.tracking_problem
    monkeypatch.setattr(doctor, "tracking_problem", lambda uri, artifacts, seconds: problem(uri, artifacts, seconds=200.0))
    make_tables(f"sqlite:///{results / 'mlflow.db'}", results / "mlartifacts")
    assert checks(capsys)["tracking"][:2] == ("ok", f"sqlite:///{results / 'mlflow.db'} answers")


def test_a_store_that_cannot_be_made_is_a_warning(home, capsys, monkeypatch):
    (home / "file").write_text("")
    monkeypatch.setenv("RANKBENCH_TRACKING_URI", f"sqlite:///{home / 'file' / 'runs.db'}")
    status, detail, _ = checks(capsys)["tracking"]
    assert status == "warn" and "cannot be created (Not a directory)" in detail


def test_sqlite_on_a_network_file_system_is_a_warning(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "_file_system", lambda path: "nfs4")
    assert checks(capsys)["tracking file"][0] == "warn"


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        ("numpy>=99", f"numpy {version('numpy')}"),
        ("no-such-package>=1", "no-such-package is missing"),
        ('x>=1; extra == "test"', ""),
    ],
)
def test_packages_are_held_against_what_is_required(asked, word, monkeypatch):
    monkeypatch.setattr(doctor, "requires", lambda name: [asked])
    (found,) = doctor.versions()
    assert found.status == ("fail" if word else "ok") and word in found.detail


def test_missing_extras_are_a_warning_that_names_them(monkeypatch):
    monkeypatch.setattr(doctor, "installed", lambda extra: extra == "train")
    checks = {check.what: check for check in doctor.versions()}
    assert set(checks) == {"packages", "extra sweep", "extra tracking"} and checks["packages"].status == "ok"
    assert checks["extra sweep"].status == "warn" and checks["extra sweep"].advice == "pip install 'rankbench[sweep]'"


def test_a_python_that_is_too_old_fails(monkeypatch):
    monkeypatch.setattr(doctor.sys, "version_info", (3, 10, 9))
    (found,) = doctor.versions()
    assert found.status == "fail" and "Python 3.10.9, but >=3.11 is required" in found.detail


def test_what_killed_runs_left_is_named_what_is_being_made_is_not(results, capsys):
    for name in (".tmp-old-1", ".tmp-young-2"):
        (results / "runs" / name).mkdir(parents=True)
    os.utime(results / "runs" / ".tmp-old-1", (0, 0))
    status, detail, _ = checks(capsys)["leftovers"]
    assert status == "warn" and detail.startswith("1 unfinished") and detail.endswith(".tmp-old-1")


def test_a_server_that_does_not_answer_is_a_warning_without_its_password(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "_file_system", lambda path: "nfs4")
    monkeypatch.setenv("RANKBENCH_TRACKING_URI", "http://user:hunter2@127.0.0.1:9")
    found = checks(capsys)
    status, detail, advice = found["tracking"]
    assert status == "warn" and "@127.0.0.1:9" in detail and "tracking sync" in advice
    assert "hunter2" not in str(found) and "tracking file" not in found


def test_an_empty_mirror_is_a_warning_and_a_full_one_is_counted(home, capsys, monkeypatch):
    (home / "mirror").mkdir()
    monkeypatch.setenv("RANKBENCH_MIRROR", str(home / "mirror"))
    assert checks(capsys)["mirror"][0] == "warn"
    (home / "mirror" / "movielens-1m-ratings").mkdir()
    (home / "mirror" / "movielens-1m-ratings" / "all.parquet").write_bytes(b"x")
    status, detail, _ = checks(capsys)["mirror"]
    assert status == "ok" and " 0 of" not in detail


def test_a_broken_card_of_the_user_fails(home, capsys, monkeypatch):
    (home / "datasets").mkdir()
    (home / "datasets" / "mine.yaml").write_text("name: mine\nsorce: {}\n", encoding="utf-8")
    monkeypatch.setenv("RANKBENCH_HOME", str(home))
    status, detail, _ = checks(capsys, code=2)["cards"]
    assert status == "fail" and "mine.yaml" in detail and "sorce" in detail


def test_a_store_is_written_to(s3, home, capsys, monkeypatch):
    monkeypatch.setenv("RANKBENCH_CACHE", str(home / "copies"))
    monkeypatch.setenv("RANKBENCH_DATA", f"{s3}/data")
    monkeypatch.setenv("RANKBENCH_RESULTS", "s3://no-such-bucket/results")
    found = checks(capsys, code=2)
    assert found["data store"][0] == "ok" and f"{s3}/data" in found["data store"][1]
    assert found["results store"][0] == "fail" and "there is no such bucket" in found["results store"][1]


def test_what_waits_for_tracking_is_counted(results, capsys):
    from rankbench.tracking.spool import RunMessage, Spool

    message = Spool(results / "spool").put(RunMessage(experiment="runs", time=0, record="runs/x"))
    assert checks(capsys)["tracking spool"][:2] == ("warn", "1 messages wait for MLflow")
    message.unlink()


def test_the_cache_is_weighed(home, capsys):
    load("synthetic", Environment.from_env(), {"source.generator.users": 50, "source.generator.items": 30})
    assert checks(capsys)["cache"][0] == "ok"


def test_a_local_cluster_runs_a_task_on_every_node():
    # In a process of its own, as a user starts it: Ray reads its settings when it is imported, and other tests import it.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    words = [sys.executable, "-m", "rankbench", "doctor", "--json", "--cluster"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=200, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {check["what"]: check["status"] for check in json.loads(done.stdout)["checks"]}
    assert found["cluster"] == "ok"
    assert [status for name, status in found.items() if name.startswith("node ")] == ["ok"]


@pytest.mark.parametrize(("address", "code", "word"), [("nowhere", 2, "HOST:PORT"), ("127.0.0.1:9", 2, "is it up?")])
def test_a_cluster_that_is_not_there(address, code, word, capsys):
    assert _main(["doctor", "--address", address]) == code
    printed = capsys.readouterr()
    assert word in printed.err
