"""A whole run of a trained method: from a card to a record."""

import numpy as np
import pytest

from rankbench.data.cards import load_card
from rankbench.experiment.execution import Execution
from rankbench.experiment.job import Job, configure
from rankbench.experiment.run import run as run_job

TINY = {"source.generator.users": 300, "source.generator.items": 120}
TRAINING = {"embedding_dim": 8, "epochs": 60, "batch_size": 256, "n_negatives": 20, "learning_rate": 0.05, "patience": 2}


def run(environment, name="bpr", job=None, **values):
    card = load_card("synthetic", environment, TINY)
    chosen = configure(name, TRAINING | values)
    (found,) = run_job(Job(card, (chosen,), **(job or {})), environment, Execution(1))
    return found


def test_early_stopping_on_valid_gives_the_record_its_epochs(environment):
    found = run(environment, job={"fit_on": "train"})
    curve = found.record.curve
    valid = [row["valid"] for row in curve]
    assert 2 < len(curve) < 60, "patience ended it"
    assert found.record.iterations == 1 + int(np.argmax(valid)) == len(curve) - 2
    assert found.record.fit_on == "train" and found.record.measured_on == "test"
    losses = [row["loss"] for row in curve]
    assert losses[-1] < losses[0]
    assert found.model.U.shape == (300, 8) and np.isfinite(found.record.metrics["ndcg@20"].mean)


def test_what_is_watched_is_what_a_run_measures_on_valid(environment):
    found = run(environment, job={"fit_on": "train", "measure_on": "valid"})
    assert max(row["valid"] for row in found.record.curve) == pytest.approx(found.record.metrics["ndcg@20"].mean, abs=1e-6)


def test_a_fit_on_train_and_valid_does_all_its_epochs(environment):
    found = run(environment, epochs=3)
    assert found.record.fit_on == "train+valid" and found.record.iterations == 3
    assert all("valid" not in row for row in found.record.curve)


def test_training_ranks_better_than_no_training(environment):
    trained, start = (run(environment, "sl", epochs=15, learning_rate=rate).record.metrics["ndcg@20"] for rate in (0.05, 1e-30))
    assert trained.mean > 1.5 * start.mean
