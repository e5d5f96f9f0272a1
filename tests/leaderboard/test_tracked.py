"""Entries of a leaderboard as runs of a real MLflow store: each once, whatever was delivered before."""

from dataclasses import replace
from functools import partial

import pytest
from mlflow.tracking import MlflowClient

from rankbench.core.palette import colour_of_name
from rankbench.data.cards import load_card
from rankbench.evaluation.metrics import metric_set
from rankbench.experiment.outcome import base_record
from rankbench.leaderboard.entrants import entrants
from rankbench.leaderboard.entry import EntryJob, Rules
from rankbench.leaderboard.results import Result
from rankbench.leaderboard.tracked import EXPERIMENT, describe, follow, send
from rankbench.sweeps.units import Unit
from rankbench.tracking import live_fits
from rankbench.tracking.labels import Labels
from rankbench.tracking.mlflow_internals import VIEW
from rankbench.tracking.mlflow_sink import MlflowSink
from rankbench.tracking.record import DatasetInfo
from rankbench.tracking.store import make_tables

from ..tracking.stores import deliver_here
from ..tracking.test_saved_views import state_of

FOUND = Result(
    dataset="lastfm", card="card", entrant="sl", rules="rules", allowed="10s", budget=10.0, metric="ndcg@20", fingerprint="f",
    method="sl",
    params={"tau": 0.1, "form": "single"}, metrics={"ndcg@20": (0.2, 0.1, 0.3), "coverage@20": (0.5, None, None)},
    valid=0.25, tried=7, ended="settled", default={"ndcg@20": 0.1}, seconds={"all": 9.5, "fit": 6.0}, peak_memory_gb=0.7,
    started_at="2026-11-23T16:00:00+00:00",
)  # fmt: skip
CURVE = [{"iteration": n, "seconds": n / 2, "valid": 0.25 + n / 64} for n in (1, 4, 9)]
LOST = replace(
    FOUND,
    entrant="dgcf",
    status="over budget",
    reason="too slow",
    metrics={},
    valid=None,
    params={},
    seconds={},
    tried=0,
    default={},
)


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Sends entries, and returns the runs that MLflow has afterwards by their names."""
    monkeypatch.setattr(MlflowSink, "open", lambda sink: True)  # what its process does is done here
    uri, warnings = f"sqlite:///{tmp_path}/mlflow.db", []
    make_tables(uri, tmp_path / "artifacts")

    def sent(*results, before=lambda sink: None):
        sink = MlflowSink(uri, EXPERIMENT, tmp_path / "artifacts", warnings.append, labels=Labels(tags={"who": "me"}))
        sink.open()
        describe(sink)
        before(sink)
        for result in results:
            send(sink, result, CURVE)
        deliver_here(tmp_path)
        sink.close()
        assert not warnings
        client = MlflowClient(uri)
        found = client.search_runs([client.get_experiment_by_name(EXPERIMENT).experiment_id])
        assert len({run.info.run_name for run in found}) == len(found)
        return {run.info.run_name: run for run in found}

    return sent


def test_an_entry_is_a_run_with_its_setting_and_values(runs):
    found = runs(FOUND, LOST)
    run, lost = found["lastfm sl 10s"], found["lastfm dgcf 10s"]
    assert run.info.status == "FINISHED" and run.info.end_time - run.info.start_time == 9500
    assert run.data.params == {"dataset": "lastfm", "method": "sl", "budget": "10s", "tau": "0.1", "form": "single"}
    assert run.data.metrics == {
        "curve/seconds": 4.5, "curve/valid": 0.390625,
        "test/ndcg_at_20": 0.2, "test/coverage_at_20": 0.5, "valid/ndcg_at_20": 0.25, "seconds/all": 9.5, "seconds/fit": 6.0,
        "peak_memory_gb": 0.7, "settings_tried": 7.0, "default/ndcg_at_20": 0.1,
    }  # fmt: skip
    assert run.data.tags["who"] == "me" and run.data.tags["rankbench.fingerprint"] == "f"
    assert run.data.tags["mlflow.runColor"] == colour_of_name("sl")
    assert lost.info.status == "FAILED" and lost.data.tags["rankbench.error"] == "over budget: too slow"
    assert lost.info.end_time - lost.info.start_time == 10_000


def test_the_view_of_the_experiment_finds_its_entries_and_a_users_description_stays(runs, tmp_path):
    runs(FOUND)
    client = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    about = client.get_experiment_by_name(EXPERIMENT)
    (view,) = [state_of(value) for name, value in about.tags.items() if name == f"{VIEW}leaderboard"]
    (entry,) = client.search_runs([about.experiment_id], view["searchFilter"])
    assert entry.info.run_name == "lastfm sl 10s"
    plots = [each["selectedParams"] for each in view["compareRunCharts"] if each["type"] == "PARALLEL"]
    assert plots == [["dataset", "method"]] and {*plots[0]} <= {*entry.data.params}
    assert about.tags["mlflow.experiment.primaryMetric.name"] == "test/ndcg_at_20"
    assert about.tags["mlflow.note.content"].startswith("Which method is best on each dataset")
    client.set_experiment_tag(about.experiment_id, "mlflow.note.content", "mine")
    runs(LOST)
    assert client.get_experiment_by_name(EXPERIMENT).tags["mlflow.note.content"] == "mine"


@pytest.fixture
def followed(environment, monkeypatch):
    """followed(live, started_at) → what follows an entry until its run, live["run"], has a point."""
    for name in ("BEGIN", "YOUNG", "EVERY"):
        monkeypatch.setattr(live_fits, name, 0.0)
    rules = Rules("ndcg@20", metric_set(("ndcg",), (20,)))
    job = EntryJob.of(entrants("ndcg@20")["sl"], load_card("synthetic", environment), 10.0, rules)

    def until_a_point(live, started_at, sink):
        record = base_record(job, job.configs[0], DatasetInfo("synthetic", "f"), started_at)
        follow(sink, Unit(job, 1, 1, 1.0), record)(CURVE[:2])
        client = MlflowClient(sink.uri)
        while "run" not in live or "curve/valid" not in live["run"].data.metrics:
            deliver_here(sink.artifacts.parent)
            experiment = client.get_experiment_by_name(EXPERIMENT)
            found = client.search_runs([experiment.experiment_id]) if experiment else []
            live.update(zip(("run",), found, strict=False))

    return lambda live, started_at: partial(until_a_point, live, started_at)


@pytest.mark.parametrize("changes", [{}, {"status": "failed", "reason": "no memory", "metrics": {}, "valid": None}])
def test_an_entry_that_was_followed_is_the_run_that_its_result_completes(runs, followed, changes):
    live = {}
    (run,) = runs(replace(FOUND, dataset="synthetic", **changes), before=followed(live, FOUND.started_at)).values()
    assert (live["run"].info.status, live["run"].data.metrics["curve/valid"]) == ("RUNNING", 0.3125)
    assert run.info.run_id == live["run"].info.run_id and "rankbench.live" not in run.data.tags
    assert (run.info.status, run.data.metrics["curve/valid"]) == ("FAILED" if changes else "FINISHED", 0.390625)
    assert run.data.tags["rankbench.status"] == changes.get("status", "finished")


def test_an_interrupted_attempt_leaves_no_run_beside_that_of_a_later_one(runs, followed, tmp_path):
    live = {}
    with MlflowSink(f"sqlite:///{tmp_path}/mlflow.db", EXPERIMENT, tmp_path / "artifacts") as interrupted:
        followed(live, "2026-01-01T00:00:00+00:00")(interrupted)
    (run,) = runs(replace(FOUND, dataset="synthetic")).values()
    assert run.info.status == "FINISHED" and run.info.run_id != live["run"].info.run_id
