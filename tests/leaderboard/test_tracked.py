"""Entries of a leaderboard as runs of a real MLflow store: each once, whatever was delivered before."""

from dataclasses import replace

import pytest
from mlflow.tracking import MlflowClient

from rankbench.core.palette import colour_of_name
from rankbench.leaderboard.results import Result
from rankbench.leaderboard.tracked import EXPERIMENT, describe, send
from rankbench.tracking.labels import Labels
from rankbench.tracking.mlflow_internals import VIEW
from rankbench.tracking.mlflow_sink import MlflowSink

from ..tracking.test_saved_views import state_of

FOUND = Result(
    dataset="lastfm", card="card", entrant="sl", rules="rules", allowed="10s", budget=10.0, metric="ndcg@20", fingerprint="f",
    method="sl",
    params={"tau": 0.1, "form": "single"}, metrics={"ndcg@20": (0.2, 0.1, 0.3), "coverage@20": (0.5, None, None)},
    valid=0.25, tried=7, seeds=(0, 1), seconds={"all": 9.5, "search": 6.0}, peak_memory_gb=0.7,
    started_at="2026-11-23T16:00:00+00:00",
)  # fmt: skip
LOST = replace(
    FOUND, entrant="dgcf", status="over budget", reason="too slow", metrics={}, valid=None, params={}, seconds={}, tried=0
)


@pytest.fixture
def runs(tmp_path):
    """Sends entries, and returns the runs that MLflow has afterwards by their names."""
    uri, warnings = f"sqlite:///{tmp_path}/mlflow.db", []

    def sent(*results):
        sink = MlflowSink(uri, EXPERIMENT, tmp_path / "mlartifacts", warnings.append, labels=Labels(tags={"who": "me"}))
        sink.open()
        describe(sink)
        for result in results:
            send(sink, result)
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
        "test/ndcg_at_20": 0.2, "test/coverage_at_20": 0.5, "valid/ndcg_at_20": 0.25, "seconds/all": 9.5, "seconds/search": 6.0,
        "peak_memory_gb": 0.7, "settings_tried": 7.0,
    }  # fmt: skip
    assert run.data.tags["who"] == "me" and run.data.tags["rankbench.fingerprint"] == "f"
    assert run.data.tags["mlflow.runColor"] == colour_of_name("sl")
    assert lost.info.status == "FAILED" and lost.data.tags["rankbench.error"] == "over budget: too slow"
    assert lost.data.metrics == {} and lost.info.end_time - lost.info.start_time == 10_000


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
