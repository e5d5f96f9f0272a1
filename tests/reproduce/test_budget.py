"""How a budget of time is spent: on what was begun, then on the longest fits that can end; and what is said of it before. The
deadline ends the others in whatever thread.
"""

import heapq
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from rankbench.experiment.run import run
from rankbench.fitting.checkpoints import Checkpoints, State
from rankbench.fitting.drive import Begun
from rankbench.reproduce import engine
from rankbench.reproduce.agenda import agenda
from rankbench.reproduce.engine import BudgetedRun, run_within_budget
from rankbench.reproduce.evidence import Evidence
from rankbench.reproduce.forecast import forecast
from rankbench.reproduce.options import ReproduceOptions
from rankbench.reproduce.schedule import Task, in_time, next_batch, store_of
from rankbench.sweeps.running import OutOfTime, Running
from rankbench.tracking.record import find_record, write_record

CLUSTER = SimpleNamespace(cpus=1, gpus=0)


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
    evidence, deadline = Evidence(home.results / "evidence"), time.monotonic() + seconds
    budgeted = BudgetedRun(evidence, home, CLUSTER, deadline=deadline, on_progress=lines.append)
    complete = run_within_budget(lambda: tasks, budgeted)
    return begun, lines, complete, budgeted


def test_fits_that_can_end_in_the_budget_come_first_and_one_more_is_begun(tasks, home, monkeypatch):
    long, short, longest = (replace(task, seconds=seconds) for task, seconds in zip(tasks, (9000, 100, 99000), strict=True))
    begun, lines, complete, _ = spent([long, short, longest], home, monkeypatch, 1000)
    assert begun == [(task.labels, task.stage) for task in (short, long)] and not complete
    assert lines[0].startswith(f"{long.labels} on synthetic takes about 9000 s, and ")
    assert lines[0].endswith("it begins as nothing shorter is left, and the same command continues it")
    named = f"not begun: {re.escape(longest.labels)} on synthetic"
    assert (
        re.fullmatch(rf"{named} takes about 99000 s, and (1000|\d{{3}}) s of the budget are left", lines[1]) and len(lines) == 2
    )


def test_the_fit_that_an_earlier_call_began_comes_first(tasks, home, monkeypatch):
    short, long, begun = (replace(task, seconds=seconds) for task, seconds in zip(tasks, (100, 900, 99000), strict=True))
    begun = replace(begun, begun=Begun(10, 1000.0))
    order, lines, complete, _ = spent([long, short, begun], home, monkeypatch, 1000)
    # By its estimate it lasts until the deadline. Fits of this test take no time, so that there is some for the others then.
    assert order == [(task.labels, task.stage) for task in (begun, short, long)] and complete and not lines


@pytest.mark.parametrize(
    ("seconds", "cpus", "running", "last"),
    [
        (200, 1, [70, 60, 30, 30], 190),  # the longest first
        (150, 1, [70, 60], 130),  # what has no time any more is left
        (140, 2, [70, 60, 30, 30], 100),
        (100, 1, [30, 30], 60),  # 60 and 70 are more than half of the time, and have none when it is their turn
        (100, 2, [30, 30, 60, 70], 100),
        (29, 2, [], 0),
        (float("inf"), 1, [60, 30, 70, 30], 190),
    ],
)
def test_the_longest_fits_begin_first_and_short_ones_fill_the_end(seconds, cpus, running, last):
    found, late, took = in_time([timed(each) for each in (60, 30, 70, 30)], seconds, cpus)
    assert [task.seconds for task in found] == running and len(found) + len(late) == 4 and took == last


def timed(seconds, cpus=1, stage="printed", begun=None, label="a row", gpus=0):
    """A task of one fit."""
    fit = SimpleNamespace(key=(label, seconds), seed=0, rows=[])
    return Task(stage, "toy", (fit,), SimpleNamespace(cpus=cpus, gpus=gpus), seconds=seconds, begun=begun)


def test_fits_that_share_a_gpu_wait_for_each_other():
    four_on_a_gpu = [timed(40, gpus=0.25) for _ in range(8)]
    assert [len(each) for each in in_time(four_on_a_gpu, 50, 16, 1)[:2]] == [4, 4]
    assert in_time(four_on_a_gpu, 80, 16, 1)[2] == 80 and in_time(four_on_a_gpu, 80, 16, 2)[2] == 40
    assert in_time(four_on_a_gpu, 80, 2, 1)[2] == 80


def test_fits_that_go_on_leave_the_other_processors_to_all_later_stages():
    endless, short, search = timed(900, begun=Begun(1, 9.0)), timed(20), Task("search", "toy", searched=(object(),), seconds=40)
    seed, wide = timed(30, stage="seeds"), timed(10, cpus=2)
    queue = [endless, short, search, wide, seed]
    assert next_batch(queue, 100) == [endless, short, seed]
    assert next_batch(queue, 1000) == [endless, short]
    assert next_batch(queue[2:], 100) == [search]
    running, late, took = in_time([endless, short, seed], 100, 2)
    assert running == [endless, seed, short] and not late and took == 100


@pytest.mark.parametrize("cpus", [1, 2])
@pytest.mark.parametrize("budget", [50.0, 100.0, 400.0, 5000.0])
def test_the_forecast_is_what_happens_if_fits_take_as_long_as_estimated(home, monkeypatch, budget, cpus):
    """Against the engine itself, whose clock stands still except while tasks are worked on."""
    rng = np.random.default_rng(int(budget))
    queue = [timed(float(seconds), label=f"row {i}") for i, seconds in enumerate(rng.integers(5, 300, 12))]
    queue[0] = replace(queue[0], begun=Begun(5, 10.0), seconds=180.0)
    expected = forecast(queue, budget, cpus)
    now, ended, cut = [0.0], [], []

    def work_on(batch, budgeted, *rest):
        free = [now[0]] * cpus
        for task in batch:
            end = heapq.heappop(free) + task.seconds
            (ended if end <= budget else cut).append(task)
            heapq.heappush(free, end)
        now[0] = min(max(free), budget)
        return False

    monkeypatch.setattr("rankbench.reproduce.engine._work_on", work_on)
    monkeypatch.setattr("rankbench.reproduce.engine.fresh", lambda task, *rest: task)
    monkeypatch.setattr(Running, "seconds_left", property(lambda running: budget - now[0]))
    cluster = SimpleNamespace(cpus=cpus, gpus=0)
    run_within_budget(lambda: queue, BudgetedRun(Evidence(home.results / "evidence"), home, cluster, deadline=budget))
    assert {task.seconds for task in expected.ends} == {task.seconds for task in ended}
    assert {task.seconds for task, _ in expected.goes_on} == {task.seconds for task in cut}
    assert len(expected.ends) + len(expected.goes_on) + len(expected.not_begun) == 12


def test_the_forecast_says_what_is_left_to_later_calls(home):
    begun, short, long = timed(9000.0, begun=Begun(30, 900.0), label="long"), timed(600.0), timed(90000.0)
    found = forecast([begun, short, long], 3600.0, 2)
    assert [found.of(task) for task in (begun, short, long)] == ["goes on", "ends", "not begun"]
    first, second, third = found.lines()
    assert first.startswith("to the end in about 60 min on 2 processors: 1 task, that is ")
    assert (
        "(begun: 30 iterations are done) needs about 90 min more; the same command continues it, in 2 more calls of 60 min"
        in second
    )
    assert third.startswith("not begun: 1 task, that is ") and third.endswith("(25 h 0 min)")


def test_a_study_that_is_longer_than_the_budget_is_said_never_to_begin():
    """It has no checkpoints, so that no number of such calls ends it."""
    study = SimpleNamespace(simulation=SimpleNamespace(study="threshold-error", table="toy/4"))
    queue = [Task("study", "toy", study=study, seconds=seconds) for seconds in (2400.0, 500.0)]
    assert forecast(queue, 600.0, 2).lines()[1:] == [
        "never begun in 10 min, because a study runs in one call; give a larger --budget: 1 task, that is threshold-error on "
        "toy (40 min)"
    ]
    assert len(forecast(queue, None, 2).lines()) == 1


def test_a_fit_that_was_begun_needs_the_rest_at_its_measured_rate(home, toy):
    """A call that was interrupted has left a checkpoint after 30 of 100 epochs of 2 s; the first took a minute more."""
    toy("arms: [{name: BPR, method: bpr, params: {epochs: 100}, published: {synthetic: {recall@20: 0.2}}}]")
    options = ReproduceOptions(["toy/2"])
    before = agenda(options, home).tasks
    assert [task.stage for task in before] == ["printed", "seeds", "seeds"] and not any(task.begun for task in before)
    rows = [{"iteration": epoch, "seconds": 60 + 2.0 * epoch, "loss": 1.0} for epoch in range(1, 31)]
    folder = Checkpoints(home.results / "reproduce" / "checkpoints" / before[1].unit.run_id)
    folder.save(State(1, {"U": np.ones(3)}, {"fit": {}, "curve": rows[:1]}))
    first, *others = agenda(options, home).tasks
    assert first.key == before[1].key and first.begun == Begun(1, None) and not any(task.begun for task in others)
    assert first.seconds == pytest.approx(0.99 * before[1].seconds)
    folder.save(State(30, {"U": np.ones(3)}, {"fit": {}, "curve": rows}))
    first, *_ = agenda(options, home).tasks
    assert first.key == before[1].key and first.begun == Begun(30, 2.0) and first.seconds == 140
    (folder.folder / "000030" / "values.json").write_text('{"values": {"curve": []}}')  # of a fit that says nothing
    assert not any(task.begun for task in agenda(options, home).tasks)


def test_a_call_in_which_a_fit_failed_says_so_and_has_something_left(tasks, home, monkeypatch):
    monkeypatch.setattr("rankbench.reproduce.engine._fit", lambda batch, budgeted: budgeted.fail("EASE on synthetic: singular"))
    lines = []
    budgeted = BudgetedRun(Evidence(home.results / "evidence"), home, CLUSTER, on_progress=lines.append)
    assert not run_within_budget(lambda: tasks[:1], budgeted) and budgeted.outcome.failed == ["EASE on synthetic: singular"]
    assert lines == ["failed: EASE on synthetic: singular"]


def test_the_budget_ends_in_whatever_thread_the_command_runs(tasks, home, monkeypatch):
    """The loop that waits for fits asks whether the time is over; nothing but this ends the fit of this test."""

    def never_ending(running):
        running.deadline = time.monotonic() + 0.2
        running.expect(1)
        while True:
            running.step()

    with ThreadPoolExecutor(1) as other_thread:
        answer = other_thread.submit(spent, tasks[:1], home, monkeypatch, 1000, never_ending).result()
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


@pytest.mark.parametrize(
    ("about", "data", "kept"),
    [
        ({"revision": "abc", "code": "other"}, "", True),
        ({"revision": "abc+changes", "code": "other"}, "", False),
        ({"revision": "abc+changes"}, "", True),  # of the source files of now, whatever else has changed since the commit
        ({"revision": "abc"}, "of another reader", False),
    ],
)
def test_what_code_of_unknown_state_or_other_data_gave_is_fitted_again(tasks, home, monkeypatch, about, data, kept):
    monkeypatch.setattr("rankbench.sweeps.run_units.run_units", lambda *call, **options: None)
    task = next(each for each in tasks if each.unit)
    for outcome in run(task.unit.job, home):
        known, dataset = outcome.record.environment | about, outcome.record.dataset
        dataset = replace(dataset, fingerprint=data or dataset.fingerprint)
        folder = write_record(store_of(home).records, replace(outcome.record, environment=known, dataset=dataset), None)
    engine._fit([task], BudgetedRun(Evidence(home.results / "evidence"), home, CLUSTER))
    assert (find_record(folder) is not None) == kept
