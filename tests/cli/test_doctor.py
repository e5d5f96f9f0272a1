"""rankbench doctor: what is wrong is found, named, and decides the exit code."""

import json

import pytest

from rankbench.cli import _main
from rankbench.data.prepare import load
from rankbench.settings import Settings


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """One for all tests: to make a tracking store takes seconds."""
    return tmp_path_factory.mktemp("results")


@pytest.fixture(autouse=True)
def home(tmp_path, results, monkeypatch):
    for name in ("RANKBENCH_MIRROR", "RANKBENCH_TRACKING_URI", "RANKBENCH_HOME", "RANKBENCH_OFFLINE", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RANKBENCH_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("RANKBENCH_RESULTS", str(results))
    return tmp_path


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
    assert found["packages"][0] == "ok" and found["tracking"][0] == "ok"
    assert not [path for path in home.rglob("*probe*")]


def test_a_folder_that_cannot_be_written_fails_and_is_named(home, capsys, monkeypatch):
    (home / "file").write_text("")
    monkeypatch.setenv("RANKBENCH_DATA", str(home / "file" / "below"))
    status, detail, advice = checks(capsys, code=2)["RANKBENCH_DATA"]
    assert status == "fail" and "file/below: cannot be written" in detail and "RANKBENCH_DATA" in advice
    assert _main(["doctor"]) == 2
    printed = capsys.readouterr()
    assert "fail" in printed.out and printed.err.startswith("error: 1 of ") and printed.err.count("\n") == 1


def test_a_store_that_does_not_answer_is_a_warning(home, capsys, monkeypatch):
    monkeypatch.setenv("RANKBENCH_TRACKING_URI", "http://127.0.0.1:9")
    status, detail, advice = checks(capsys)["tracking"]
    assert status == "warn" and "http://127.0.0.1:9" in detail and "tracking sync" in advice


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


def test_what_waits_for_tracking_is_counted(results, capsys):
    from rankbench.tracking.spool import RunMessage, Spool

    message = Spool(results / "spool").put(RunMessage(experiment="runs", time=0, record="runs/x"))
    assert checks(capsys)["tracking spool"][:2] == ("warn", "1 messages wait")
    message.unlink()


def test_the_cache_is_weighed(home, capsys):
    load("synthetic", Settings.from_env(), {"source.generator.users": 50, "source.generator.items": 30})
    assert checks(capsys)["cache"][0] == "ok"


def test_a_local_cluster_runs_a_task_on_every_node(capsys):
    found = checks(capsys, "--cluster")
    (node,) = [value for name, value in found.items() if name.startswith("node ")]
    assert found["cluster"][0] == "ok" and node[0] == "ok"


@pytest.mark.parametrize(("address", "code", "word"), [("nowhere", 2, "HOST:PORT"), ("127.0.0.1:9", 2, "is it up?")])
def test_a_cluster_that_is_not_there(address, code, word, capsys):
    assert _main(["doctor", "--address", address]) == code
    printed = capsys.readouterr()
    assert word in printed.err
