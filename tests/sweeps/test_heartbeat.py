"""Heartbeats of a sweep: progress and remaining time, the end, silence, and a request to stop."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from rankbench.core.attempts import Superseded
from rankbench.core.errors import ConfigError
from rankbench.sweeps import heartbeat
from rankbench.sweeps.heartbeat import SILENT, Heartbeat, Progress, last_heartbeat, request_stop, require_vacant
from rankbench.sweeps.store import SweepStore
from rankbench.sweeps.views.sweep_view import summary
from rankbench.tracking.record import DatasetInfo, Measured, RunRecord

from .commands import wait_until

RECORD = RunRecord("run", "ease", {}, DatasetInfo("data"), "train", "valid", 0, "float32", metrics={"ndcg@20": Measured(0.2)})


def test_progress_counts_trials_by_state_and_keeps_the_best():
    progress = Progress("search", 4, 10.0, started=100.0)
    progress.add([RECORD, replace(RECORD, metrics={"ndcg@20": Measured(0.3)})], 2.0, "ndcg@20", cached=False)
    progress.add([replace(RECORD, status="failed", metrics={})], 1.0, "ndcg@20", cached=False)
    progress.add([replace(RECORD, status="stopped", metrics={})], 1.0, "ndcg@20", cached=False)
    assert (progress.finished, progress.failed, progress.stopped, progress.done) == (1, 1, 1, 3)
    progress.add([], 0.0, "ndcg@20", cached=True)  # a draw that needed no fit
    final = Progress("final", 1, 1.0)
    final.add([replace(RECORD, measured_on="test")], 1.0, "ndcg@20", cached=False)
    assert final.best == {} and final.finished == 1
    assert (progress.finished, progress.done, progress.reused) == (2, 4, 1)
    assert progress.best == {"data/ease": 0.3}
    # 4 of cost took 8 s, so the 6 that are left take 12.
    assert progress.remaining(108.0) == pytest.approx(12.0)


def test_records_that_existed_before_do_not_count_in_the_rate():
    progress = Progress("search", 3, 9.0, started=0.0)
    progress.add([RECORD], 3.0, "ndcg@20", cached=True)
    assert progress.remaining(5.0) is None
    progress.add([RECORD], 3.0, "ndcg@20", cached=False)
    assert progress.remaining(6.0) == pytest.approx(6.0)
    progress.started = time.monotonic() - 60
    assert summary(progress).startswith("search 2/3 fits, 1 reused, 1.0 per minute")


def test_heartbeats_while_it_runs_and_none_after(tmp_path):
    assert last_heartbeat(tmp_path) is None
    with Heartbeat(SweepStore(tmp_path)) as running:
        running.progress = Progress("final", 2, 1.0)
        wait_until(lambda: "progress" in (last_heartbeat(tmp_path) or {}))
        seen = last_heartbeat(tmp_path)
        assert seen["pid"] == os.getpid() and seen["progress"]["stage"] == "final"
    assert last_heartbeat(tmp_path) is None and not list(tmp_path.iterdir())


def test_a_sweep_silent_for_long_is_not_running(tmp_path):
    about = {"pid": 1, "host": "x", "seen_at": time.time() - SILENT - 1}
    (tmp_path / "running.json").write_text(json.dumps(about), encoding="utf-8")
    assert last_heartbeat(tmp_path) is None
    with pytest.raises(ConfigError, match="not running"):
        request_stop(tmp_path)


def beat_of(folder, **about):
    about = {"pid": os.getpid(), "host": socket.gethostname(), "pids": heartbeat._pids(), "seen_at": time.time()} | about
    (folder / "running.json").write_text(json.dumps(about), encoding="utf-8")


def test_a_sweep_that_runs_is_not_taken_over(tmp_path, monkeypatch):
    monkeypatch.setattr(heartbeat, "EVERY", 0.05)
    require_vacant(SweepStore(tmp_path), pytest.fail)  # nothing runs
    with Heartbeat(SweepStore(tmp_path)):
        wait_until(lambda: last_heartbeat(tmp_path))
        with pytest.raises(ConfigError, match=rf"process {os.getpid()} on .* has been running .* since 20.*--take-over"):
            require_vacant(SweepStore(tmp_path), lambda line: None)
    require_vacant(SweepStore(tmp_path), pytest.fail)


def test_a_sweep_of_a_process_that_was_killed_is_free(tmp_path, monkeypatch):
    killed = subprocess.Popen(["true"])
    killed.wait()
    beat_of(tmp_path, pid=killed.pid)
    require_vacant(SweepStore(tmp_path), pytest.fail)  # at once, because this host knows its processes
    monkeypatch.setattr(heartbeat, "EVERY", 0.02)
    monkeypatch.setattr(heartbeat, "SILENT", 1.0)
    now = [time.time()]
    clock = SimpleNamespace(time=lambda: now[0], monotonic=lambda: now[0], sleep=lambda s: now.__setitem__(0, now[0] + s))
    monkeypatch.setattr(heartbeat, "time", clock)
    for elsewhere in ({"host": "gone"}, {"pids": "pid:[another container]"}):
        said = []
        beat_of(tmp_path, pid=killed.pid, seen_at=now[0], **elsewhere)
        require_vacant(SweepStore(tmp_path), said.append)
        (line,) = said
        assert f"process {killed.pid} on" in line and "waiting 1 s" in line and last_heartbeat(tmp_path) is None


def test_the_heartbeat_of_a_process_that_has_taken_over_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(heartbeat, "EVERY", 60.0)  # the process ends before it looks again
    with pytest.raises(Superseded), Heartbeat(SweepStore(tmp_path).claimed()):
        wait_until(lambda: last_heartbeat(tmp_path))
        SweepStore(tmp_path).claimed()
        beat_of(tmp_path)
    assert last_heartbeat(tmp_path)


HOUR = 3600.0


@pytest.mark.fault("F7")
@pytest.mark.parametrize("jump", [-24 * HOUR, -HOUR, HOUR, 24 * HOUR])
def test_a_clock_that_is_set_fools_nobody(tmp_path, monkeypatch, jump, figure):
    """A sweep that runs is seen a moment later; one that was killed is not, though its last heartbeat is from the future."""
    offset = [0.0]
    true_time = time.time
    monkeypatch.setattr(time, "time", lambda: true_time() + offset[0])
    monkeypatch.setattr(heartbeat, "EVERY", 0.05)
    progress = Progress("search", 2, 2.0)
    progress.add([RECORD], 1.0, "ndcg@20", cached=False)

    with Heartbeat(SweepStore(tmp_path)) as running:
        running.progress = progress
        wait_until(lambda: "progress" in (last_heartbeat(tmp_path) or {}))
        before = last_heartbeat(tmp_path)["remaining_seconds"]
        offset[0] = jump
        wait_until(lambda: last_heartbeat(tmp_path))
        assert before <= last_heartbeat(tmp_path)["remaining_seconds"] < HOUR
        left = (tmp_path / "running.json").read_bytes()
    (tmp_path / "running.json").write_bytes(left)  # as if it had been killed
    offset[0] = 0.0
    assert last_heartbeat(tmp_path) is None
    figure("a clock set by an hour or a day: a running sweep is seen as running, a dead one as dead, remaining time is right")


SLEEPER = """
import signal, sys, time
from pathlib import Path
from rankbench.sweeps.heartbeat import Heartbeat
from rankbench.sweeps.store import SweepStore
signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background may be started with it ignored
try:
    with Heartbeat(SweepStore(Path(sys.argv[1]))):
        time.sleep(60)
except KeyboardInterrupt:
    sys.exit(77)
"""


def test_a_request_to_stop_interrupts_the_process_once(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", SLEEPER, str(tmp_path)])
    try:
        wait_until(lambda: last_heartbeat(tmp_path))
        request_stop(tmp_path)
        assert process.wait(30) == 77
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
    assert not list(tmp_path.iterdir())
