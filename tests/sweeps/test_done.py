"""What --resume still runs: plans of a sweep of which some records exist, compared with counts by hand."""

import dataclasses
import json
import os
import time
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from rankbench.cluster.machine import Machine
from rankbench.core.errors import ConfigError
from rankbench.experiment.run import run
from rankbench.schema.experiment import experiment_of_words
from rankbench.sweeps import heartbeat, reuse, sweep
from rankbench.sweeps.comparisons import compare_finals
from rankbench.sweeps.dry_run import dry_run
from rankbench.sweeps.heartbeat import Heartbeat, last_heartbeat
from rankbench.sweeps.options import SweepOptions
from rankbench.sweeps.plan import plan
from rankbench.sweeps.request import SweepRequest
from rankbench.sweeps.sweep import Listener, choose, final_settings, folder_to_resume, open_sweep, run_sweep
from rankbench.tracking.environment import describe_environment
from rankbench.tracking.record import read_records, write_record

DATA = {"name": "synthetic", "source": {"generator": {"users": 60, "items": 30, "interactions_per_user": 8}}}


def spec_of(**changes):
    values = {"datasets": [DATA], "search.choose.metric": "ndcg@20", "search.ranges": "none", **changes}
    return experiment_of_words(["synthetic"], ["ease", "popularity"], values, "here")


def finish(unit, folder):
    for outcome in run(unit.job, finish.environment):
        write_record(folder / "records", outcome.record, outcome.per_user)


@pytest.fixture(autouse=True)
def begun(environment):
    finish.environment = environment


def rest(planned, environment, folder):
    preview = dry_run(planned, environment, [Machine(1, 4 << 30)], folder)
    return {stage.name: stage.fits for stage in preview.stages}, preview.finished, preview.records


def test_only_what_is_left_is_planned(environment):
    planned = plan(spec_of(**{"arms": [], "params": {"lam": {"grid": [1, 10, 100]}}}), environment, 1, "here")
    folder = open_sweep(planned.spec, planned, environment).folder
    assert folder_to_resume(planned, environment) == folder
    whole = {stage.name: stage.fits for stage in dry_run(planned, environment, [Machine(1, 4 << 30)]).stages}
    assert whole == {"search": 4, "final": 2}
    assert rest(planned, environment, folder) == (whole, 0, 6)
    for number, unit in enumerate(planned.search, start=1):
        finish(unit, folder)
        stages, finished, records = rest(planned, environment, folder)
        assert stages.get("search", 0) == 4 - number and finished == number and records == 6 - number
    # The search is complete: the final stage now has the settings that it chose.
    best = choose(read_records(folder / "records"), planned.spec)
    chosen = final_settings(best, planned.cards[0], planned.spec)
    job = dataclasses.replace(
        planned.search[0].job, configs=(chosen[0],), fit_on="train+valid", measure_on="test", stage="final"
    )
    for outcome in run(job, environment):
        write_record(folder / "records", outcome.record, outcome.per_user)
    assert rest(planned, environment, folder)[0] == {"final": 1}
    job = dataclasses.replace(job, configs=(chosen[1],))
    for outcome in run(job, environment):
        write_record(folder / "records", outcome.record, outcome.per_user)
    assert rest(planned, environment, folder) == ({}, 6, 0)


def test_a_sweep_does_not_go_on_with_other_data(environment, tmp_path):
    def write(n_users):
        lines = [f"u{user},i{(user * step) % 31}" for user in range(n_users) for step in range(1, 12)]
        (tmp_path / "shop.csv").write_text("\n".join(["user,item", *lines]))

    write(40)
    (tmp_path / "shop.yaml").write_text("name: shop\nsource: {files: {all: {file: shop.csv}}}\nprepare: [{duplicates: first}]")
    spec = experiment_of_words(
        [str(tmp_path / "shop.yaml")], ["ease"], {"search.choose.metric": "ndcg@10", "cutoffs": [10]}, "here"
    )
    planned = plan(spec, environment, 1, "here")
    folder = open_sweep(planned.spec, planned, environment).folder
    finish(planned.search[0], folder)
    assert folder_to_resume(planned, environment) == folder
    write(41)
    with pytest.raises(ConfigError, match=r"--resume: the data of shop have changed since sweep-.*; run it without --resume"):
        folder_to_resume(plan(spec, environment, 1, "here"), environment)


def test_draws_that_have_a_result_are_not_planned_again(environment):
    changes = {"search.by": "tpe", "search.trials": 5, "params": {"lam": {"loguniform": [1, 100]}}}
    planned = plan(spec_of(**changes), environment, 1, "here")
    folder = open_sweep(planned.spec, planned, environment).folder
    (search,) = planned.adaptive
    drawn = [{"lam": 3.0}, {"lam": 30.0}]
    lines = [{"search": "synthetic/ease", "lag": 1}]
    lines += [{"search": "synthetic/ease", "draw": number, "params": params} for number, params in enumerate(drawn)]
    text = "".join(json.dumps(line) + "\n" for line in lines) + '{"search": "synth'  # killed as it wrote
    (folder / "draws.jsonl").write_text(text, encoding="utf-8")
    finish(search.unit(drawn[0]), folder)
    stages, finished, _ = rest(planned, environment, folder)
    assert stages["search"] == 4 + 1 and finished == 1  # the second draw has no result yet; popularity is one more
    assert (folder / "draws.jsonl").read_text(encoding="utf-8") == text  # a dry run changes nothing


def test_what_runs_is_resumed_only_to_take_it_over(environment):
    planned = plan(spec_of(), environment, 1, "here")
    store = open_sweep(planned.spec, planned, environment)
    with Heartbeat(store), pytest.raises(ConfigError, match=rf"--resume: process {os.getpid()} on"):
        run_sweep(SweepRequest(spec_of(), "here", environment, SweepOptions(resume=True)))
    assert [path.name for path in (store.folder / "attempts" / "sweep").iterdir()] == ["000001"]


def test_the_statistics_are_planned_and_run_under_the_heartbeat(environment, monkeypatch):
    def run_units(units, environment, store, *rest):
        for unit in units:
            finish(unit, store.folder)
        return [each for each in read_records(store.records) if each.stage == units[0].job.stage]

    monkeypatch.setattr("rankbench.sweeps.run_units.run_units", run_units)
    monkeypatch.setattr("rankbench.cluster.session.session", lambda *_, **__: nullcontext(SimpleNamespace(cpus=1)))
    spec = spec_of()
    states = {}

    def seen(state, folder):
        """Wait for a heartbeat in this state, as another process would read it."""
        while (last_heartbeat(folder) or {"progress": {"stage": "none"}}).get("progress", {}).get("stage") != state:
            time.sleep(0.01)
        states[state] = True

    monkeypatch.setattr(heartbeat, "EVERY", 0.01)
    monkeypatch.setattr(
        sweep, "compare_finals", lambda *given: (seen("statistics", given[1].parent), compare_finals(*given))[1]
    )
    planned = plan(spec, environment, 1, "here")
    statistics = dry_run(planned, environment, [Machine(1, 4 << 30)]).statistics
    assert (statistics.comparisons, statistics.pairs, statistics.tested) == (2, 2, 2) and statistics.seconds > 0
    stages = []
    listener = Listener(
        stage=lambda progress: stages.append((progress.stage, progress)), finished=lambda folder: seen(None, folder)
    )
    folder, _ = run_sweep(SweepRequest(spec, "here", environment), listener)
    assert [*states] == ["statistics", None] and last_heartbeat(folder) is None
    assert [name for name, _ in stages] == ["search", "final", "statistics"]
    progress = stages[-1][1]
    assert (progress.done, progress.of, progress.counted) == (2, 2, "comparisons") and progress.cost == pytest.approx(1.0)


def test_which_pairs_are_tested_is_no_other_sweep(environment):
    keys = {plan(spec_of(**changes), environment, 1, "here").key for changes in ({}, {"final.pairs": "all"})}
    assert len(keys) == 1


def test_what_an_earlier_sweep_has_finished_is_in_no_plan(environment, monkeypatch):
    code = describe_environment() | {"revision": "abc"}  # of a tree without changes, from which runs are reused
    monkeypatch.setattr(reuse, "describe_environment", lambda: code)
    earlier = plan(spec_of(), environment, 1, "here")
    folder = open_sweep(earlier.spec, earlier, environment).folder
    finish(earlier.search[0], folder)
    planned = plan(spec_of(**{"final.seeds": [0, 1]}), environment, 1, "here")
    assert rest(planned, environment, None) == ({"search": 1, "final": 2}, 1, 3)
    finish(earlier.search[1], folder)
    # The search is known as a whole, and the settings that it chooses have no final runs yet.
    assert rest(planned, environment, None) == ({"final": 2}, 2, 2)
    assert dry_run(planned, environment, [Machine(1, 4 << 30)], fresh=True).finished == 0


def test_nothing_to_resume_is_one_line(environment):
    with pytest.raises(ConfigError, match="nothing to resume"):
        folder_to_resume(plan(spec_of(), environment, 1, "here"), environment)
