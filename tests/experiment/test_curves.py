"""A run of a method that goes by iterations: its curve, what is counted as training, and what shows it."""

import itertools
import json
from types import SimpleNamespace

import numpy as np
import pytest

from rankbench.core.errors import ConfigError
from rankbench.data.cards import load_card
from rankbench.evaluation.metrics import metric_set
from rankbench.experiment.execution import Execution
from rankbench.experiment.job import Job, configure
from rankbench.experiment.run import run as run_job
from rankbench.experiment.run import run_stepwise
from rankbench.fitting.checkpoints import Checkpoints
from rankbench.fitting.executors import ThreadMap


@pytest.fixture
def card(environment):
    return load_card("synthetic", environment, {"source.generator.users": 300, "source.generator.items": 120})


def killed_after(n, job, environment, folder):
    """A run that saves each iteration, stopped after n of them."""
    running = run_stepwise(job, environment, Execution(1, checkpoints=Checkpoints(folder)))
    list(itertools.islice(running, n))
    running.close()


def resumed(job, environment, folder, device="cpu"):
    execution = Execution(1, device=device, checkpoints=Checkpoints(folder, resume=True))
    return [[*curve] for curve in run_stepwise(job, environment, execution)]


def outcome(card, environment, curve, **values):
    chosen = configure("ials", {"iterations": 6, "embedding_dim": 8} | values)
    (found,) = run_job(Job(card, (chosen,), curve=curve), environment, Execution(1))
    return found


def test_a_curve_has_every_iteration_and_ends_at_the_final_metrics(card, environment):
    found = outcome(card, environment, curve=2)
    rows = found.record.curve
    assert [row["iteration"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert [("ndcg@10" in row) for row in rows] == [False, True] * 3
    assert (np.diff([row["loss"] for row in rows]) <= 1e-6).all()
    assert (np.diff([row["seconds"] for row in rows]) >= 0).all() and rows[-1]["seconds"] <= found.record.seconds["fit"]
    # Fewer users than a curve samples: its last point is the run's own result.
    for name in ("ndcg@10", "recall@50"):
        assert rows[-1][name] == pytest.approx(found.record.metrics[name].mean, abs=1e-6)
    alone = outcome(card, environment, curve=0)
    assert (alone.record.id, alone.record.metrics) == (found.record.id, found.record.metrics)
    assert all("ndcg@10" not in row for row in alone.record.curve)


def test_a_curve_without_one_of_its_metrics_ranks_nobody(card, environment, monkeypatch):
    monkeypatch.setattr("rankbench.experiment.watch.ranked", None)  # a ranking would be a traceback
    job = Job(card, (configure("ials", {"iterations": 2, "embedding_dim": 8}),), metrics=metric_set(["precision"]), curve=1)
    (found,) = run_job(job, environment, Execution(1))
    assert [[*row] for row in found.record.curve] == 2 * [["iteration", "seconds", "loss"]]


def test_the_seconds_of_a_fit_that_goes_on_are_those_of_all_its_iterations(card, environment, tmp_path, monkeypatch):
    monkeypatch.setattr("rankbench.experiment.run.EnergyMeter", lambda device: SimpleNamespace(stop=lambda: 1.0))
    job = Job(card, (configure("ials", {"iterations": 6, "embedding_dim": 8}),))
    killed_after(4, job, environment, tmp_path / "checkpoints")
    before = Checkpoints(tmp_path / "checkpoints").values()["curve"][-1]
    (path,) = (tmp_path / "checkpoints").glob("*3/values.json")
    about = json.loads(path.read_text())
    about["values"]["fit"]["seconds"] = 1000.0  # as if the machine had been slow then
    path.write_text(json.dumps(about))
    execution = Execution(1, checkpoints=Checkpoints(tmp_path / "checkpoints", resume=True))
    (found,) = run_job(job, environment, execution)
    assert before["iteration"] == 3 and found.record.iterations == 6
    assert 1000 < found.record.curve[-1]["seconds"] <= found.record.seconds["fit"] < 1100
    assert found.record.joules is None and outcome(card, environment, 0).record.joules == 1.0
    (threads,) = run_job(job, environment, Execution(1, executor=ThreadMap(1)))  # as commands have it
    assert threads.record.joules == 1.0


def test_the_tolerance_ends_a_fit_early(card, environment):
    found = outcome(card, environment, 0, iterations=200, tolerance=1e-3)
    losses = [row["loss"] for row in found.record.curve]
    assert 2 < len(losses) < 200
    assert losses[-2] - losses[-1] < 1e-3 * abs(losses[-1])


def test_a_fit_that_goes_on_from_a_checkpoint_tells_of_its_earlier_evaluations_too(card, environment, tmp_path):
    values = {"epochs": 6, "patience": 6, "eval_every": 1, "embedding_dim": 8, "n_negatives": 5}
    job = Job(card, (configure("bpr", values),), fit_on="train", measure_on="valid")
    whole = [[*curve] for curve in run_stepwise(job, environment, Execution(1))]
    killed_after(4, job, environment, tmp_path / "fit")
    rest = resumed(job, environment, tmp_path / "fit")
    valid = lambda curve: [(row["iteration"], row["valid"]) for row in curve]  # noqa: E731
    assert valid(rest[0]) == valid(whole[3]) and valid(rest[-1]) == valid(whole[-1])


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"embedding_dim": 9}, "embedding_dim 8, not 9"),
        ({"seed": 1}, "seed 0, not 1"),
        ({"users": 310}, "data synthetic .*"),
        ({"device": "cuda:0"}, "device cpu, not cuda"),  # the moments of an optimiser have another layout there
    ],
)
def test_a_fit_does_not_go_on_from_the_checkpoint_of_another(environment, tmp_path, other, says):
    def job(embedding_dim=8, seed=0, users=300, device="cpu"):
        card = load_card("synthetic", environment, {"source.generator.users": users, "source.generator.items": 120})
        config = configure("bpr", {"epochs": 4, "patience": 0, "embedding_dim": embedding_dim})
        return Job(card, (config,), seed=seed)

    killed_after(3, job(), environment, tmp_path / "fit")
    with pytest.raises(ConfigError, match=f"fit holds another fit, with {says};"):
        resumed(job(**other), environment, tmp_path / "fit", other.get("device", "cpu"))
