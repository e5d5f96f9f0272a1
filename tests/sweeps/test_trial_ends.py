"""The end of a trial whose record is not seen at once, as in a folder of NFS that remembers that there was none."""

import re
import subprocess
import sys
import threading
from socket import gethostname
from types import SimpleNamespace

import pytest

from rankbench.cluster.machine import Machine
from rankbench.core.errors import DataError, StorageError
from rankbench.experiment.run import run
from rankbench.sweeps.search.stage import Search
from rankbench.sweeps.store import SweepStore
from rankbench.sweeps.sweep import open_sweep
from rankbench.sweeps.trials import ends, trainable
from rankbench.sweeps.trials.dispatch import Dispatch
from rankbench.sweeps.trials.group import Group
from rankbench.sweeps.trials.limits import OVERDUE
from rankbench.tracking.record import write_record

from .planned import plan_of


@pytest.fixture
def group(environment):
    planned = plan_of(environment, {"method": "ease"}, cpus=1)
    search = Search(open_sweep(planned, environment), planned.spec.search)
    for unit in planned.search:
        search.add(unit)
    return Group([*planned.search], [], search, Dispatch([Machine(1, 4 << 30)], None))


def ended(group):
    """What is told of the first unit when its trial ends, the reason if it is late, and the units that count as lost."""
    told = []
    after = ends.TrialEnds(
        group, lambda unit, records, cached: told.append(records), lambda unit, reason: told.append(reason), print, again=True
    )
    after.on_trial_complete(1, [], trial := SimpleNamespace(config={"unit": 0}, get_error=str, get_pickled_error=str))
    assert after.lost in ([], [trial])
    return told, after.units_lost()


def test_a_record_that_appears_late_is_waited_for(group, environment):
    outcomes = run(group.units[0].job, environment)

    def write():
        for outcome in outcomes:
            write_record(group.search.records, outcome.record, outcome.per_user)

    writer = threading.Timer(1.5, write)
    writer.start()
    told, lost = ended(group)
    writer.join()
    assert [len(records) for records in told] == [len(outcomes)] and not lost


def test_an_error_while_a_result_is_stored_is_that_error_and_no_lost_worker(group, environment):
    for outcome in run(group.units[0].job, environment):
        write_record(group.search.records, outcome.record, outcome.per_user)

    def refuse(*_):
        raise DataError("gowalla.fits.jsonl:3: a conflict of git")

    after = ends.TrialEnds(group, refuse, print, print, again=True)
    after.on_step_end(1, [])
    after.on_trial_complete(1, [], SimpleNamespace(config={"unit": 0}))
    with pytest.raises(DataError, match="a conflict of git"):
        after.on_step_end(1, [])
    assert after.lost == []


def test_a_record_that_never_appears_is_that_of_a_lost_worker(group, monkeypatch):
    monkeypatch.setattr(ends, "VISIBLE", 0.5)
    told, (lost,) = ended(group)
    assert told == [] and lost.unit is group.units[0] and "its record does not appear here" in lost.reason


def test_a_unit_over_its_limit_ends_at_once_for_that_reason(group, monkeypatch):
    monkeypatch.setattr(ends, "VISIBLE", 0.0)
    path = group.search.store.folder / OVERDUE / group.units[0].run_id
    code = """
import sys, time
from pathlib import Path
from rankbench.experiment.execution import Limit
from rankbench.sweeps.trials.limits import Limits
limits = Limits(Path(sys.argv[1]))
limits.begin(Limit(float(sys.argv[3]), "too long"))
time.sleep(float(sys.argv[2]))
"""
    for wait, limit, late in ((30, 0.5, True), (0, 60.0, False)):
        done = subprocess.run([sys.executable, "-c", code, str(path), str(wait), str(limit)], check=False)
        told, lost = ended(group)
        assert (done.returncode, told, len(lost)) == ((1, ["too long"], 0) if late else (0, [], 1))


def test_a_node_without_the_results_is_named_after_a_while(tmp_path, monkeypatch):
    monkeypatch.setattr(trainable, "MOUNTED", 1.0)
    with pytest.raises(StorageError, match=rf"late: not there on {re.escape(gethostname())}; mount it"):
        trainable._require_visible(SweepStore(tmp_path / "late"))
    mount = threading.Timer(1.5, (tmp_path / "late").mkdir)
    monkeypatch.setattr(trainable, "MOUNTED", 60.0)
    mount.start()
    trainable._require_visible(SweepStore(tmp_path / "late"))
    mount.join()


@pytest.mark.parametrize(
    ("message", "begins"),
    [
        (
            "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\nMemory on the node (IP: "
            "10.0.0.1) was 30.1GB / 31.0GB (0.97)",
            "out of memory: Ray ended its worker",
        ),
        (
            "Traceback (most recent call last):\n  File x\nray.exceptions.ActorDiedError: The actor died unexpectedly before "
            "finishing this task.\n\tclass_name: UnitTrainable\nWorker exit type: SYSTEM_ERROR Worker exit detail: ...",
            "its worker process died",
        ),
        ("The actor died because its node was terminated", "its node was lost"),
        ("ray.exceptions.RaySystemError: broken pipe", "broken pipe"),
        ("", "it ended, but its record does not appear here"),
    ],
)
def test_the_cause_comes_first(message, begins):
    """Why a worker was lost, in words of a user, from the messages that Ray writes."""
    told = ends.cause(message.splitlines())
    assert told.startswith(begins) and "ray.exceptions" not in told and "\n" not in told
