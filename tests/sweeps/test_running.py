"""How far running fits are: what a trial reports, what is kept of it, and what a log and the state of a sweep say."""

import io
import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console

from rankbench.core.plugins import Shipment
from rankbench.data.cards import load_card
from rankbench.experiment.job import Job, configure
from rankbench.sweeps import running as clocks
from rankbench.sweeps.heartbeat import Heartbeat, Progress, last_heartbeat
from rankbench.sweeps.running import Running
from rankbench.sweeps.store import SweepStore
from rankbench.sweeps.trials import trainable
from rankbench.sweeps.trials.callbacks import BEGUN, ITERATION, ROWS, UNSAVED, VALID, Reports, Silence
from rankbench.sweeps.trials.trainable import Planned, UnitTrainable
from rankbench.sweeps.units import Unit
from rankbench.sweeps.views import live, sweep_view
from rankbench.sweeps.views.live import SHOWN, ReproduceView, running_lines
from rankbench.sweeps.views.notebook import SweepInNotebook
from rankbench.sweeps.views.sweep_view import SweepView
from rankbench.tracking.record import DatasetInfo, Measured, RunRecord, read_record, record_of

from .planned import plan_of

pytestmark = pytest.mark.usefixtures("home")


def unit(environment, method="bpr", **params):
    config = configure(method, params, arm=f"{method}, small")
    return Unit(Job(load_card("synthetic", environment), (config,), "train", "valid", stage="search"), 1, 1, 1.0)


@pytest.fixture
def now(monkeypatch):
    """The time that running fits see, in a list."""
    at = [1000.0]
    for module in (clocks, live, sweep_view):
        monkeypatch.setattr(module.time, "monotonic", lambda: at[0])
    return at


def test_a_trial_reports_its_iteration_and_ends_as_before(environment, tmp_path, monkeypatch):
    monkeypatch.setattr(trainable, "REPORT_EVERY", 0.0)
    planned = Planned(Shipment.of_this_process(), [unit(environment, epochs=4, patience=9, eval_every=2)], [])
    store = SweepStore(tmp_path)
    trial = UnitTrainable.__new__(UnitTrainable)
    trial.setup({"unit": 0, "nodes": 1}, planned, environment, store, prunes=False)
    results = [trial.step()]
    while not results[-1].get("done"):
        results.append(trial.step())
    assert [each[ITERATION] for each in results[:-1]] == [1, 2, 3, 4]
    assert [VALID in each for each in results[:-1]] == [False, True, True, True]
    record = read_record(store.records / planned.units[0].run_id)
    assert results[-1] == {"done": True} and record.finished
    # The rows travel with the reports, each once, and what is known of the record with the first one.
    assert [row for each in results[:-1] for row in json.loads(each[ROWS])] == record.curve
    assert [BEGUN in each for each in results[:-1]] == [True, False, False, False]
    begun = record_of(json.loads(results[0][BEGUN]))
    assert (begun.id, begun.started_at, begun.dataset) == (record.id, record.started_at, record.dataset)


def test_a_trial_takes_no_more_memory_of_a_gpu_than_its_share(environment, tmp_path, monkeypatch):
    bounds = []
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", bounds.append)
    small = unit(environment, epochs=1)
    for given in (replace(small, device="cuda", gpu_share=0.25), small, replace(small, device="cuda")):
        trial = UnitTrainable.__new__(UnitTrainable)
        planned = Planned(Shipment.of_this_process(), [given], [])
        trial.setup({"unit": 0, "nodes": 1}, planned, environment, SweepStore(tmp_path), prunes=False)
        while not trial.step().get("done"):  # without a GPU, the fit fails with a record
            pass
    assert bounds == [0.25, 1.0]


def test_the_remaining_time_follows_the_rate_of_this_attempt(environment, now):
    running = Running()
    running.expect(3)
    running.start("a", unit(environment, epochs=50, patience=5))
    (fit,) = running.fits
    assert fit.remaining is None
    now[0] += 60
    running.report("a", 20, 0.1)  # it was resumed after 19 epochs
    assert fit.remaining is None
    now[0] += 30
    running.report("a", 30, None)
    assert fit.remaining == pytest.approx(60) and fit.valid == 0.1
    (line,) = running_lines(running)
    assert line == "bpr, small on synthetic, seed 0: 30 of 50 epochs, ndcg@20 0.1000 on valid, at most 1:00 left"
    running.leave("a")
    running.end()
    assert not running.fits and (running.ended, running.of) == (1, 3)


def test_a_fit_is_silent_if_it_had_reported_long_ago(environment, now):
    running, warnings = Running(), []
    held = set()
    silence = Silence(running, warnings.append, held)

    def after(seconds):
        now[0] += seconds
        silence.on_step_end(1, [])

    running.start("a", unit(environment, epochs=50))
    after(5000)  # it may still load its data
    running.report("a", 1, None, "host h, process 7")
    running.start("b", unit(environment, epochs=50))
    after(10)
    running.report("b", 1, None, "host h, process 8")
    after(601)
    (warning,) = warnings
    assert warning == (
        "bpr, small on synthetic, seed 0: no report for 601 s, where 10 s was the longest time before (host h, process 8); if "
        "it hangs, end that process, and the fit is run again"
    )
    after(60)
    assert len(warnings) == 1
    assert running_lines(running)[1] == "bpr, small on synthetic, seed 0: 1 of 50 epochs, no report for 11:01"
    running.report("b", 2, None, "host h, process 8")
    after(6000)  # less than ten times the longest silence
    assert len(warnings) == 1 and running.fits[1].silence is None
    held.add("b")
    after(700)  # it waits for another one
    held.clear()
    after(0)
    after(6000)
    assert len(warnings) == 1
    after(700)
    assert len(warnings) == 2
    running.report("b", 50, None, "host h, process 8")
    after(10_000)  # it is measured
    assert running.fits[1].silence is None and len(warnings) == 2


def test_of_many_fits_some_are_shown(environment):
    running = Running()
    for number in range(SHOWN + 3):
        running.start(str(number), unit(environment))
    lines = running_lines(running)
    assert len(lines) == SHOWN + 1 and lines[-1] == "and 3 more fits"


def test_a_log_of_reproduce_says_how_far_it_is(environment, now, capsys):
    with ReproduceView(budget=7200.0) as view:
        view.running.expect(5)
        view.running.start("a", unit(environment, epochs=50))
        now[0] += 130
        view.running.report("a", 10, None)
        now[0] += 30
        view.running.report("a", 12, None)  # too soon for another line
    assert capsys.readouterr().err.splitlines() == [
        "0 of 5 fits, 2:10 of 2:00:00 spent",
        "  bpr, small on synthetic, seed 0: 10 of 50 epochs",
    ]


@pytest.mark.parametrize("view", [ReproduceView(budget=7200.0), SweepView("ndcg@20")])
def test_a_terminal_shows_whole_lines(environment, now, view):
    if isinstance(view, SweepView):
        view.stage(Progress("search", 5, 5.0))
    running = view.running if isinstance(view, ReproduceView) else view.progress.running
    running.start("a", unit(environment, epochs=50, patience=5))
    running.report("a", 10, 0.25)
    text = io.StringIO()
    Console(file=text, width=80).print(view._shown())
    assert "  bpr, small on synthetic, seed 0: 10 of 50 epochs, ndcg@20 0.2500 on valid" in text.getvalue().splitlines()


def test_quiet_progress_prints_nothing(environment, now, capsys):
    with ReproduceView(budget=None, quiet=True) as view:
        view.told("a line")
        view.running.start("a", unit(environment))
        now[0] += 1000
        view.running.report("a", 10, None)
    assert capsys.readouterr().err == ""


def test_a_log_of_a_sweep_says_how_far_its_fits_are(environment, now, capsys):
    view = SweepView("ndcg@20")
    progress = Progress("search", 5, 5.0)
    view.stage(progress)
    progress.running.start("a", unit(environment, epochs=50))
    assert capsys.readouterr().err == ""
    now[0] += 61
    progress.running.report("a", 10, None)
    assert capsys.readouterr().err.splitlines() == [
        "search 0/5 fits",
        "  bpr, small on synthetic, seed 0: 10 of 50 epochs",
    ]
    # A closed form reports nothing; Tune's steps say that it runs.
    progress.running.leave("a")
    said: list[str] = []
    reports = Reports(lambda trial: unit(environment, "ease"), progress.running, said.append)
    progress.running.start("b", unit(environment, "ease"))
    for _ in range(7):
        now[0] += 20
        reports.on_step_end(1, [])
    lines = capsys.readouterr().err.splitlines()
    (line,) = [line for line in lines if "running" in line]
    assert line.startswith("  ease, small on synthetic, seed 0: running for 1:")
    for _ in range(2):
        reports.on_trial_result(1, [], SimpleNamespace(trial_id="b"), {UNSAVED: "no space left on the device: results"})
    (line,) = said
    assert "ease" in line and "no space left on the device" in line and "without checkpoints" in line


def test_a_notebook_shows_what_a_log_has_and_curves(environment, home, now, monkeypatch):
    monkeypatch.setattr(SweepInNotebook, "update", lambda self, at_once=False: None)  # a kernel alone has a place for it
    planned, small = plan_of(environment, {"method": "ease"}), unit(environment, epochs=50)
    record = RunRecord("a", "bpr", {}, DatasetInfo("synthetic"), "train", "valid", 0, "float32", arm="bpr, small")
    best = replace(record, metrics={"ndcg@20": Measured(0.25)})
    with SweepInNotebook("ndcg@20") as view:
        view.planned(planned, home / "results" / "sweeps" / "small")
        view.warn("a node is slow")
        view.stage(progress := Progress("search", 3, 3.0, started=now[0]))
        progress.running.start("a", small)
        for each in (best, best):
            now[0] += 60
            progress.add([each], 1.0, "ndcg@20", cached=False)
            view.done(small, [each])
        lines, picture = view.content()
        assert lines == [
            "test: 1 settings in 1 fits → results/sweeps/small", "warning: a node is slow",
            "search 2/3 fits, 1.0 per minute, 1:00 left", "bpr, small on synthetic, seed 0: running for 2:00",
        ]  # fmt: skip
        assert picture.startswith("<svg") and "best ndcg@20 on valid" in picture
        progress.running.leave("a")
        failed = replace(record, status="failed", error="no memory")
        progress.add([failed], 1.0, "ndcg@20", cached=False)
        view.done(small, [failed])
    assert view.content()[0][2:] == [
        "failed: no memory (bpr, small on synthetic)", "search 3/3 fits, 1 failed, 1.5 per minute"
    ]  # fmt: skip


def test_the_state_of_a_sweep_has_its_running_fits(environment, tmp_path):
    heartbeat = Heartbeat(SweepStore(tmp_path))  # not entered: its thread would write over what this test writes
    heartbeat.progress = Progress("search", 5, 5.0)
    heartbeat.progress.running.start("a", unit(environment, epochs=50))
    heartbeat._write()
    (fit,) = last_heartbeat(tmp_path)["progress"]["running"]
    assert fit == {"title": "bpr, small on synthetic, seed 0", "done": 0, "of": 50, "counted": "epochs"}
