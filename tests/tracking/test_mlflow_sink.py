"""The MLflow view: parents and children in a real store, sent once whatever breaks, and no reason to wait or fail."""

import dataclasses
import errno
import http.server
import os
import shutil
import signal
import socket
import sqlite3
import threading
import time
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import requests
from mlflow.tracking import MlflowClient

from rankbench.core.environment import Environment
from rankbench.tracking import mlflow_sink
from rankbench.tracking.address import origin
from rankbench.tracking.delivery import Delivery, check
from rankbench.tracking.mlflow_runs import _fitting
from rankbench.tracking.record import DatasetInfo, Measured, write_record
from rankbench.tracking.run_fields import metric_key, run_name
from rankbench.tracking.spool import RunMessage, Spool, SweepEnd, milliseconds

from .stores import content, deliver, deliver_here, free_port, run_tags, sink_on, spooled, sweep
from .test_record import RECORD


def runs_of(root, experiment):
    client = MlflowClient(f"sqlite:///{root}/mlflow.db")
    return client, client.search_runs([client.get_experiment_by_name(experiment).experiment_id])


def test_a_curve_is_a_point_an_iteration_dated_by_training_seconds(root):
    curve = [{"iteration": n, "seconds": 0.25 * n, "loss": 1 / n, "ndcg@20": 0.1 * n} for n in range(1, 400)]
    record = dataclasses.replace(RECORD, curve=curve, started_at="2026-01-02T03:04:05+00:00")
    for _ in range(2):
        sink_on(root, "curves").send(record, write_record(root, record, None))
        deliver_here(root)
    client, (run,) = runs_of(root, "curves")
    begun = run.info.start_time
    for name in ("loss", "seconds", "ndcg@20"):
        points = client.get_metric_history(run.info.run_id, metric_key("curve", name))
        found = sorted((point.step, point.timestamp - begun, point.value) for point in points)
        assert found == [(row["iteration"], 1000 * row["seconds"], row[name]) for row in curve]


def test_a_sweep_that_failed_is_shown_with_its_note_and_its_report(root):
    sink = sink_on(root, "failed")
    sink.start_sweep("sweep-1", {"fits": 2}, {})
    (root / "report.md").write_text("a report")
    sink.finish_sweep([root / "report.md"], ok=False, note="**a note**")
    deliver_here(root)
    client, (parent,) = runs_of(root, "failed")
    assert (parent.info.status, parent.data.tags["mlflow.note.content"]) == ("FAILED", "**a note**")
    assert [file.path for file in client.list_artifacts(parent.info.run_id, "report")] == ["report/report.md"]


def test_a_child_says_what_it_is_of(root):
    data = DatasetInfo("x", "f00d", "temporal", split_seed=0)
    trained = dataclasses.replace(RECORD, id="a", method="psl", params={"tau": 0.1, "model": "lightgcn"}, dataset=data, seed=3)
    again = dataclasses.replace(trained, id="b", seed=4, stage="final")
    other = dataclasses.replace(trained, id="c", params={"tau": 0.2, "model": "lightgcn"})
    # Of a failed one less is known, until it is run again.
    failed = dataclasses.replace(RECORD, id="d", dataset=DatasetInfo("x"), status="failed", error="no memory", metrics={})
    later = dataclasses.replace(RECORD, id="d", dataset=data)
    stopped = dataclasses.replace(failed, id="e", status="stopped", error="others of its arm did better")
    published = {"paper": "PSL", "table": 1, "figure": None}
    for batch in ([trained, again, other, failed, stopped], [later]):
        sink = sink_on(root, "tags")
        sink.start_sweep("sweep-1", {}, {"rankbench.question": "which?"}, published)
        for record in batch:
            sink.send(record, write_record(root / "records", record, None), run_name(record, ["tau", "absent"]))
        deliver_here(root)
    client, runs = runs_of(root, "tags")
    assert client.get_experiment_by_name("tags").tags["mlflow.note.content"] == "which?"
    (parent,) = [run.data.tags for run in runs if "rankbench.sweep" in run.data.tags]
    status = {run.data.tags.get("rankbench.run"): run.info.status for run in runs}
    assert (status["d"], status["e"]) == ("FINISHED", "KILLED")
    a, b, c, d = (next(run.data.tags for run in runs if run.data.tags.get("rankbench.run") == name) for name in "abcd")
    own = {"dataset": "x", "method": "psl", "model": "lightgcn", "protocol": "temporal", "fingerprint": "f00d", "seed": "3",
           "split_seed": "0", "paper": "PSL", "table": "1"}  # fmt: skip
    assert {f"rankbench.{name}": value for name, value in own.items()}.items() <= a.items()
    assert "rankbench.figure" not in a and "rankbench.question" not in a
    assert (parent["rankbench.paper"], parent["rankbench.table"], parent["rankbench.question"]) == ("PSL", "1", "which?")
    assert [tags["mlflow.runName"] for tags in (a, b, c, d)] == [
        "psl tau=0.1 seed 3", "psl seed 4", "psl tau=0.2 seed 3", "ease seed 0"
    ]  # fmt: skip
    hashes = [tags["rankbench.config_hash"] for tags in (a, b, c, d)]
    assert hashes[0] == hashes[1] and len(set(hashes)) == 3  # other seeds are the same setting, another tau is not
    assert d["rankbench.protocol"] == "temporal" and "rankbench.error" not in d and "rankbench.experiment.fitted_model" not in d


def test_replaying_every_message_changes_nothing(root):
    sweep(sink_on(root, "replay"), "sweep-1", 3)
    shutil.copytree(root / "spool", root / "kept")
    deliver_here(root)
    first = content(root / "mlflow.db")
    assert len(first["runs"]) == 4 and len(first["metrics"]) == 3 * 3
    shutil.copytree(root / "kept", root / "spool", dirs_exist_ok=True)
    assert len(spooled(root)) == 5
    deliver_here(root)
    assert spooled(root) == []
    assert content(root / "mlflow.db") == first


def test_a_failed_record_that_succeeds_later_is_shown_as_finished(root):
    measured = dataclasses.replace(RECORD, started_at="2026-11-22T00:00:00+00:00")
    earlier = "2026-11-21T00:00:00+00:00"
    failed = dataclasses.replace(RECORD, status="failed", error="no memory", metrics={}, started_at=earlier)

    def send(record):
        sink_on(root, "later").send(record, write_record(root / "runs", record, None, replace=True))
        deliver_here(root)
        return runs_of(root, "later")

    send(failed)
    client, (run,) = send(measured)
    assert run.info.status == "FINISHED" and run.data.metrics["test/ndcg_at_20"] == 0.25
    assert "rankbench.error" not in run.data.tags and run.info.end_time - run.info.start_time < 24 * 3600 * 1000
    # Sent again, as by --resume, it is the run that the user may have written notes on.
    client.set_tag(run.info.run_id, "mine", "yes")
    _, (again,) = send(measured)
    assert again.info.run_id == run.info.run_id and again.data.tags["mine"] == "yes"
    _, (other,) = send(dataclasses.replace(measured, started_at="2026-11-23T00:00:00+00:00"))
    assert other.info.run_id != run.info.run_id


def test_a_failed_record_that_fails_again_has_the_error_and_the_time_of_now(root):
    for started_at, error in (("2026-11-21T00:00:00+00:00", "no memory"), ("2026-11-21T01:00:00+00:00", "it diverged")):
        failed = dataclasses.replace(
            RECORD, status="failed", error=error, metrics={}, started_at=started_at, seconds={"fit": 60}
        )
        for _ in range(2):  # the second time is of --resume
            sink_on(root, "twice").send(failed, write_record(root / "runs", failed, None, replace=True))
            deliver_here(root)
            _, (run,) = runs_of(root, "twice")
            assert run.data.tags["rankbench.error"] == error
            # Such a record is made when the fit has failed.
            assert run.info.end_time == milliseconds(started_at) == run.info.start_time + 60_000


def test_equal_runs_of_two_results_folders_on_one_server_leave_each_other_alone(root):
    for whose, value in (("", 0.1), ("alice", 0.2), ("bob", 0.3), ("alice", 0.4)):
        metrics = {"ndcg@20": Measured(value)}
        record = dataclasses.replace(RECORD, metrics=metrics, started_at=f"2026-11-21T0{10 * value:.0f}:00:00+00:00")
        sink = dataclasses.replace(sink_on(root, "shared"), origin=lambda whose=whose: whose)
        sink.send(record, write_record(root / "runs", record, None, replace=True))
        deliver_here(root)
    _, runs = runs_of(root, "shared")
    found = {run.data.tags.get("rankbench.origin"): run.data.metrics["test/ndcg_at_20"] for run in runs}
    # The newer record of Alice has replaced hers, and her first one that of an earlier version, which does not say whose it is.
    assert found == {"alice": 0.4, "bob": 0.3} and len(runs) == 2


def test_results_are_known_by_one_word(tmp_path, monkeypatch):
    monkeypatch.setenv("RANKBENCH_RESULTS", str(tmp_path / "results"))
    first, second = (origin(Environment.from_env()) for _ in range(2))
    assert first == second and len(first) == 16 and [*(tmp_path / "results").iterdir()] == [tmp_path / "results" / ".origin"]
    (tmp_path / "results" / ".origin").write_bytes(b"\xff")
    assert origin(Environment.from_env()) == ""
    monkeypatch.setenv("RANKBENCH_RESULTS", str(tmp_path / "others"))
    assert origin(Environment.from_env()) not in ("", first)


def test_an_uploader_that_died_is_started_again_but_not_at_once(root, monkeypatch):
    sink = sink_on(root, "died")
    assert sink.open()
    killed = sink._delivery._process
    killed.kill()
    killed.wait()
    assert sink.open() and sink._delivery._process is killed
    monkeypatch.setattr("rankbench.tracking.delivery.REVIVE", 0.0)
    sweep(sink, "sweep-1", 2)
    assert spooled(root) == [] and len(run_tags(root / "mlflow.db", "rankbench.run")) == 2


def test_a_sweep_that_starts_again_has_the_tags_of_now(root):
    for tags in ({"who": "me", "hours": "1"}, {"hours": "2"}):
        sink_on(root, "again").start_sweep("sweep-1", {}, tags)
        deliver_here(root)
    _, (run,) = runs_of(root, "again")
    assert (run.data.tags["hours"], run.data.tags["who"]) == ("2", "me")


def test_a_note_that_is_too_long_ends_with_a_whole_line_and_says_so():
    rows = "\n".join(f"| {n:4} | 0.15{n:04} |" for n in range(1000))
    cut = _fitting(rows)
    *kept, empty, said = cut.split("\n")
    assert len(cut) <= 8000 and rows.startswith("\n".join(kept)) and kept[-1].endswith(" |") and not empty
    assert said == "**Cut here: the rest of the table and its notes are in report/report.md of the sweep.**"
    assert _fitting(rows[:8000]) == rows[:8000]


def by_record(folder):
    """Status, metrics, params a record: comparable between stores, whose run ids differ."""
    found = content(folder / "mlflow.db")
    names = {run: value for run, key, value in found["tags"] if key in ("rankbench.run", "rankbench.sweep")}
    status = sorted((names[run], *rest) for run, _, *rest in found["runs"])
    return status, *(sorted((names[run], *rest) for run, *rest in found[name]) for name in ("metrics", "params"))


@pytest.mark.parametrize(("n", "step"), [(9, 4), pytest.param(30, 3, marks=pytest.mark.slow)])
@pytest.mark.fault("F9")
def test_a_delivery_killed_again_and_again_ends_with_one_whole_run_a_record(root, tmp_path_factory, n, step, figure):
    sweep(sink_on(root, "killed"), "sweep-1", n)
    apart = tmp_path_factory.mktemp("undisturbed")
    shutil.copytree(root, apart, dirs_exist_ok=True)
    assert deliver(apart) == (0, "")
    kills = 0
    while before := len(spooled(root)):
        delivery = Delivery(f"sqlite:///{root}/mlflow.db", root / "artifacts")
        delivery.start()
        while before - step < len(spooled(root)) > 0:  # let it take some, then kill it at another place every time
            time.sleep(0.001)
        time.sleep(0.006 + 0.003 * (kills % 6))
        os.kill(delivery._process.pid, signal.SIGKILL)
        delivery.stop()
        kills += 1
    assert kills >= 2
    assert by_record(root) == by_record(apart)
    assert [file.name for file in (root / "artifacts").rglob("*") if file.is_file()] == ["record.json"] * n
    figure(f"the uploader killed {kills} times: {n} of {n} runs whole and once")


def test_of_runs_made_twice_by_a_server_that_woke_up_late_the_whole_one_stays(root):
    sweep(sink_on(root, "twice"), "sweep-1", 1)
    shutil.copytree(root / "spool", root / "kept")
    client = MlflowClient(f"sqlite:///{root}/mlflow.db")
    experiment = client.create_experiment("twice", artifact_location=(root / "artifacts").as_uri())
    parents = [client.create_run(experiment, tags={"rankbench.sweep": "sweep-1"}) for _ in range(2)]
    for parent in parents:
        tags = {"rankbench.run": "run-x-ease-0", "mlflow.parentRunId": parent.info.run_id}
        client.create_run(experiment, tags=tags)
        client.create_run(experiment, tags=tags)
    deliver_here(root)
    alive = {run.info.run_id: run for run in client.search_runs([experiment])}
    (parent,) = [run for run in alive.values() if "rankbench.sweep" in run.data.tags]
    children = [run for run in alive.values() if run.data.tags.get("mlflow.parentRunId") == parent.info.run_id]
    assert parent.data.params == {"fits": "1"} and len(children) == 1
    assert children[0].info.status == "FINISHED" and children[0].data.metrics["test/ndcg_at_20"] == 0.25


def test_a_damaged_message_and_a_lost_record_are_set_aside_and_block_nothing(root):
    sink = sink_on(root, "damaged")
    sweep(sink, "sweep-1", 3)
    first, second, *_ = spooled(root)
    (root / "spool" / first).write_text('{"kind": "sweep-start"')  # the start of the sweep
    shutil.rmtree(root / "sweeps" / "sweep-1" / "records" / "run-x-ease-0")
    lines = []
    sink = sink_on(root, "damaged", lines)
    sink.open()
    sink.send(RECORD, write_record(root / "runs", RECORD, None))
    sink.close()
    assert spooled(root) == []
    assert {path.stem + ".json" for path in (root / "spool").glob("*.bad")} == {first, second}
    assert len(lines) == 1 and "2 messages set aside" in lines[0] and first in lines[0]
    # The sweep's own message was lost; its runs still find themselves under one parent.
    assert run_tags(root / "mlflow.db", "rankbench.sweep") == ["sweep-1"]
    assert len(set(run_tags(root / "mlflow.db", "mlflow.parentRunId"))) == 1


def test_messages_of_a_results_folder_send_no_files_from_elsewhere(root, tmp_path_factory):
    """The folder may be another person's."""
    secret = tmp_path_factory.mktemp("elsewhere") / "secret.txt"
    secret.write_text("secret")
    (root / "link.txt").symlink_to(secret)
    spool = Spool(root / "spool")
    for names in ([str(secret)], [os.path.relpath(secret, root)], ["link.txt"]):
        spool.put(SweepEnd(experiment="foreign", time=1, sweep="s", files=names, note="", ok=True))
    spool.put(RunMessage(experiment="foreign", time=1, record=str(secret.parent)))
    deliver_here(root)
    assert spooled(root) == [] and len(spool.aside()) == 3
    assert not [*(root / "artifacts").rglob("*.txt")]


def refuse_name(root, monkeypatch):
    return {"params": {"a?b": 1.0}}, "a?b"  # no name for MLflow


def refuse_folder(root, monkeypatch):
    """As after the folder of an experiment was moved, or in a database that several machines share."""
    (root / "file").write_text("in the way")
    MlflowClient(f"sqlite:///{root}/mlflow.db").create_experiment("first", artifact_location=str(root / "file" / "artifacts"))
    return {}, str(root / "file")


def refuse_size(root, monkeypatch):
    """As behind a proxy that takes bodies of at most a megabyte."""
    answer = requests.Response()
    answer.status_code = 413
    log_artifact = MlflowClient.log_artifact

    def refuse(self, run_id, path, *more):
        if self.get_run(run_id).data.tags["rankbench.run"] == "run-x-ease-9":
            raise requests.HTTPError("413 Request Entity Too Large", response=answer)
        return log_artifact(self, run_id, path, *more)

    monkeypatch.setattr(MlflowClient, "log_artifact", refuse)
    return {}, "413"


def refuse_reading(root, monkeypatch):
    """As of a network file system that fails for a moment."""
    read_bytes = Path.read_bytes

    def fail(path):
        if path.parent.name == "run-x-ease-9":
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", fail)
    return {}, "Input/output error"


@pytest.mark.parametrize("refuse", [refuse_name, refuse_folder, refuse_size, refuse_reading])
def test_what_is_refused_stays_and_blocks_nothing(root, monkeypatch, refuse):
    changes, why = refuse(root, monkeypatch)
    for name, record in (("first", dataclasses.replace(RECORD, id="run-x-ease-9", **changes)), ("second", RECORD)):
        sink_on(root, name, []).send(record, write_record(root / "runs", record, None))
    events = deliver_here(root)
    assert len(spooled(root)) == 1 and sum("sent" in event for event in events) == 1
    (refusal,) = (event for event in events if "refused" in event)
    assert why in refusal["reason"]
    _, (run,) = runs_of(root, "second")
    assert run.info.status == "FINISHED"


def test_a_spool_that_cannot_be_written_costs_one_warning(tmp_path):
    (tmp_path / "spool").write_text("in the way")
    lines = []
    sink = sink_on(tmp_path, "x", lines)
    sink.open()
    sweep(sink, "sweep-1", 2)
    assert len(lines) == 1 and "4 messages could not be written" in lines[0] and "results are complete on disk" in lines[0]


class Failing(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_error(500)

    do_POST = do_GET

    def log_message(self, *_):
        pass


@contextmanager
def store_that(fails, root):
    """Yield the address of a store that takes nothing."""
    if fails == "cannot be made":
        (root / "file").write_text("")
        yield f"sqlite:///{root}/file/mlflow.db"
    elif fails == "has errors":
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Failing) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            yield f"http://127.0.0.1:{server.server_port}"
            server.shutdown()
    elif fails == "is silent":
        with socket.create_server(("127.0.0.1", 0)) as listener:  # it takes connections, and nobody answers
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    elif fails == "is locked by another process":
        with closing(sqlite3.connect(root / "mlflow.db", isolation_level=None)) as holder:
            holder.execute("BEGIN EXCLUSIVE")
            yield None
    else:
        yield f"http://127.0.0.1:{free_port()}"


@pytest.mark.parametrize(
    ("fails", "says"),
    [
        ("is silent", "no answer in 3 s"),
        ("has errors", "500"),
        ("is locked by another process", ""),
        pytest.param("is down", "Connection refused", marks=pytest.mark.slow),
        pytest.param("cannot be made", "File exists", marks=pytest.mark.slow),
    ],
)
@pytest.mark.fault("F9")
def test_a_store_that_takes_nothing_costs_one_warning(root, fails, says, monkeypatch, figure):
    # The other uploaders end by themselves, but on a busy machine only after seconds of imports.
    if fails in ("is silent", "is locked by another process"):
        monkeypatch.setattr(mlflow_sink, "PATIENCE", 3.0)
    lines, begun = [], time.monotonic()
    with store_that(fails, root) as uri:
        sink = sink_on(root, "x", lines, uri=uri)
        sink.open()
        sweep(sink, "sweep-1", 2)
        assert time.monotonic() - begun < 50  # the wait, not the 60 s of two HTTP attempts
        (line,) = lines
        assert "4 of 4 messages wait" in line and "results are complete on disk" in line and says in line
        assert "`rankbench tracking sync`" in line and "\n" not in line
        if fails == "is silent":
            assert check(uri, root / "artifacts", seconds=2.0) == "no answer in 2 s"
    deliver_here(root)  # to another store, after the address was put right
    assert spooled(root) == [] and len(run_tags(root / "mlflow.db", "rankbench.run")) == 2
    figure(f"a store that {fails}: one warning, 4 of 4 messages kept")


def test_metric_names_are_ones_that_mlflow_takes():
    assert metric_key("test", "recall_capped@20") == "test/recall_capped_at_20"
    assert metric_key("final/x/DEQL(L2), a+b", "ndcg@5") == "final/x/DEQL_L2__ a_b/ndcg_at_5"
