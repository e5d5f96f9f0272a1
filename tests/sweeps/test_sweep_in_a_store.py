"""A sweep whose results and data are in an object store: killed on one machine, finished and reported on others."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from rankbench.cli import _main
from rankbench.core.errors import StorageError
from rankbench.core.storage import Storage
from rankbench.schema.shared_sweeps import RECORDS, SWEEPS, newest_records, stored_ids
from rankbench.tracking.record import read_records

from .commands import output, start, wait_until

EXPERIMENT = """
name: small
datasets:
  - {name: synthetic, source: {generator: {users: 200, items: 80, interactions_per_user: 12}}}
arms:
  - {method: popularity}
  - {method: ease, params: {lam: {grid: [10, 100]}}}
  - method: bpr
    params: {embedding_dim: 8, epochs: 6, patience: 2, n_negatives: 5, learning_rate: {loguniform: [0.001, 0.1]}}
search: {choose: {metric: ndcg@10, on: valid}, by: tpe, trials: 6, scheduler: asha, grace: 1}
cutoffs: [10]
resources: {cpus: 1, concurrent: 1}
"""


def command(home: Path, variables: dict[str, str], *words: str) -> subprocess.Popen:
    """A command of a machine whose files are all in `home`."""
    home.mkdir(exist_ok=True)
    (home / "small.yaml").write_text(EXPERIMENT)
    return start(home, *words, **variables)


def json_of(process: subprocess.Popen) -> dict:
    return json.loads(output(process)[0])


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_it_is_finished_on_another_machine_with_the_same_bits(s3, tmp_path):
    def variables(name):
        places = {"RANKBENCH_RESULTS": f"{s3}/results", "RANKBENCH_DATA": f"{s3}/data"}
        return places | {"RANKBENCH_CACHE": str(tmp_path / name / "cache")}

    store = Storage.from_env(f"{s3}/results", "here")
    killed = command(tmp_path / "first", variables("first"), "sweep", "small.yaml", "--json")
    wait_until(lambda: sum(key.endswith("checksums.json") for key in store.objects(SWEEPS)) >= 3, killed, 300)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    (name,) = stored_ids(store)
    before = newest_records([key.removeprefix(f"{RECORDS}/") for key in store.below(f"{SWEEPS}/{name}").objects(RECORDS)])
    resumed = json_of(command(tmp_path / "second", variables("second"), "sweep", "small.yaml", "--resume", "--json"))
    assert Path(resumed["folder"]).name == name
    after = newest_records([key.removeprefix(f"{RECORDS}/") for key in store.below(f"{SWEEPS}/{name}").objects(RECORDS)])
    assert before.items() <= after.items()  # what was finished is not run again
    assert {key.rpartition("/")[2] for key in store.objects(f"{SWEEPS}/{name}/files")} >= {"chosen.json", "report.html"}
    status = json_of(command(tmp_path / "third", variables("third"), "sweep", "status", "--json"))
    assert status["id"] == name and status["state"] == "finished"
    report = json_of(command(tmp_path / "third", variables("third"), "report", "--json"))
    plain = json_of(command(tmp_path / "plain", {}, "sweep", "small.yaml", "--json"))
    stored = read_records(Path(report["folder"]) / "records")
    expected = {each.id: each for each in read_records(Path(plain["folder"]) / "records")}
    assert {each.id: each.metrics for each in stored} == {name: each.metrics for name, each in expected.items()}
    assert {each.id: each.status for each in stored} == {name: each.status for name, each in expected.items()}
    chosen = [json.loads((Path(each["folder"]) / "chosen.json").read_text())["rows"] for each in (report, plain)]
    assert chosen[0] == chosen[1]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["study", "metric-inconsistency"], "a study needs a folder; give --out FOLDER, or set RANKBENCH_RESULTS to a folder"),
        (["sweep", "status"], "/results/sweeps"),
        (["compare", "run-a", "run-b"], "unknown run 'run-a'"),
    ],
)
def test_what_is_not_there_or_needs_a_folder_is_one_line(words, problem, s3, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("RANKBENCH_RESULTS", f"{s3}/results")
    monkeypatch.setenv("RANKBENCH_CACHE", str(tmp_path / "cache"))
    assert _main(words) == 2
    assert problem in " ".join(capsys.readouterr().err.split())


def test_runs_of_one_machine_are_compared_on_another(s3, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("RANKBENCH_RESULTS", f"{s3}/results")
    monkeypatch.setenv("RANKBENCH_DATA", f"{s3}/data")
    monkeypatch.setenv("RANKBENCH_CACHE", str(tmp_path / "one"))
    sizes = [f"data.source.generator.{name}={n}" for name, n in (("users", 60), ("items", 40), ("interactions_per_user", 8))]
    ids = []

    def fails(folder, attempt):
        raise StorageError("the store does not answer")

    with monkeypatch.context() as patch:  # the record is here, and the next call uploads it
        patch.setattr("rankbench.api.record_run.store_run", fails)
        assert _main(["run", "synthetic", "ease", "lam=10", *sizes, "--no-track"]) == 5
        capsys.readouterr()
    for lam in (10, 1000):
        assert _main(["run", "synthetic", "ease", f"lam={lam}", *sizes, "--no-track", "--json"]) == 0
        ids.append(json.loads(capsys.readouterr().out)["id"])
    monkeypatch.setenv("RANKBENCH_CACHE", str(tmp_path / "two"))
    assert _main(["compare", *ids, "--json"]) == 0
    assert [each["id"] for each in json.loads(capsys.readouterr().out)["models"]] == ids
    assert len([*(tmp_path / "two").rglob("record.json")]) == 2
