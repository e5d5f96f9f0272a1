"""The MLflow view: parents and children in a real SQLite store, sent once, and never fatal."""

import dataclasses

import pytest
from mlflow.tracking import MlflowClient

from rankbench.tracking.mlflow_sink import MlflowSink, metric_key
from rankbench.tracking.record import write_record

from .test_record import RECORD


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """One store for the module: making its tables takes seconds."""
    return tmp_path_factory.mktemp("store")


def sink_on(store, experiment, lines=None):
    warn = (lines if lines is not None else []).append
    return MlflowSink(f"sqlite:///{store}/mlflow.db", experiment, store / "artifacts", warn)


def runs_of(store, experiment):
    client = MlflowClient(f"sqlite:///{store}/mlflow.db")
    return client, client.search_runs([client.get_experiment_by_name(experiment).experiment_id])


def test_a_sweep_is_a_parent_with_a_child_a_record(store, tmp_path):
    lines = []
    sink = sink_on(store, "nested", lines)
    assert sink.open()
    sink.start_sweep("sweep-1", {"fits": 2}, {})
    failed = dataclasses.replace(RECORD, id="run-x-ease-1", status="failed", error="row 3 is not finite", metrics={})
    for record in (RECORD, failed):
        sink.send(record, write_record(tmp_path, record, None))
    sink.finish_sweep({"test/ndcg_at_20": 0.25}, [], ok=False)
    client, runs = runs_of(store, "nested")
    parent = next(run for run in runs if "rankbench.sweep" in run.data.tags)
    children = {run.data.tags["rankbench.run"]: run for run in runs if run is not parent}
    assert lines == []
    assert parent.info.status == "FAILED" and parent.data.params["fits"] == "2"
    assert all(run.data.tags["mlflow.parentRunId"] == parent.info.run_id for run in children.values())
    good, bad = children[RECORD.id], children[failed.id]
    assert good.data.metrics["test/ndcg_at_20"] == 0.25 and good.data.params["lam"] == "3.0"
    assert good.info.status == "FINISHED"
    assert bad.info.status == "FAILED" and bad.data.tags["rankbench.error"] == "row 3 is not finite"
    assert [file.path for file in client.list_artifacts(good.info.run_id)] == ["record.json"]


def test_a_second_sending_changes_nothing(store, tmp_path):
    folder = write_record(tmp_path, RECORD, None)
    for _ in range(2):
        sink = sink_on(store, "again")
        sink.open()
        sink.start_sweep("sweep-1", {}, {})
        sink.send(RECORD, folder)
        sink.finish_sweep({}, [], ok=True)
    _, runs = runs_of(store, "again")
    assert len(runs) == 2


def test_a_store_that_cannot_be_reached_warns_once_and_goes_on(tmp_path):
    lines = []
    (tmp_path / "file").write_text("")
    sink = MlflowSink(f"sqlite:///{tmp_path}/file/mlflow.db", "x", tmp_path / "artifacts", lines.append)
    assert not sink.open()
    sink.start_sweep("sweep-1", {}, {})
    sink.send(RECORD, tmp_path)
    sink.finish_sweep({}, [], ok=True)
    assert len(lines) == 1 and "results are complete on disk" in lines[0]


def test_metric_names_are_ones_that_mlflow_takes():
    assert metric_key("test", "recall_capped@20") == "test/recall_capped_at_20"
    assert metric_key("final/x/DEQL(L2), a+b", "ndcg@5") == "final/x/DEQL_L2__ a_b/ndcg_at_5"
