"""How a budget of time is spent: fits that can end come first, and the deadline ends the others in whatever thread."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import pytest

from rankbench.reproduce.agenda import agenda
from rankbench.reproduce.engine import BudgetedRun, run_within_budget
from rankbench.reproduce.evidence import Evidence
from rankbench.reproduce.options import ReproduceOptions
from rankbench.reproduce.schedule import in_time
from rankbench.sweeps.running import OutOfTime, Running

CLUSTER = SimpleNamespace(cpus=1)


@pytest.fixture
def tasks(home):
    """Two fits and no search, whose estimates are to be set."""
    return agenda(ReproduceOptions(["toy"], stages=["printed", "as published"]), home).tasks


def spent(tasks, home, monkeypatch, seconds, fit=lambda running: None):
    """Work on tasks with `seconds` of time. Returns what was begun in its order, the lines that were told, and the answer."""
    begun, lines = [], []

    def _fit(batch, budgeted, *rest):
        begun.extend((task.labels, task.stage) for task in batch)
        fit(budgeted.running)

    monkeypatch.setattr("rankbench.reproduce.engine._fit", _fit)
    budgeted = BudgetedRun(Evidence(home.results / "evidence"), None, lines.append, lambda *sent: None)
    complete = run_within_budget(lambda: tasks, budgeted, home, CLUSTER, {}, time.monotonic() + seconds)
    return begun, lines, complete, budgeted


def test_fits_that_can_end_in_the_budget_come_first_and_one_more_is_begun(tasks, home, monkeypatch):
    long, short, longest = (replace(task, seconds=seconds) for task, seconds in zip(tasks, (9000, 100, 99000), strict=True))
    begun, lines, complete, _ = spent([long, short, longest], home, monkeypatch, 1000)
    assert begun == [(task.labels, task.stage) for task in (short, long)] and not complete
    assert lines[0].startswith(f"{long.labels} on synthetic takes about 9000 s, and ")
    assert lines[0].endswith("it begins as nothing shorter is left, and the same command continues it")
    assert lines[1].startswith(f"not begun: {longest.labels} on synthetic takes about 99000 s, and ") and len(lines) == 2


def test_the_fit_that_an_earlier_call_began_is_continued(tasks, home, monkeypatch):
    long, longest = (replace(task, seconds=seconds) for task, seconds in zip(tasks[:2], (9000, 99000), strict=True))
    (home.results / "reproduce" / "checkpoints" / longest.unit.run_id).mkdir(parents=True)
    begun, *_ = spent([long, longest], home, monkeypatch, 1000)
    assert begun == [(longest.labels, longest.stage)]


@pytest.mark.parametrize(
    ("seconds", "cpus", "ending"),
    [
        (100, 1, [30, 30]),
        (100, 2, [30, 30, 60, 70]),
        (90, 2, [30, 30, 60]),
        (29, 2, []),
        (float("inf"), 1, [60, 30, 70, 30]),
    ],
)
def test_as_many_fits_as_can_end_side_by_side_are_begun(seconds, cpus, ending):
    unit = SimpleNamespace(cpus=1)
    batch = [SimpleNamespace(seconds=each, unit=unit, searched=None) for each in (60, 30, 70, 30)]
    found, late = in_time(batch, seconds, cpus)
    assert [task.seconds for task in found] == ending and len(found) + len(late) == 4


def test_the_budget_ends_in_whatever_thread_the_command_runs(tasks, home, monkeypatch):
    """The loop that waits for fits asks whether the time is over; nothing but this ends the fit of this test."""

    def never_ending(running):
        running.expect(1)
        while True:
            running.step()

    with ThreadPoolExecutor(1) as other_thread:
        answer = other_thread.submit(spent, tasks[:1], home, monkeypatch, 0.2, never_ending).result()
    begun, _, complete, budgeted = answer
    assert len(begun) == 1 and not complete and budgeted.running.over and budgeted.running.deadline is None


def test_what_has_ended_is_not_interrupted():
    """The deadline may pass between the end of the last fit and the return of the loop."""
    running = Running()
    running.deadline = time.monotonic() - 1
    running.expect(1)
    with pytest.raises(OutOfTime):
        running.step()
    running.end()
    running.step()
