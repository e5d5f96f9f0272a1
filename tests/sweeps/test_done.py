"""What --resume still runs: plans of a sweep of which some records exist, compared with counts by hand."""

import dataclasses
import json
import os
import time

import pytest

from rankbench.cluster.machine import Machine
from rankbench.core.errors import ConfigError
from rankbench.experiment.run import run
from rankbench.sweeps import comparisons, heartbeat
from rankbench.sweeps.comparisons import compare_finals
from rankbench.sweeps.dry_run import dry_run
from rankbench.sweeps.heartbeat import Heartbeat, last_heartbeat
from rankbench.sweeps.options import SweepOptions
from rankbench.sweeps.request import SweepRequest
from rankbench.sweeps.resume import folder_to_resume
from rankbench.sweeps.sweep import Listener, choose, final_settings, open_sweep, run_sweep
from rankbench.tracking.record import read_records, write_record

from .planned import plan_of, spec_of

ARMS = {"method": "ease"}, {"method": "popularity"}


def planned_of(environment, *arms, **more):
    return plan_of(environment, *(arms or ARMS), cpus=1, **more)


def opened(planned, environment):
    return open_sweep(planned, environment)


def finish(job, folder, environment):
    for outcome in run(job, environment):
        write_record(folder / "records", outcome.record, outcome.per_user)


def rest(planned, environment, folder):
    preview = dry_run(planned, environment, [Machine(1, 4 << 30)], folder)
    return {stage.name: stage.fits for stage in preview.stages}, preview.finished, preview.records


def test_only_what_is_left_is_planned(environment):
    planned = planned_of(environment, {"method": "ease", "params": {"lam": {"grid": [1, 10, 100]}}}, {"method": "popularity"})
    with pytest.raises(ConfigError, match="nothing to resume"):
        folder_to_resume(planned, environment)
    folder = opened(planned, environment).folder
    assert folder_to_resume(planned, environment) == folder
    whole = {stage.name: stage.fits for stage in dry_run(planned, environment, [Machine(1, 4 << 30)]).stages}
    assert whole == {"search": 4, "final": 2}
    assert rest(planned, environment, folder) == (whole, 0, 6)
    for number, unit in enumerate(planned.search, start=1):
        finish(unit.job, folder, environment)
        stages, finished, records = rest(planned, environment, folder)
        assert stages.get("search", 0) == 4 - number and finished == number and records == 6 - number
    # The search is complete: the final stage now has the settings that it chose.
    best = choose(read_records(folder / "records"), planned.spec)
    chosen = final_settings(best, planned.cards[0], planned.spec)
    job = dataclasses.replace(
        planned.search[0].job, configs=(chosen[0],), fit_on="train+valid", measure_on="test", stage="final"
    )
    finish(job, folder, environment)
    assert rest(planned, environment, folder)[0] == {"final": 1}
    job = dataclasses.replace(job, configs=(chosen[1],))
    finish(job, folder, environment)
    assert rest(planned, environment, folder) == ({}, 6, 0)


def test_a_sweep_does_not_go_on_with_other_data(environment, tmp_path):
    def write(n_users):
        lines = [f"u{user},i{(user * step) % 31}" for user in range(n_users) for step in range(1, 12)]
        (tmp_path / "shop.csv").write_text("\n".join(["user,item", *lines]))

    write(40)
    (tmp_path / "shop.yaml").write_text("name: shop\nsource: {files: {all: {file: shop.csv}}}\nprepare: [{duplicates: first}]")
    more = {"datasets": [str(tmp_path / "shop.yaml")], "search": {"choose": {"metric": "ndcg@10"}}, "cutoffs": [10]}
    planned = planned_of(environment, {"method": "ease"}, **more)
    folder = opened(planned, environment).folder
    finish(planned.search[0].job, folder, environment)
    assert folder_to_resume(planned, environment) == folder
    write(41)
    with pytest.raises(ConfigError, match=r"--resume: the data of shop have changed since test-.*; run it without --resume"):
        folder_to_resume(planned_of(environment, {"method": "ease"}, **more), environment)


def test_draws_that_have_a_result_are_not_planned_again(environment):
    arm = {"method": "ease", "params": {"lam": {"loguniform": [1, 100]}}}
    planned = planned_of(environment, arm, {"method": "popularity"}, search={"by": "tpe", "trials": 5})
    folder = opened(planned, environment).folder
    (search,) = planned.adaptive
    drawn = [{"lam": 3.0}, {"lam": 30.0}]
    lines = [{"search": "synthetic/ease", "lag": 1}]
    lines += [{"search": "synthetic/ease", "draw": number, "params": params} for number, params in enumerate(drawn)]
    text = "".join(json.dumps(line) + "\n" for line in lines) + '{"search": "synth'  # killed as it wrote
    (folder / "draws.jsonl").write_text(text, encoding="utf-8")
    finish(search.unit(drawn[0]).job, folder, environment)
    stages, finished, _ = rest(planned, environment, folder)
    assert stages["search"] == 4 + 1 and finished == 1  # the second draw has no result yet; popularity is one more
    assert (folder / "draws.jsonl").read_text(encoding="utf-8") == text  # a dry run changes nothing


def test_draws_of_the_registry_that_do_not_fit_together_are_done(environment):
    arm = {"method": "bce", "params": {"model": "neumf"}, "ranges": "registry"}
    planned = planned_of(environment, arm, search={"by": "tpe", "trials": 5})
    folder = opened(planned, environment).folder
    draws = [{"network": "he", "gmf_dim": 64}, {"network": "ngcf", "gmf_dim": 64}]  # of 64 dimensions, he needs some for others
    lines = [{"search": "synthetic/bce", "draw": number, "params": params} for number, params in enumerate(draws)]
    (folder / "draws.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    stages, finished, _ = rest(planned, environment, folder)
    assert (stages["search"], finished) == (4, 1)  # the defaults, and three of the four draws


def test_what_runs_is_resumed_only_to_take_it_over(environment):
    planned = planned_of(environment)
    store = opened(planned, environment)
    with Heartbeat(store):
        while last_heartbeat(store.folder) is None:
            time.sleep(0.01)
        with pytest.raises(ConfigError, match=rf"--resume: process {os.getpid()} on"):
            run_sweep(SweepRequest(spec_of(*ARMS), "here", environment, SweepOptions(resume=True)))
    assert [path.name for path in (store.folder / "attempts" / "sweep").iterdir()] == ["000001"]


def test_the_statistics_are_planned_and_run_under_the_heartbeat(environment, monkeypatch, at_once):
    spec, states = spec_of(*ARMS), {}

    def seen(state, folder):
        """Wait for a heartbeat in this state, as another process would read it."""
        while (last_heartbeat(folder) or {"progress": {"stage": "none"}}).get("progress", {}).get("stage") != state:
            time.sleep(0.01)
        states[state] = True

    monkeypatch.setattr(heartbeat, "EVERY", 0.01)
    monkeypatch.setattr(
        comparisons, "compare_finals", lambda *given: (seen("statistics", given[1].parent), compare_finals(*given))[1]
    )
    planned = planned_of(environment)
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
    keys = {planned_of(environment, final={"pairs": pairs}).key for pairs in ("best", "all")}
    assert len(keys) == 1


def test_what_is_said_of_a_row_makes_no_other_sweep(environment):
    arm = {"method": "ease", "name": "EASE"}
    about = {"account": "Why.", "cause": "steps", "after_test": True, "protocol": {"lam": 3}}
    said = plan_of(environment, arm | about, protocol={"trials": 9})
    assert said.key == plan_of(environment, arm).key != plan_of(environment, arm | {"params": {"lam": 3}}).key


def test_what_an_earlier_sweep_has_finished_is_in_no_plan(environment):
    earlier = planned_of(environment)
    folder = opened(earlier, environment).folder
    finish(earlier.search[0].job, folder, environment)
    planned = planned_of(environment, final={"seeds": [0, 1]})
    assert rest(planned, environment, None) == ({"search": 1, "final": 2}, 1, 3)
    stored = folder / "records" / earlier.search[0].run_id / "record.json"
    text = stored.read_text(encoding="utf-8")
    record = json.loads(text)
    record["dataset"]["sources"] = [{"sha256": "0"}]  # other files, in which users may have other names
    stored.write_text(json.dumps(record), encoding="utf-8")
    assert rest(planned, environment, None) == ({"search": 2, "final": 2}, 0, 4)
    record = json.loads(text)
    record["dataset"]["stand_in"] = "for other data"  # which the card no longer says
    stored.write_text(json.dumps(record), encoding="utf-8")
    assert rest(planned, environment, None) == ({"search": 2, "final": 2}, 0, 4)
    stored.write_text(text, encoding="utf-8")
    elsewhere = planned_of(environment, resources={"device": "cuda"})  # its seconds would be those of processors
    assert rest(elsewhere, environment, None) == ({"search": 2, "final": 2}, 0, 4)
    finish(earlier.search[1].job, folder, environment)
    # The search is known as a whole, and the settings that it chooses have no final runs yet.
    assert rest(planned, environment, None) == ({"final": 2}, 2, 2)
    assert dry_run(planned, environment, [Machine(1, 4 << 30)], fresh=True).finished == 0


def test_trials_that_a_scheduler_may_end_are_fitted_again_because_they_depend_on_one_another(environment):
    arms = {"method": "bpr", "params": {"epochs": 2, "patience": 2, "n_negatives": {"grid": [1, 2]}}}, {"method": "ease"}
    earlier = planned_of(environment, *arms)
    folder = opened(earlier, environment).folder
    for unit in earlier.search:
        finish(unit.job, folder, environment)
    for search, reused in (({}, 3), ({"scheduler": "asha", "grace": 1}, 1)):
        assert rest(planned_of(environment, *arms, search=search, final={"seeds": [5]}), environment, None)[1] == reused


def test_the_memory_that_the_largest_fit_lacks_is_that_of_the_largest_machine(environment):
    planned = planned_of(environment)
    lacks = [dry_run(planned, environment, [Machine(1, 500), Machine(1, memory)]).short for memory in (1000, 3000, 4 << 30)]
    assert lacks[0] - lacks[1] == 2000 and lacks[1] > 0 and lacks[2] == 0
