"""A process that is frozen while it runs a sweep or a trial, and wakes up after another took its place, overwrites nothing."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace

import psutil
import pytest

from rankbench.cli import _main
from rankbench.core.attempts import FolderAttempt, Superseded
from rankbench.core.storage import Storage
from rankbench.schema.shared_sweeps import claimed_run, copy_records_from, copy_sweep
from rankbench.sweeps.heartbeat import last_heartbeat
from rankbench.sweeps.search.draws import Draws
from rankbench.sweeps.store import Claim, SweepStore
from rankbench.tracking.record import DatasetInfo, RunRecord, read_record

from .commands import wait_until

NAME = "small-01234567-20260101-000000-000000"

# It freezes itself at the worst moment: after it has seen that its attempt is the newest, before it publishes.
WRITER = """
import dataclasses, json, os, signal, sys
from pathlib import Path
from rankbench.core import attempts
from rankbench.core.environment import Environment
from rankbench.sweeps.store import SweepStore
from rankbench.tracking.record import RunRecord, DatasetInfo

what, folder, frozen = sys.argv[1], Path(sys.argv[2]), []
for kind in (attempts.FolderAttempt, attempts.StoredAttempt):
    def look(self, looks=kind.require_newest):
        looks(self)
        if not frozen:
            frozen.append(True)
            os.kill(os.getpid(), signal.SIGSTOP)
    kind.require_newest = look
if what == "run":
    from rankbench.cli import _main
    sys.exit(_main(sys.argv[3:]))
store = SweepStore.of(folder, Environment.from_env())
try:
    if what == "trial":
        record = RunRecord("run-1", "ease", {"by": "frozen"}, DatasetInfo("d", "f"), "train", "valid", 0, "float32")
        store.trial("run-1", ["run-1"]).write(record, None)
    else:
        store.claimed().write("chosen.json", {"by": "frozen"})
except attempts.Superseded as error:
    print(error)
    sys.exit(4)
"""


def record(by):
    return RunRecord("run-1", "ease", {"by": by}, DatasetInfo("d", "f"), "train", "valid", 0, "float32")


@pytest.fixture(params=["folder", "store"])
def hosts(request, environment, tmp_path, monkeypatch):
    """Environments of two hosts that share a folder, or a store."""
    if request.param == "folder":
        monkeypatch.setenv("RANKBENCH_RESULTS", str(environment.results))
        return environment, environment
    address = request.getfixturevalue("s3")
    monkeypatch.setenv("RANKBENCH_RESULTS", f"{address}/results")
    monkeypatch.setenv("RANKBENCH_CACHE", str(tmp_path / "frozen"))
    store = Storage.from_env(f"{address}/results", "here")
    return tuple(replace(environment, results=tmp_path / name, results_store=store) for name in ("frozen", "other"))


def start(script, *words):
    return subprocess.Popen([sys.executable, "-c", script, *words], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def is_frozen(process):
    return psutil.Process(process.pid).status() == psutil.STATUS_STOPPED


@pytest.mark.parametrize("what", ["trial", "sweep"])
@pytest.mark.fault("F7")
def test_what_a_frozen_process_writes_later_does_not_count(hosts, what, figure):
    theirs, ours = hosts
    process = start(WRITER, what, str(theirs.results / "sweeps" / NAME))
    try:
        wait_until(lambda: is_frozen(process), process)
        store = SweepStore.of(ours.results / "sweeps" / NAME, ours)
        store = store.claimed() if what == "sweep" or ours.results_store else store
        if what == "trial":
            store.trial("run-1", ["run-1"]).write(record("newer"), None)
        else:
            store.write("chosen.json", {"by": "newer"})
        if ours.results_store:
            store.write("sweep.json", {})
        process.send_signal(signal.SIGCONT)
        output, error = process.communicate(timeout=60)
    finally:
        process.kill()
    if not ours.results_store:
        # In a folder it notices; what it writes to a store has a key of its own, which is not the newest.
        assert process.returncode == 4 and "attempt 2; this was attempt 1" in output, error
    for environment in hosts:
        folder = copy_sweep(NAME, environment) if environment.results_store else environment.results / "sweeps" / NAME
        if what == "trial":
            assert read_record(folder / "records" / "run-1").params == {"by": "newer"}
            assert [path.name for path in (folder / "records").iterdir()] == ["run-1"]
        else:
            assert json.loads((folder / "chosen.json").read_text()) == {"by": "newer"}
        assert not [path for path in folder.rglob(".tmp-*")]
    figure("a frozen writer that wakes up late: nothing it writes counts")


RUN = (
    "run",
    "synthetic",
    "ease",
    "lam=3",
    "data.source.generator.users=60",
    "data.source.generator.items=40",
    "--no-track",
    "--fresh",
)


@pytest.mark.fault("F4")
def test_a_frozen_run_does_not_replace_the_record_of_a_later_one(hosts, monkeypatch, capsys, figure):
    theirs, ours = hosts
    monkeypatch.setenv("RANKBENCH_DATA", str(theirs.data))
    monkeypatch.setenv("RANKBENCH_OFFLINE", "1")
    process = start(WRITER, "run", "", *RUN)
    try:
        wait_until(lambda: is_frozen(process), process)
        if ours.results_store:
            monkeypatch.setenv("RANKBENCH_CACHE", str(ours.results.parent / "cache"))
        assert _main([*RUN, "--json"]) == 0
        newer = json.loads(capsys.readouterr().out)
        process.send_signal(signal.SIGCONT)
        output, error = process.communicate(timeout=60)
    finally:
        process.kill()
    if not ours.results_store:
        # In a folder it notices; what it writes to a store has a key of its own, which is not the newest.
        assert process.returncode == 4 and "attempt 2; this was attempt 1" in error, (output, error)
        results = ours.results
    else:
        results = ours.results.parent / "third"
        copy_records_from(newer["id"], replace(ours, results=results))
    (folder,) = results.glob("runs/[!.]*")
    assert read_record(folder).seconds == newer["seconds"]
    assert not [path for path in folder.parent.rglob(".tmp-*")]
    figure("a frozen run that wakes up late does not replace the record of a later one")


def test_a_run_that_fails_gives_its_number_back(hosts):
    _, ours = hosts
    with pytest.raises(KeyboardInterrupt), claimed_run("run-1", ours) as attempt:
        assert attempt.is_newest
        raise KeyboardInterrupt
    with claimed_run("run-1", ours) as attempt:
        assert (attempt.number if isinstance(attempt, FolderAttempt) else int(attempt.name[:6])) == 1


DRIVER = """
import sys, time
from pathlib import Path
from rankbench.cli.interrupts import watch
from rankbench.core.attempts import Superseded
from rankbench.core.environment import Environment
from rankbench.sweeps import heartbeat
from rankbench.sweeps.store import SweepStore
heartbeat.EVERY = heartbeat.EVERY_STORED = 2.0
watch("--resume continues")
try:
    with heartbeat.Heartbeat(SweepStore.of(Path(sys.argv[1]), Environment.from_env()).claimed()):
        time.sleep(60)
except Superseded as error:
    print(error)
    sys.exit(4)
"""


def test_a_frozen_driver_ends_when_it_wakes_up_and_leaves_the_heartbeat_of_the_other(hosts):
    theirs, ours = hosts
    process = start(DRIVER, str(theirs.results / "sweeps" / NAME))
    store = SweepStore.of(ours.results / "sweeps" / NAME, ours)
    try:
        wait_until(lambda: last_heartbeat(store.folder, store.shared), process)
        process.send_signal(signal.SIGSTOP)
        store = store.claimed()
        about = json.dumps({"pid": 1, "host": "other", "seen_at": time.time()}).encode()
        if store.shared:
            store.shared.write("running.json", about)
        else:
            (store.folder / "running.json").write_bytes(about)
        process.send_signal(signal.SIGCONT)
        output, error = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 4, error
    assert "stopping:" not in error  # this is no Ctrl-C, and --resume would take the sweep back
    who = f"process {os.getpid()} on {socket.gethostname()}"
    assert output.startswith(f"the sweep {NAME}: {who} has taken it over at 20") and "(attempt 2; this was attempt 1)" in output
    assert last_heartbeat(store.folder, store.shared)["host"] == "other"


def test_a_process_that_was_replaced_begins_no_trial(hosts, monkeypatch):
    theirs, ours = hosts
    old = SweepStore.of(theirs.results / "sweeps" / NAME, theirs).claimed()
    worker = old.here(theirs)
    new = SweepStore.of(ours.results / "sweeps" / NAME, ours).claimed()
    trial = new.trial("run-1", ["run-1"])
    for store in (old, worker):
        with pytest.raises(Superseded, match=r"the sweep .* taken it over"):
            store.trial("run-1", ["run-1"])
    # It was replaced between its first look and the claim of the trial, which it gives back.
    looks = [None]
    monkeypatch.setattr(Claim, "require_newest", lambda self, look=Claim.require_newest: looks.pop() if looks else look(self))
    with pytest.raises(Superseded):
        old.trial("run-1", ["run-1"])
    assert not looks
    trial.write(record("newer"), None)
    new.fetch(["run-1"])
    assert read_record(new.records / "run-1").params == {"by": "newer"}


def test_the_copy_of_a_process_that_runs_here_is_left_alone_until_it_is_taken_over(environment, s3, tmp_path):
    machine = replace(environment, results=tmp_path / "one", results_store=Storage.from_env(f"{s3}/results", "here"))
    store = SweepStore.of(machine.results / "sweeps" / NAME, machine).claimed()
    store.write("sweep.json", {"stored": True})
    (store.folder / "running.json").touch()
    (store.folder / "sweep.json").write_text("being written")
    copy_sweep(NAME, machine)
    assert (store.folder / "sweep.json").read_text() == "being written"
    copy_sweep(NAME, machine, take_over=True)
    assert json.loads((store.folder / "sweep.json").read_text()) == {"stored": True}


def test_draws_of_a_process_that_was_replaced_are_not_added(hosts):
    theirs, ours = hosts
    old_store = SweepStore.of(theirs.results / "sweeps" / NAME, theirs).claimed()
    old_store.write("sweep.json", {})
    old = Draws(old_store.folder / "draws.jsonl", old_store)
    old.add("x", {"tau": 1})
    folder = copy_sweep(NAME, ours) if ours.results_store else old_store.folder
    new_store = SweepStore.of(folder, ours).claimed()
    new = Draws(folder / "draws.jsonl", new_store)
    assert new.drawn("x", 0) == {"tau": 1}
    new.add("x", {"tau": 2})
    with pytest.raises(Superseded, match="taken it over"):
        old.add("x", {"tau": 3})
    again = Draws((copy_sweep(NAME, ours) if ours.results_store else folder) / "draws.jsonl")
    assert [again.drawn("x", number) for number in range(3)] == [{"tau": 1}, {"tau": 2}, None]
