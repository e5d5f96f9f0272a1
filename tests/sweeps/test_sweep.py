"""A sweep as a user runs it: Ray Tune, records, MLflow, table; then resumed, interrupted, and with a failing method."""

import json
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from mlflow.tracking import MlflowClient

from rankbench.reports.figure import styles
from rankbench.schema.stored_sweep import read_sweep
from rankbench.sweeps.comparisons import comparisons
from rankbench.tracking.record import RunRecord, read_record

from .commands import output, records_of, start, wait_until

EXPERIMENT = """
name: small
datasets:
  - {name: synthetic, source: {generator: {users: 200, items: 80, interactions_per_user: 12}}}
arms:
  - {method: popularity}
  - {method: ease, params: {lam: {grid: [10, 100]}}}
  - {method: deql-l2, params: {p: 0.4, lam_prime: 50, b: {grid: [0.25, 0.5, 1.0]}}}
  - {method: deql-l2-zero-diag, params: {p: 0.4, lam_prime: 50, b: {grid: [0.25, 0.5]}}}
  # Without a ridge worth the name float32 breaks down: the sweep must say so and go on.
  - {name: broken, method: ease, params: {lam: 1.0e-12}}
search: {choose: {metric: ndcg@10, on: valid}}
cutoffs: [10]
resources: {cpus: 1, concurrent: 1}
"""
# Thirty histories cannot span eighty items: the Gram is singular, and only a ridge can save it.
BROKEN = "users: 200, items: 80", "users: 30, items: 80"


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """One finished sweep, with one arm that cannot work."""
    home = tmp_path_factory.mktemp("sweep")
    (home / "small.yaml").write_text(EXPERIMENT.replace(*BROKEN))
    out, err = output(start(home, "sweep", "small.yaml", "--json"), code=4)
    (folder,) = (home / "results" / "sweeps").iterdir()
    return home, folder, out, err


def records_in(folder: Path) -> list[RunRecord]:
    return list(records_of(folder).values())


def test_a_failed_arm_is_recorded_with_its_reason_and_the_rest_is_finished(swept):
    _, folder, _, err = swept
    assert "runs failed" in err.splitlines()[-1]
    assert "warning: broken on synthetic is not measured on test: 0 of 1 setting finished (" in err
    failed = [record for record in records_in(folder) if not record.finished]
    assert {record.arm for record in failed} == {"broken"}
    assert all("not positive definite" in record.error for record in failed)


def test_each_setting_has_a_search_record_and_each_arm_a_final_one(swept):
    _, folder, *_ = swept
    finished = [record for record in records_in(folder) if record.finished]
    search = [record for record in finished if record.stage == "search"]
    final = [record for record in finished if record.stage == "final"]
    # One b of zero-diag's two is planned.
    assert sorted(r.method for r in search) == ["deql-l2"] * 3 + ["deql-l2-zero-diag"] + ["ease"] * 2 + ["popularity"]
    assert all((r.fit_on, r.measured_on) == ("train", "valid") for r in search)
    assert all((r.fit_on, r.measured_on) == ("train+valid", "test") for r in final)
    assert sorted(r.arm for r in final) == ["deql-l2", "deql-l2-zero-diag", "ease", "popularity"]


def test_the_chosen_setting_is_the_best_on_validation(swept):
    _, folder, *_ = swept
    records = records_of(folder)
    for row in json.loads((folder / "chosen.json").read_text())["rows"]:
        rivals = [r for r in records.values() if r.stage == "search" and r.arm == row["arm"] and r.finished]
        assert records[row["search"]].metrics["ndcg@10"].mean == max(r.metrics["ndcg@10"].mean for r in rivals)
        assert [records[name].params for name in row["final"]] == [records[row["search"]].params]


def test_comparisons_are_kept_beside_the_choice(swept):
    _, folder, *_ = swept
    content = json.loads((folder / "comparisons.json").read_text())
    finals = {record.arm: record for record in records_in(folder) if record.finished and record.stage == "final"}
    assert content["metrics"] == ["recall@10", "ndcg@10"]
    for metric in content["metrics"]:
        means = {arm: record.metrics[metric].mean for arm, record in finals.items()}
        pairs = [pair for pair in content["comparisons"] if pair["metric"] == metric]
        best = pairs[0]["against"]
        assert means[best] == pytest.approx(max(means.values()), abs=1e-6)
        assert sorted(pair["model"] for pair in pairs) == sorted(set(finals) - {best})
        for pair in pairs:
            assert pair["difference"] == pytest.approx(means[pair["model"]] - means[best], abs=1e-6)
            assert pair["users"] == finals[best].users["measured"]
    stored = read_sweep(folder)
    assert comparisons(stored).content() == content
    (other,) = {pair.metric for pair in comparisons(stored, ("mrr@10",)).comparisons}
    assert other == "mrr@10"
    # A folder that lost the file is as good as before.
    assert comparisons(replace(stored, compared=None)) == comparisons(stored)


def test_settings_of_one_inverse_were_fitted_together(swept):
    _, folder, *_ = swept
    shared = [r for r in records_in(folder) if r.stage == "search" and r.method.startswith("deql")]
    assert {record.fit_shared_by for record in shared} == {4}


def test_the_table_is_on_stdout_as_json(swept):
    *_, out, _ = swept
    table = json.loads(out)
    assert table["exit_code"] == 4 and "runs failed" in table["error"]
    states = {row["model"]: row["state"] for row in table["rows"]}
    assert states == dict.fromkeys(["popularity", "ease", "deql-l2", "deql-l2-zero-diag"], "measured") | {"broken": "failed"}


def runs_in_mlflow(home):
    client = MlflowClient(f"sqlite:///{home}/results/mlflow.db")
    return client.search_runs([client.get_experiment_by_name("small").experiment_id], max_results=1000)


def with_arms(runs):
    """The run of the sweep, those of its arms by their names, and all others by the ids of their records."""
    (parent,) = [run for run in runs if "rankbench.sweep" in run.data.tags]
    arms = {run.data.tags["rankbench.arm"]: run for run in runs if run.data.tags.get("rankbench.stage") == "arm"}
    others = [run for run in runs if run is not parent and run not in arms.values()]
    children = {run.data.tags["rankbench.run"]: run for run in others}
    assert len(children) == len(others) and 1 + len(arms) + len(others) == len(runs)
    return parent, arms, children


def test_mlflow_shows_trials_below_the_sweep_and_final_runs_below_their_arms(swept):
    home, folder, *_ = swept
    parent, arms, children = with_arms(runs_in_mlflow(home))
    assert parent.data.tags["rankbench.sweep"] == folder.name
    records = records_of(folder)
    looks = styles(["popularity", "ease", "deql-l2", "deql-l2-zero-diag", "broken"])
    assert set(children) == set(records)
    for name, run in children.items():
        above = parent if records[name].stage == "search" else arms[records[name].arm]
        assert run.data.tags["mlflow.parentRunId"] == above.info.run_id
        assert run.data.tags["rankbench.of_sweep"] == folder.name
        assert run.data.tags["mlflow.runColor"] == looks[records[name].arm].colour
        assert run.info.status == ("FINISHED" if records[name].finished else "FAILED")
    client = MlflowClient(f"sqlite:///{home}/results/mlflow.db")
    files = {file.path for file in client.list_artifacts(parent.info.run_id, "report")}
    assert {"report/report.md", "report/final.png", "report/search.png"} <= files


def test_an_arm_in_mlflow_has_the_means_and_the_verdict_of_the_report(swept):
    home, folder, *_ = swept
    _, arms, _ = with_arms(runs_in_mlflow(home))
    stored = read_sweep(folder)
    pairs = {pair.model: pair for pair in stored.compared.comparisons if pair.metric == "ndcg@10"}
    rows = json.loads((folder / "report" / "table.json").read_text())["rows"]
    cells = {row["model"]: row["metrics"]["ndcg@10"] for row in rows if row["metrics"]}
    assert set(arms) == set(cells) and len(pairs) == len(arms) - 1  # broken has no final run
    for arm, run in arms.items():
        metrics, tags = run.data.metrics, run.data.tags
        keys = {"mean": "test/ndcg_at_10", "low": "test/ndcg_at_10_low", "high": "test/ndcg_at_10_high"}
        assert {name: metrics[key] for name, key in keys.items()} == {name: cells[arm][name] for name in keys}
        if arm not in pairs:
            assert tags["rankbench.verdict"] == "best" and "test/ndcg_at_10_p_value" not in metrics
        else:
            significant = pairs[arm].distinguishable
            assert (
                tags["rankbench.verdict"] == ("worse than" if significant else "not significantly different from") + " the best"
            )
            if significant:
                assert metrics["test/ndcg_at_10_p_value"] < 0.05
        assert run.info.run_name == arm and run.data.params["seed"] == "0" and "rankbench.seed" not in tags


def is_registered(home, folder, err):
    """The best model of the sweep is in the registry, with what its report says of it, and nothing else is."""
    assert "registered models:/small/1" in err
    stored, client = read_sweep(folder), MlflowClient(f"sqlite:///{home}/results/mlflow.db")
    (version,) = client.search_model_versions()
    best = next(pair.against for pair in stored.compared.comparisons if pair.metric == "ndcg@10")
    record = next(record for record in stored.finals if record.arm == best)
    value = f"{record.metrics['ndcg@10'].mean:.4f}"
    assert (version.name, version.tags["test/ndcg_at_10"], version.tags["rankbench.verdict"]) == ("small", value, "best")
    assert (
        version.tags["rankbench.of_sweep"] == folder.name
        and version.tags["rankbench.fingerprint"] == record.dataset.fingerprint
    )
    assert f"| ndcg@10 | {value} |" in version.description and f"**{best}** on synthetic: best" in version.description
    assert client.get_run(version.run_id).data.metrics["test/ndcg_at_10"] == record.metrics["ndcg@10"].mean


def test_resume_runs_what_is_missing_and_nothing_else_and_registers_the_best(swept):
    home, folder, *_ = swept
    kept = {path.parent.name: path.stat().st_mtime_ns for path in folder.glob("records/*/record.json")}
    failed = [record.id for record in records_in(folder) if record.failed]
    lost = next(name for name in kept if name.startswith("search-synthetic-ease") and name not in failed)
    before = read_record(folder / "records" / lost)
    shutil.rmtree(folder / "records" / lost)
    process = start(home, "sweep", "small.yaml", "--resume", "--json", "--register", "best")
    missing = set()
    while process.poll() is None:
        # A failed run is tried again, and its record stays until the new one takes its place.
        missing |= {name for name in failed if not (folder / "records" / name).exists()}
        time.sleep(0.01)
    _, err = output(process, code=4)
    assert failed and not missing
    is_registered(home, folder, err)
    again = read_record(folder / "records" / lost)
    assert again.metrics == before.metrics
    broken = {record.id for record in records_in(folder) if not record.finished}
    untouched = set(kept) - broken - {lost}
    assert all((folder / "records" / name / "record.json").stat().st_mtime_ns == kept[name] for name in untouched)
    assert len(list((home / "results" / "sweeps").iterdir())) == 1
    # Each is in MLflow once.
    _, arms, children = with_arms(runs_in_mlflow(home))
    assert set(children) == set(records_of(folder)) and len(arms) == 4


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [
        (signal.SIGINT, 130, "interrupted"),
        pytest.param(signal.SIGTERM, 143, "terminated", marks=pytest.mark.slow),
    ],
)
@pytest.mark.fault("F16")
def test_an_interrupt_keeps_finished_runs_and_leaves_no_process(tmp_path, number, code, word, figure):
    (tmp_path / "small.yaml").write_text(EXPERIMENT.replace("[10, 100]", str(list(range(10, 400)))))
    process = start(tmp_path, "sweep", "small.yaml")
    wait_until(lambda: records_of(tmp_path), process)
    below = psutil.Process(process.pid).children(recursive=True)
    assert any("raylet" in child.name() for child in below)
    process.send_signal(number)
    _, err = output(process, code)
    assert (
        err.splitlines()[-1]
        == f"error: {word}; finished runs are kept; the same command with --resume continues the sweep if it had begun"
    )
    (folder,) = (tmp_path / "results" / "sweeps").iterdir()
    assert any(record.finished for record in records_in(folder))
    assert not (folder / "tune").exists()  # nor does Tune keep its state on the disk of the results
    _, alive = psutil.wait_procs(below, timeout=30)
    assert [child for child in alive if child.status() != psutil.STATUS_ZOMBIE] == []
    figure(f"{number.name} in a sweep: exit {code}, finished runs kept, no process left within 30 s")


KILLER = """
import os
import time
from rankbench.core.params import Params
from rankbench.fitting.method import direct


class Killer(Params):
    pass


@direct("killer", Killer, families=("baseline",), title="Ends its process", source="baseline")
def killer(X, p, seed):
    os.kill(os.getpid(), NUMBER)
    time.sleep(60)
"""


# Ray answers SIGTERM, which comes first where a node is taken away, by sys.exit wherever the worker is.
@pytest.mark.fault("F2")
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)])
def test_a_trial_whose_worker_is_killed_each_time_fails_with_the_reason(number, tmp_path, figure):
    (tmp_path / "killer.py").write_text(KILLER.replace("NUMBER", str(int(number))))
    data, rest = EXPERIMENT.split("  - {method: popularity}")[0], EXPERIMENT[EXPERIMENT.index("search:") :]
    (tmp_path / "small.yaml").write_text(f"{data}  - {{method: killer}}\n{rest}")
    output(start(tmp_path, "sweep", "small.yaml", "--json", "--plugin", "killer.py"), code=4)
    errors = [record.error for record in records_in(tmp_path) if record.failed]
    assert errors == ["its worker process died: it was killed, or it crashed (the worker was lost 2 times)"]
    figure(f"{number.name} in a fit of a sweep: the worker is lost, and the fit is run again")


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:  # it ended while we looked
        return []


TRAINED = """
name: trained
datasets:
  - {name: synthetic, source: {generator: {users: 200, items: 80, interactions_per_user: 12}}}
arms:
  - {method: bpr, params: {embedding_dim: 8, epochs: 12, patience: 2, learning_rate: {grid: [0.01, 0.1]}}}
  - {method: popularity}
  - {method: ease}
  - {method: ials, params: {iterations: 2}}
search: {choose: {metric: ndcg@10, on: valid}}
final: {fit_on: FIT_ON, seeds: [1, 2]}
cutoffs: [10]
resources: {cpus: 1, concurrent: 1, device: "cpu:0"}
"""


STORE_ENDS = """
from rankbench.core.errors import StorageError
from rankbench.sweeps.store import SweepStore

fetch, calls = SweepStore.fetch, []

def fails(self, ids):
    calls.append(ids)
    if len(calls) > 1:
        raise StorageError("s3://bucket/results: the store does not answer")
    fetch(self, ids)

SweepStore.fetch = fails

from rankbench.__main__ import main
main()
"""


@pytest.mark.slow
def test_a_store_that_is_lost_ends_the_command_in_one_line(tmp_path):
    """Tune's own error, with a stack, is not what a user sees."""
    (tmp_path / "small.yaml").write_text(EXPERIMENT)
    _, err = output(start(tmp_path, "sweep", "small.yaml", program=STORE_ENDS), code=5)
    assert "Traceback" not in err
    (line,) = (line for line in err.splitlines() if line.startswith("error: "))
    assert line == "error: s3://bucket/results: the store does not answer"


@pytest.mark.parametrize("fit_on", ["train", pytest.param("train+valid", marks=pytest.mark.slow)])
def test_a_killed_worker_costs_a_retry_and_nothing_that_valid_said_of_the_epochs(fit_on, tmp_path):
    (tmp_path / "trained.yaml").write_text(TRAINED.replace("FIT_ON", fit_on))
    process = start(tmp_path, "sweep", "trained.yaml", "--json")

    def workers():
        below = psutil.Process(process.pid).children(recursive=True)
        return [child for child in below if child.is_running() and "Trainable.train" in " ".join(_command(child))]

    found = []
    wait_until(lambda: found.extend(workers()) or found, process)
    found[0].kill()
    _, err = output(process)
    (line,) = (line for line in err.splitlines() if "worker was lost" in line)
    assert line.startswith("warning: synthetic: ") and "the trial is run again" in line
    (folder,) = (tmp_path / "results" / "sweeps").iterdir()
    assert all(record.finished for record in records_in(folder))
    # What a device can do is done there, and the rest on processors.
    devices = {record.method: record.device for record in records_in(folder)}
    assert devices == {"popularity": "cpu", "ease": "cpu:0", "ials": "cpu", "bpr": "cpu:0"}
    records = [record for record in records_in(folder) if record.method == "bpr"]
    search = [record for record in records if record.stage == "search"]
    best = max(search, key=lambda record: record.metrics["ndcg@10"].mean)
    final = [record for record in records if record.stage == "final"]
    assert [record.fit_on for record in final] == [fit_on] * 2
    assert {record.params["learning_rate"] for record in final} == {best.params["learning_rate"]}
    for record in search:
        watched = {row["iteration"]: row["valid"] for row in record.curve}
        assert record.iterations == max(watched, key=lambda number: (watched[number], -number))
    if fit_on == "train":
        assert all(record.params["patience"] == 2 and "valid" in record.curve[0] for record in final)
    else:
        expected = {"epochs": best.iterations, "patience": 0}
        assert all({name: record.params[name] for name in expected} == expected for record in final)
        assert all(len(record.curve) == best.iterations and "valid" not in record.curve[0] for record in final)


def test_a_sweep_that_finds_no_cluster_leaves_nothing_behind(tmp_path):
    (tmp_path / "small.yaml").write_text(EXPERIMENT)
    output(start(tmp_path, "sweep", "small.yaml", "--address", "127.0.0.1:1"), code=4)
    assert not (tmp_path / "results" / "sweeps").exists()
