"""A sweep whose parameters are drawn one after another and whose trials are ended when they fall behind, interrupted and not;
and a second sweep that meets the first one's runs.
"""

import json
import shutil
import signal
from pathlib import Path

import pytest

from .commands import output, records_of, start, wait_until

pytestmark = pytest.mark.cluster

EXPERIMENT = """
name: drawn
datasets:
  - {name: synthetic, source: {generator: {users: 300, items: 100, interactions_per_user: 15}}}
arms:
  - method: bpr
    params: {embedding_dim: 8, epochs: 9, patience: 9, n_negatives: 5, learning_rate: {loguniform: [0.00001, 0.1]}}
  - {method: ease, params: {lam: {grid: [10, 100]}}}
  - {name: two, method: sl, params: {embedding_dim: 8, epochs: 2, patience: 2, n_negatives: 5, tau: {choice: [0.1, 0.2]}}}
search: {trials: 8, by: tpe, scheduler: asha, grace: 1, choose: {metric: ndcg@10, on: valid}}
final: {fit_on: train}
cutoffs: [10]
resources: {cpus: 1, concurrent: 2}
"""


FOR_TWO = """
name: drawn
datasets:
  - {name: synthetic, source: {generator: {users: 100, items: 60, interactions_per_user: 10}}}
arms:
  - {method: bpr, params: {embedding_dim: 8, epochs: 2, learning_rate: {loguniform: [0.001, 0.1]}}}
  - {method: ease, params: {lam: {grid: [10, 100, 1000]}}}
search: {trials: 2, choose: {metric: ndcg@10, on: valid}}
final: {fit_on: train}
cutoffs: [10]
resources: {cpus: 1, concurrent: 1}
"""


def history(folder: Path):
    """The draws in their order, and of each run its status, metrics and evaluations on the validation set."""
    runs = {
        name: (record.status, record.metrics, [row["valid"] for row in record.curve if "valid" in row])
        for name, record in records_of(folder).items()
    }
    lines = map(json.loads, (folder / "draws.jsonl").read_text().splitlines())
    return sorted(lines, key=lambda line: (line["search"], line.get("draw", -1))), runs


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    home = tmp_path_factory.mktemp("drawn")
    (home / "drawn.yaml").write_text(EXPERIMENT)
    output(start(home, "sweep", "drawn.yaml"))
    (folder,) = (home / "results" / "sweeps").iterdir()
    return home, folder


def test_as_many_settings_are_drawn_as_the_file_says_and_those_behind_are_ended(drawn):
    _, folder = drawn
    searched = [record for record in records_of(folder).values() if record.stage == "search"]
    bpr = [record for record in searched if record.method == "bpr"]
    assert len(bpr) == 8 and len({record.params["learning_rate"] for record in bpr}) == 8
    assert len([record for record in searched if record.method == "ease"]) == 2
    # Eight draws of two settings are two runs.
    assert len([record for record in searched if record.arm == "two"]) == 2
    states = {record.status for record in bpr}
    assert states == {"finished", "stopped"}
    for record in bpr:
        looks = [row["iteration"] for row in record.curve]
        assert looks == list(range(1, len(looks) + 1))
        if record.status == "stopped":
            assert len(looks) < 9 and f"stopped by asha after epoch {looks[-1]}" in record.error and not record.metrics


def test_none_that_was_ended_is_chosen_or_called_a_failure(drawn):
    home, folder = drawn
    records = records_of(folder)
    chosen = json.loads((folder / "chosen.json").read_text())
    assert chosen["failed"] == []
    for row in chosen["rows"]:
        rivals = [r for r in records.values() if r.stage == "search" and r.arm == row["arm"] and r.finished]
        best = max(record.metrics["ndcg@10"].mean for record in rivals)
        assert records[row["search"]].metrics["ndcg@10"].mean == best
    assert "failed:" not in output(start(home, "report"))[0]
    status = json.loads(output(start(home, "sweep", "status", "--json"))[0])
    assert status["state"] == "finished" and status["running"] is None
    (arm,) = [arm for arm in status["arms"] if arm["model"] == "bpr"]
    assert (arm["finished"] + arm["stopped"], arm["failed"], arm["final"]) == (8, 0, 1)


SLOW = """

import random, time
_step = UnitTrainable.step


def _late(self):
    time.sleep(random.SystemRandom().choice([0.0, 0.02, 0.3]))
    return _step(self)


UnitTrainable.step = _late
"""


@pytest.mark.slow
def test_killed_and_with_another_timing_it_draws_and_ends_the_same_trials(drawn, tmp_path):
    home, folder = drawn
    shutil.copytree(home / "data", tmp_path / "data")
    shutil.copy(home / "drawn.yaml", tmp_path / "drawn.yaml")
    code = copy_of_the_code(tmp_path)
    trainable = code / "rankbench" / "sweeps" / "trials" / "trainable.py"
    trainable.write_text(trainable.read_text() + SLOW)
    sweep = start(tmp_path, "sweep", "drawn.yaml", PYTHONPATH=str(code))
    wait_until(lambda: len(records_of(tmp_path)) >= 5, sweep)
    sweep.send_signal(signal.SIGINT)
    output(sweep, code=130)
    output(start(tmp_path, "sweep", "drawn.yaml", "--resume"))
    (other,) = (tmp_path / "results" / "sweeps").iterdir()
    assert history(other) == history(folder)


def test_resumed_it_draws_only_what_is_missing(drawn, tmp_path):
    home, _ = drawn
    shutil.copytree(home, tmp_path / "home")
    copy = next((tmp_path / "home" / "results" / "sweeps").iterdir())
    before = records_of(copy)
    lost = sorted(name for name, record in before.items() if record.method == "bpr" and record.stage == "search")[:3]
    for name in lost:
        shutil.rmtree(copy / "records" / name)
    kept = {name: (copy / "records" / name / "record.json").stat().st_mtime_ns for name in before if name not in lost}
    output(start(tmp_path / "home", "sweep", "drawn.yaml", "--resume"))
    assert history(copy) == history(home / "results" / "sweeps" / copy.name)
    for name, written in kept.items():
        assert (copy / "records" / name / "record.json").stat().st_mtime_ns == written


@pytest.mark.slow
def test_a_second_sweep_takes_over_what_the_first_has_finished_unless_it_is_fresh(tmp_path, monkeypatch):
    # A checkout with changes has no revision that tells what ran; a copy outside of git has.
    monkeypatch.setenv("PYTHONPATH", str(copy_of_the_code(tmp_path)))
    for name, text in (("one", FOR_TWO), ("two", FOR_TWO.replace("name: drawn", "name: other"))):
        (tmp_path / f"{name}.yaml").write_text(text)
    found = []
    for words in (("one.yaml",), ("two.yaml",), ("two.yaml", "--fresh")):
        output(start(tmp_path, "sweep", *words))
        found.append(records_of(max((tmp_path / "results" / "sweeps").iterdir(), key=lambda path: path.stat().st_mtime)))
    first, second, fresh = found
    assert first.keys() == second.keys() == fresh.keys() and len(first) == 7
    for name, record in first.items():
        assert record.started_at == second[name].started_at < fresh[name].started_at
        assert record.metrics == fresh[name].metrics


def copy_of_the_code(home: Path) -> Path:
    root = Path(__file__).parents[2]
    shutil.copytree(root / "platform" / "rankbench", home / "code" / "rankbench")
    shutil.copytree(root / "datasets", home / "datasets")
    return home / "code"
