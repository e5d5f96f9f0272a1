"""The shapes of runs, read back through MLflow's own client from a real store."""

import dataclasses
import getpass
import json
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient

from rankbench.tracking.labels import Labels
from rankbench.tracking.mlflow_internals import VIEW
from rankbench.tracking.mlflow_runs import MlflowRuns
from rankbench.tracking.record import DatasetInfo, Measured, write_record
from rankbench.tracking.run_fields import run_name
from rankbench.tracking.saved_views import sweep_views
from rankbench.tracking.spool import ArmMessage, RunMessage, Spool, SweepEnd, SweepStart
from rankbench.tracking.store import make_tables

from .test_record import RECORD
from .test_saved_views import state_of

DATA = DatasetInfo(
    "x", "f00d", "random-per-user", counts={"users": 9, "items": 5},
    sources=[{"part": "all", "file": "all.parquet", "origin": "mirror", "sha256": "0e"}],
)  # fmt: skip
MACHINE = {"system": "Linux", "cores": 2}
CURVE = [{"iteration": n, "seconds": 0.5 * n, "loss": 1 / n, "ndcg@20": 0.1 * n} for n in (1, 2, 3)]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store, its client, and the writer that the uploader uses."""
    root = tmp_path_factory.mktemp("shapes")
    uri = f"sqlite:///{root}/mlflow.db"
    make_tables(uri, root / "artifacts")
    client = MlflowClient(uri)
    return root, client, lambda: MlflowRuns(client, root, root / "artifacts")


def final(method, seed, value, **changes):
    metrics = {"recall@20": Measured(0.3), "ndcg@20": Measured(value)}
    params = {"tau": 0.1, "epochs": 3, "users_per_step": 480}
    return dataclasses.replace(
        RECORD, id=f"final-x-{method}-{seed}", method=method, arm=method, stage="final", seed=seed, params=params, dataset=DATA,
        metrics=metrics, curve=CURVE, seconds={"fit": 2.0}, started_at="2026-01-02T03:04:05+00:00",
        environment={"revision": "abc123+changes", "packages": {"numpy": "2.4.6", "ray": None}, "machine": MACHINE}, **changes,
    )  # fmt: skip


FINALS = [final(method, seed, value) for method, seed, value in (("sl", 0, 0.31), ("sl", 1, 0.32), ("bpr", 0, 0.28))]
SEARCHED = [
    dataclasses.replace(final("sl", 0, 0.2), id=f"search-x-sl-{n}", stage="search", measured_on="valid", fit_on="train",
                        params={"tau": 0.1 * n, "epochs": 3})
    for n in (1, 2)
]  # fmt: skip


def messages(root, experiment, sweep="sweep-1", labels=None, records=(*SEARCHED, *FINALS)):
    """The messages of a sweep, as the sink writes them."""
    labels = labels or Labels.from_env("experiments/x.yaml", environ={})
    place = {"experiment": labels.experiment or experiment, "experiment_id": labels.experiment_id, "parent": labels.parent}
    views = dict(view.tag(1) for view in sweep_views(sweep, sweep, "ndcg@20", ("ndcg@20",), [["tau"]], True))
    yield SweepStart(
        **place, time=1, sweep=sweep, params={"fits": "5"}, tags={"rankbench.question": "which?"} | labels.tags,
        name=labels.name, experiment_tags=views,
    )  # fmt: skip
    for record in records:
        folder = write_record(root / experiment, record, None)
        yield RunMessage(
            **place, time=2, record=str(folder.relative_to(root)), sweep=sweep, tags=labels.tags,
            name=run_name(record, ["tau"]), params=["tau", "epochs"], first="ndcg@20",
        )  # fmt: skip
    yield SweepEnd(**place, time=3, sweep=sweep, files=[], note="a table", ok=True)


def sent(store, experiment, **options):
    root, client, writer = store
    runs = writer()
    for message in messages(root, experiment, **options):
        runs.take(message)
    return client, client.get_experiment_by_name(experiment)


def new_experiment(store, name, **options):
    root, client, _ = store
    return client.create_experiment(name, artifact_location=(root / "artifacts" / name).as_uri(), **options)


def by_record(runs):
    return {run.data.tags["rankbench.run"]: run for run in runs if "rankbench.run" in run.data.tags}


@pytest.fixture(scope="module")
def flat(store):
    client, experiment = sent(store, "flat")
    return client, experiment, client.search_runs([experiment.experiment_id])


def test_final_runs_lie_beside_each_other_and_trials_below_their_sweep(flat):
    _, _, runs = flat
    (parent,) = [run for run in runs if "rankbench.sweep" in run.data.tags]
    children = by_record(runs)
    assert len(runs) == 6
    for record in FINALS:
        assert "mlflow.parentRunId" not in children[record.id].data.tags
        assert children[record.id].data.tags["rankbench.of_sweep"] == "sweep-1"
    for record in SEARCHED:
        assert children[record.id].data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert parent.data.metrics == {}


def test_one_metric_of_one_name_compares_the_losses(flat):
    client, experiment, _ = flat
    top = client.search_runs(
        [experiment.experiment_id], "metrics.`test/ndcg_at_20` > 0", order_by=["metrics.`test/ndcg_at_20` DESC"]
    )
    assert [(run.info.run_name, run.data.metrics["test/ndcg_at_20"]) for run in top] == [
        ("sl seed 1", 0.32), ("sl seed 0", 0.31), ("bpr seed 0", 0.28)
    ]  # fmt: skip
    names = {name for run in top for name in run.data.metrics}
    assert not [name for name in names if "sl" in name.split("/") or "bpr" in name]


def test_only_used_parameters_and_the_seeds_are_logged(flat):
    run = by_record(flat[2])["final-x-sl-1"]
    assert run.data.params == {
        "tau": "0.1", "epochs": "3", "method": "sl", "dataset": "x", "seed": "1", "split_seed": "0", "dtype": "float32"
    }  # fmt: skip


def test_user_source_and_revision_are_in_mlflows_own_fields(flat):
    tags = by_record(flat[2])["final-x-sl-1"].data.tags
    assert (tags["mlflow.user"], tags["mlflow.source.name"]) == (getpass.getuser(), "experiments/x.yaml")
    assert (tags["mlflow.source.git.commit"], tags["rankbench.uncommitted_changes"]) == ("abc123", "true")
    assert tags["rankbench.versions"] == "numpy 2.4.6" and tags["rankbench.machine"] == "system Linux, cores 2"


def test_the_data_are_inputs_with_their_fingerprint(flat):
    children = by_record(flat[2])

    def inputs(record):
        return [(each.dataset.name, each.dataset.digest, each.tags[0].key, each.tags[0].value)
                for each in children[record].inputs.dataset_inputs]  # fmt: skip

    key = "mlflow.data.context"
    assert sorted(inputs("final-x-sl-0")) == [
        ("x test", "f00d", key, "test"), ("x train", "f00d", key, "train"), ("x valid", "f00d", key, "train")
    ]  # fmt: skip
    assert sorted(inputs("search-x-sl-1")) == [("x train", "f00d", key, "train"), ("x valid", "f00d", key, "valid")]
    assert "all.parquet" in children["final-x-sl-0"].inputs.dataset_inputs[0].dataset.source


def test_the_experiment_is_one_of_training_with_views_that_find_its_runs(flat):
    client, experiment, _ = flat
    assert experiment.tags["mlflow.experimentKind"] == "custom_model_development"
    for view, records in (("seeds", FINALS), ("search", SEARCHED)):
        state = state_of(experiment.tags[f"{VIEW}sweep-1-{view}"])
        order = f"{state['orderByKey']} {'ASC' if state['orderByAsc'] else 'DESC'}"
        found = client.search_runs([experiment.experiment_id], state["searchFilter"], order_by=[order])
        assert set(by_record(found)) == {record.id for record in records}
        for column in state["selectedColumns"]:
            kind, _, name = column.partition(".")
            assert any(name.strip("`") in getattr(run.data, kind) or name == "`peak_memory_gb`" for run in found), column
    note = experiment.tags["mlflow.note.content"]
    assert (
        note.startswith("which?\n") and f"#/experiments/{experiment.experiment_id}/runs?viewStateShareKey=sweep-1-arms" in note
    )


def test_a_second_sweep_has_final_runs_of_its_own(store):
    for sweep in ("sweep-1", "sweep-2", "sweep-2"):
        client, experiment = sent(store, "twice", sweep=sweep)
    runs = client.search_runs([experiment.experiment_id])
    sweeps = [run.data.tags["rankbench.of_sweep"] for run in runs if "rankbench.of_sweep" in run.data.tags]
    assert sorted(sweeps) == ["sweep-1"] * 5 + ["sweep-2"] * 5 and len(runs) == 12
    for sweep in ("sweep-1", "sweep-2"):  # each has views of its own
        view = state_of(experiment.tags[f"{VIEW}{sweep}-seeds"])
        found = client.search_runs([experiment.experiment_id], view["searchFilter"])
        assert [run.data.tags["rankbench.of_sweep"] for run in found] == [sweep] * len(FINALS)


def arm_of(experiment, value, time=9, **changes):
    """What is sent of the arm sl when its sweep ends."""
    return ArmMessage(**({
        "experiment": experiment, "time": time, "id": "sweep-1 x sl", "sweep": "sweep-1", "name": "sl",
        "seeds": [record.id for record in FINALS if record.arm == "sl"],
        "tags": {"rankbench.stage": "arm", "rankbench.verdict": "best", "mlflow.runColor": "#d21e2d"},
        "params": {"method": "sl", "seed": "0, 1"}, "metrics": {"test/ndcg_at_20": value, "test/ndcg_at_20_low": value - 0.01},
        "curve": CURVE, "started": 1, "seconds": 2.0,
    } | changes))  # fmt: skip


def test_an_arm_is_a_run_above_its_seeds_and_a_resumed_sweep_replaces_it(store):
    root, client, writer = store
    _, experiment = sent(store, "arms")

    def take(*arms):
        for arm in arms:
            writer().take(arm)
        runs = client.search_runs([experiment.experiment_id])
        (arm,) = [run for run in runs if run.data.tags.get("rankbench.stage") == "arm"]
        below = {run.data.tags["rankbench.run"] for run in runs if run.data.tags.get("mlflow.parentRunId") == arm.info.run_id}
        assert below == {"final-x-sl-0", "final-x-sl-1"} and len(runs) == 7
        return arm

    # MLflow's filters cannot have the apostrophe of a label.
    odd = arm_of("odd", 0.3, id="sweep-1 x the authors' program", seeds=[])
    for _ in range(2):
        writer().take(odd)
    assert len(client.search_runs([client.get_experiment_by_name("odd").experiment_id])) == 1
    first = take(arm_of("arms", 0.315))
    assert (first.info.run_name, first.info.status, first.data.tags["rankbench.of_sweep"]) == ("sl", "FINISHED", "sweep-1")
    assert first.data.metrics["test/ndcg_at_20_low"] == pytest.approx(0.305)
    assert "mlflow.parentRunId" not in first.data.tags
    points = client.get_metric_history(first.info.run_id, "curve/ndcg_at_20")
    assert [(point.step, point.value) for point in points] == [(row["iteration"], row["ndcg@20"]) for row in CURVE]
    client.set_tag(first.info.run_id, "mine", "yes")
    again = take(arm_of("arms", 0.315, time=10), *messages(root, "arms"))  # the same, and all of the sweep, are sent again
    assert again.info.run_id == first.info.run_id and again.data.tags["mine"] == "yes"
    other = take(arm_of("arms", 0.325))
    assert other.info.run_id != first.info.run_id and other.data.metrics["test/ndcg_at_20"] == 0.325
    assert len(client.get_metric_history(other.info.run_id, "test/ndcg_at_20")) == 1
    # Written halfway by a process that was killed, it is completed.
    client.update_run(other.info.run_id, status="RUNNING")
    assert take(arm_of("arms", 0.325)).info.run_id == other.info.run_id
    failed = take(arm_of("arms", 0.0, metrics={}, curve=[], reason="no memory"))
    assert failed.info.status == "FAILED" and failed.data.tags["rankbench.error"] == "no memory"


def test_an_arm_is_below_the_run_that_the_user_chose(store):
    client = store[1]
    mine = new_experiment(store, "mine too")
    pipeline = client.create_run(mine).info.run_id
    sent(store, "mine too", labels=Labels(parent=pipeline))
    store[2]().take(arm_of("mine too", 0.3, parent=pipeline))
    sent(store, "mine too", labels=Labels(parent=pipeline))  # resumed: the seeds stay below their arm
    runs = client.search_runs([mine])
    (arm,) = [run for run in runs if run.data.tags.get("rankbench.stage") == "arm"]
    assert arm.data.tags["mlflow.parentRunId"] == pipeline and len(runs) == 8
    below = [run for run in runs if run.data.tags.get("mlflow.parentRunId") == arm.info.run_id]
    assert len(below) == 2


def test_runs_become_children_of_the_run_that_the_user_chose(store):
    client = store[1]
    mine = new_experiment(store, "mine", tags={"mlflow.experimentKind": "finetuning"})
    pipeline = client.create_run(mine).info.run_id
    environ = {"MLFLOW_RUN_ID": pipeline, "MLFLOW_EXPERIMENT_NAME": "elsewhere", "MLFLOW_RUN_CONTEXT": '{"team": "search"}'}
    labels = Labels.from_env("x.yaml", ["try=3"], "night", environ=environ)
    for _ in range(2):  # sent again, as by --resume
        sent(store, "nested", labels=labels)
    assert client.get_experiment_by_name("elsewhere") is None  # children are in the experiment of their parent
    runs = {run.info.run_id: run for run in client.search_runs([mine]) if run.info.run_id != pipeline}
    assert len(runs) == 6
    (sweep,) = [run for run in runs.values() if "rankbench.sweep" in run.data.tags]
    assert sweep.info.run_name == "night" and sweep.data.tags["mlflow.parentRunId"] == pipeline
    for run in by_record(runs.values()).values():
        above = sweep.info.run_id if run.data.tags["rankbench.stage"] == "search" else pipeline
        assert run.data.tags["mlflow.parentRunId"] == above
        assert (run.data.tags["team"], run.data.tags["try"]) == ("search", "3")
    assert client.get_experiment(mine).tags["mlflow.experimentKind"] == "finetuning"  # the user's own is kept


@pytest.mark.parametrize("labels", [Labels(parent="0" * 32), Labels(experiment_id="987654"), Labels(experiment_id="none")])
def test_a_parent_or_experiment_that_is_not_in_the_store_loses_nothing(store, labels):
    client, experiment = sent(store, f"orphans {labels.parent} {labels.experiment_id}", labels=labels)
    assert len(client.search_runs([experiment.experiment_id])) == 6


def test_an_experiment_is_chosen_by_name_or_by_id(store):
    client = store[1]
    chosen = new_experiment(store, "chosen-by-id")
    for labels, name in (
        (Labels(experiment="chosen by name"), "chosen by name"),
        (Labels(experiment_id=chosen), "chosen-by-id"),
    ):
        sent(store, "not this", labels=labels)
        experiment = client.get_experiment_by_name(name)
        assert len(client.search_runs([experiment.experiment_id])) == 6, name
    assert client.get_experiment_by_name("not this") is None
    assert client.get_experiment_by_name("chosen by name").tags["mlflow.experimentKind"] == "custom_model_development"


def test_final_runs_that_an_earlier_version_sent_are_not_sent_again(store):
    client = store[1]
    old = new_experiment(store, "old")
    parent = client.create_run(old, tags={"rankbench.sweep": "sweep-1"}).info.run_id
    for record in (*FINALS, *SEARCHED):
        tags = {"rankbench.run": record.id, "mlflow.parentRunId": parent}
        client.set_terminated(client.create_run(old, tags=tags).info.run_id, "FINISHED")
    sent(store, "old")
    assert len(client.search_runs([old])) == 6
    assert client.get_experiment(old).tags["mlflow.experimentKind"] == "custom_model_development"


@pytest.mark.parametrize("name", ["/Users/me/shop", "../../../escape", "..", "a/../../b"])
def test_artifacts_stay_in_their_folder_whatever_the_experiment_is_called(store, name):
    root, client, _ = store
    sent(store, "not this", labels=Labels(experiment=name))
    experiment = client.get_experiment_by_name(name)
    location = Path(experiment.artifact_location.removeprefix("file://"))
    assert (root / "artifacts").resolve() in location.resolve().parents
    assert len(client.search_runs([experiment.experiment_id])) == 6


def test_a_message_of_an_earlier_version_is_delivered(store):
    root, client, writer = store
    folder = write_record(root / "before", FINALS[0], None)
    old = {"experiment": "before", "time": 1, "record": str(folder), "sweep": None, "tags": {}, "named": ["tau"], "kind": "run"}
    (root / "spool").mkdir()
    (root / "spool" / "1.json").write_text(json.dumps(old))
    spool = Spool(root / "spool")
    writer().take(spool.read(spool.waiting()[0]))
    (run,) = client.search_runs([client.get_experiment_by_name("before").experiment_id])
    assert run.info.run_name == "sl seed 0" and run.data.params["users_per_step"] == "480"
