"""Points of a fit that runs: they are in the store before its end, and change nothing in the run that is there after it."""

import dataclasses
import json
import shutil
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta

import pytest
from mlflow.tracking import MlflowClient

from rankbench.core.errors import NumericalError
from rankbench.tracking import live_fits
from rankbench.tracking.mlflow_sink import MlflowSink
from rankbench.tracking.record import DatasetInfo, write_record
from rankbench.tracking.spool import CurveMessage, Spool
from rankbench.tracking.store import make_tables

from ..sweeps.commands import wait_until
from .stores import content, deliver, deliver_here, free_port, sink_on, spooled
from .test_record import RECORD

BEGUN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
CURVE = [{"iteration": n, "seconds": n / 4, "loss": 1 / n, **({"valid": n / 100} if n % 3 == 0 else {})} for n in range(1, 9)]


@pytest.fixture
def root(root, monkeypatch):
    """Messages are written at once, and sent by the test."""
    for name, value in (("BEGIN", 0.0), ("YOUNG", 0.0), ("EVERY", 0.0), ("LOOK", 0.005)):
        monkeypatch.setattr(live_fits, name, value)
    monkeypatch.setattr(MlflowSink, "open", lambda sink: True)
    return root


def attempt(number=0, **changes):
    """What is known of the record of an attempt before its end."""
    started = (BEGUN + timedelta(minutes=number)).isoformat()
    data = DatasetInfo("x", "f00d", "temporal", split_seed=3)
    return dataclasses.replace(RECORD, method="bpr", metrics={}, dataset=data, stage="search", started_at=started, **changes)


def shown(root, record):
    return {"folder": root / "records" / record.id, "name": "bpr lam=3", "params": ["lam"], "tags": {"own": "tag"}}


def arrive(root, sink, begun, rows):
    """Let rows of a fit arrive in the store."""
    take = sink.follow(begun, **shown(root, begun))
    for row in rows:
        take([row])

    def arrived():
        with sink._live._writing:
            written = not sink._live._fits[begun.id].rows
        if spooled(root):
            deliver_here(root)
            return False
        return written

    wait_until(arrived)


def end(root, sink, begun, curve, **changes):
    """Send the whole record."""
    record = dataclasses.replace(begun, curve=curve, metrics=RECORD.metrics, seconds={"fit": 2.0}, **changes)
    write_record(root / "records", record, None, replace=True)
    sink.send(record, **shown(root, record))
    deliver_here(root)


def runs(root):
    client = MlflowClient(f"sqlite:///{root}/mlflow.db")
    return client.search_runs([each.experiment_id for each in client.search_experiments()])


def points(root, key):
    """Steps and values of the only run's metric."""
    (run,) = runs(root)
    history = MlflowClient(f"sqlite:///{root}/mlflow.db").get_metric_history(run.info.run_id, f"curve/{key}")
    return sorted((point.step, point.value) for point in history)


def run_in(root):
    """All that the store knows of its only run, but its id."""
    found = content(root / "mlflow.db")
    (alive,) = [run for run in found["runs"] if run[-1] == "active"]
    own = {name: [row[1:] for row in rows if row[0] == alive[0]] for name, rows in found.items()}
    folder = str(root)
    own["tags"] = [(key, value.replace(folder, "")) for key, value in own["tags"] if key != "mlflow.artifact.uri"]
    (run,) = runs(root)
    files = MlflowClient(f"sqlite:///{root}/mlflow.db").list_artifacts(run.info.run_id)
    inputs = [(each.dataset.name, each.dataset.digest) for each in run.inputs.dataset_inputs]
    return own, [file.path for file in files], inputs


def sent_at_the_end(root, tmp_path_factory, begun, curve, **changes):
    """The run of the same record that was not followed."""
    other = tmp_path_factory.mktemp("at-the-end")
    make_tables(f"sqlite:///{other}/mlflow.db", other / "artifacts")
    end(other, sink_on(other, "live"), begun, curve, **changes)
    return run_in(other)


def test_points_are_there_before_the_end_and_the_run_is_that_of_one_sent_at_its_end(root, tmp_path_factory):
    sink, begun = sink_on(root, "live"), attempt()
    arrive(root, sink, begun, CURVE[:5])
    (run,) = runs(root)
    assert (run.info.status, run.info.run_name, run.data.params["lam"]) == ("RUNNING", "bpr lam=3", "3.0")
    assert run.data.tags["own"] == "tag" and run.data.tags["rankbench.fingerprint"] == "f00d"
    assert points(root, "loss") == [(n, 1 / n) for n in range(1, 6)] and points(root, "valid") == [(3, 0.03)]
    arrive(root, sink, begun, CURVE[5:7])
    assert len(points(root, "loss")) == 7
    # It converged: the last model was measured on valid after its row had been sent.
    curve = [*CURVE[:6], CURVE[6] | {"valid": 0.5}]
    end(root, sink, begun, curve)
    assert sink.close() is None and spooled(root) == []
    assert runs(root)[0].info.run_id == run.info.run_id
    assert run_in(root) == sent_at_the_end(root, tmp_path_factory, begun, curve)


@pytest.mark.parametrize("from_checkpoint", [True, False], ids=["resumed", "restarted from zero"])
def test_an_interrupted_fit_is_killed_and_its_next_attempt_shows_its_own_points_alone(root, tmp_path_factory, from_checkpoint):
    with sink_on(root, "live") as sink:
        arrive(root, sink, attempt(), CURVE[:5])
    deliver_here(root)
    (run,) = runs(root)
    assert run.info.status == "KILLED" and len(points(root, "loss")) == 5
    assert not [*(root / "spool" / "after").iterdir()]
    curve = CURVE[:3] if from_checkpoint else []
    curve += [{"iteration": n, "seconds": n / 3, "loss": 2 / n} for n in range(len(curve) + 1, 9)]
    sink, begun = sink_on(root, "live"), attempt(1)
    arrive(root, sink, begun, curve[:6])
    assert points(root, "loss") == [(row["iteration"], row["loss"]) for row in curve[:6]]
    end(root, sink, begun, curve)
    sink.close()
    assert run_in(root) == sent_at_the_end(root, tmp_path_factory, begun, curve)


def test_a_fit_whose_process_was_killed_is_closed_by_the_next_command(root):
    script = f"""
import sys, time
sys.path.insert(0, {str(__file__.rpartition("/tests/")[0])!r})
from tests.tracking.test_live_fits import *
from pathlib import Path
live_fits.YOUNG = live_fits.BEGIN = 0.0
root = Path({str(root)!r})
sink = sink_on(root, "live")
sink.start_sweep("sweep-1", {{}}, {{}})
sink.follow(attempt(), **shown(root, attempt()))(CURVE[:5])
while not sink._live._fits[RECORD.id].sent or sink._live._fits[RECORD.id].sent[1].exists():
    time.sleep(0.01)
print("sent", flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "sent\n"
        Spool(root / "spool").inherit()
        assert deliver(root) == (0, "")
        assert {run.info.status for run in runs(root)} == {"RUNNING"}  # it is alive
        process.send_signal(signal.SIGKILL)
    Spool(root / "spool").inherit()
    assert deliver(root) == (0, "")
    fit, parent = sorted(runs(root), key=lambda run: "rankbench.sweep" in run.data.tags)
    assert fit.info.status == parent.info.status == "KILLED" and fit.data.metrics["curve/loss"] == 1 / 5
    assert fit.info.end_time >= fit.info.start_time + 1250  # its last point
    assert not [*(root / "spool" / "after").iterdir()]


def test_an_interrupted_sweep_is_killed_until_it_is_resumed(root):
    status = []
    for interrupted in (True, False):
        with sink_on(root, "live") as sink:
            sink.start_sweep("sweep-1", {}, {})
            deliver_here(root)
            status.append(runs(root)[0].info.status)
            if not interrupted:
                sink.finish_sweep([], ok=True)
        deliver_here(root)
        status.append(runs(root)[0].info.status)
    assert status == ["RUNNING", "KILLED", "RUNNING", "FINISHED"]


def test_the_end_of_a_process_says_nothing_of_a_sweep_that_another_one_has_started_again(root):
    first, second = sink_on(root, "live"), sink_on(root, "live")
    status = []
    for act in (
        lambda: first.start_sweep("sweep-1", {}, {}),
        lambda: second.start_sweep("sweep-1", {}, {}),
        lambda: first.__exit__(None, None, None),
        lambda: second.finish_sweep([], ok=True),
    ):
        act()
        deliver_here(root)
        (run,) = runs(root)
        status.append(run.info.status)
        time.sleep(0.002)  # two starts of one process differ by their time
    assert status == ["RUNNING", "RUNNING", "RUNNING", "FINISHED"]


def test_the_last_words_of_a_sweep_have_the_time_of_its_last_record(root):
    sink = sink_on(root, "live")
    sink.start_sweep("sweep-1", {}, {})
    (said,) = (root / "spool" / "after").glob("*/*.json")
    begun = json.loads(said.read_text())["time"]
    time.sleep(0.01)
    end(root, sink, attempt(), CURVE)
    assert json.loads(said.read_text())["time"] > begun
    sink.close()


def test_a_fit_that_an_error_ends_has_failed_with_its_reason(root):
    with pytest.raises(NumericalError), sink_on(root, "live") as sink:
        arrive(root, sink, attempt(), CURVE[:5])
        raise NumericalError("the loss is nan in epoch 6")
    deliver_here(root)
    (run,) = runs(root)
    assert (run.info.status, run.data.tags["rankbench.error"]) == ("FAILED", "the loss is nan in epoch 6")


@pytest.mark.parametrize(("status", "shows"), [("failed", "FAILED"), ("stopped", "KILLED")])
def test_what_arrived_of_a_fit_that_fails_or_is_stopped_stays(root, status, shows):
    sink, begun = sink_on(root, "live"), attempt()
    arrive(root, sink, begun, CURVE[:5])
    record = dataclasses.replace(begun, started_at="2026-01-02T03:05:00+00:00", dataset=DatasetInfo("x"))
    for _ in range(2):
        end(root, sink, record, [CURVE[2]] if status == "stopped" else [], status=status, error="the loss is nan")
        sink = sink_on(root, "live")
    (run,) = runs(root)
    assert (run.info.status, run.data.tags["rankbench.error"]) == (shows, "the loss is nan")
    assert "rankbench.live" not in run.data.tags and run.data.tags["rankbench.fingerprint"] == "f00d"
    assert points(root, "loss") == [(n, 1 / n) for n in range(1, 6)]


def test_messages_that_come_twice_or_late_change_nothing(root):
    sink, begun = sink_on(root, "live"), attempt()
    take = sink.follow(begun, **shown(root, begun))
    for row in CURVE:
        take([row])
        wait_until(lambda: spooled(root))
        shutil.copytree(root / "spool", root / "kept", dirs_exist_ok=True)
        for path in (root / "kept").glob("[!.]*.json"):
            shutil.copy(path, root / "spool")
        deliver_here(root)
        wait_until(lambda: not sink._live._fits[begun.id].rows)
    while spooled(root):
        deliver_here(root)
    assert points(root, "loss") == [(n, 1 / n) for n in range(1, 9)]
    end(root, sink, begun, CURVE)
    whole = content(root / "mlflow.db")
    for path in (root / "kept").glob("[!.]*.json"):
        shutil.copy(path, root / "spool")
    deliver_here(root)
    assert spooled(root) == [] and content(root / "mlflow.db") == whole


def test_a_fit_whose_earlier_record_is_kept_leaves_no_second_run(root):
    begun = attempt()
    end(root, sink_on(root, "live"), begun, CURVE)
    before, sink, again = run_in(root), sink_on(root, "live"), attempt(1)
    arrive(root, sink, again, CURVE[:5])
    assert len(runs(root)) == 2
    sink.send(again, **shown(root, again))  # the message names the folder, which has the earlier record
    deliver_here(root)
    sink.close()
    assert run_in(root) == before


def test_while_the_store_is_down_a_fit_has_one_message_and_then_its_record_alone(root, tmp_path_factory):
    sink, begun = sink_on(root, "live", uri=f"http://127.0.0.1:{free_port()}"), attempt()
    take = sink.follow(begun, **shown(root, begun))
    for row in CURVE:
        take([row])
        wait_until(lambda: spooled(root))
        time.sleep(0.02)  # several looks
        assert len(spooled(root)) == 1
    end_curve = [*CURVE]
    record = dataclasses.replace(begun, curve=end_curve, metrics=RECORD.metrics, seconds={"fit": 2.0})
    write_record(root / "records", record, None)
    sink.send(record, **shown(root, record))
    assert len(spooled(root)) == 1
    deliver_here(root)
    assert run_in(root) == sent_at_the_end(root, tmp_path_factory, begun, end_curve)


def test_a_full_disk_delays_points_and_loses_none(root, monkeypatch):
    sink, begun, full = sink_on(root, "live"), attempt(), [True]
    put = Spool.put

    def put_if_there_is_room(spool, message):
        if full[0]:
            raise OSError(28, "No space left on device")
        return put(spool, message)

    monkeypatch.setattr(Spool, "put", put_if_there_is_room)
    take = sink.follow(begun, **shown(root, begun))
    take(CURVE[:4])
    time.sleep(0.05)
    assert spooled(root) == []
    full[0] = False
    arrive(root, sink, begun, CURVE[4:6])
    assert [step for step, _ in points(root, "loss")] == [1, 2, 3, 4, 5, 6]


def test_a_fit_of_a_few_seconds_has_no_message_and_nan_is_no_point(root, monkeypatch):
    monkeypatch.setattr(live_fits, "YOUNG", 1e9)
    sink, begun = sink_on(root, "live"), attempt()
    sink.follow(begun, **shown(root, begun))(CURVE)
    time.sleep(0.05)
    assert spooled(root) == []
    sink.follow(begun, **shown(root, begun))([{"iteration": 9, "seconds": 3.0, "loss": float("nan")}])
    monkeypatch.setattr(live_fits, "YOUNG", 0.0)
    wait_until(lambda: spooled(root))
    (path,) = Spool(root / "spool").waiting()
    message = Spool(root / "spool").read(path)
    assert isinstance(message, CurveMessage) and message.rows == [*CURVE, {"iteration": 9, "seconds": 3.0}]
