"""Fits of encoders whose weights are learnt beside the vectors: better than popularity, wider vectors, every optimiser."""

import numpy as np
import pytest
from fits import DIM, N_ITEMS, N_USERS, fitted, interactions, trainer_of

from rankbench.data.cards import load_card
from rankbench.experiment.execution import Execution
from rankbench.experiment.job import Job, configure
from rankbench.experiment.run import run

ENCODERS = ("gat", "dgcf", "pinsage")
# Popularity explains little here, so that a model has to find out what a user likes.
WORLD = {"source.generator.users": 600, "source.generator.items": 200, "source.generator.popularity_exponent": 0.2}
FIT = {"embedding_dim": 16, "batch_size": 512, "init": "xavier", "tau": 0.2, "n_negatives": 50, "patience": 0}


def ndcg(environment, method, **values):
    job = Job(load_card("synthetic", environment, WORLD), (configure(method, values),), fit_on="train")
    return run(job, environment, Execution(1))[0].record.metrics["ndcg@20"].mean


@pytest.mark.parametrize(("model", "epochs", "rate"), [("gat", 10, 0.01), ("dgcf", 10, 0.01), ("pinsage", 40, 0.01)])
def test_a_fit_ranks_better_than_popularity(environment, model, epochs, rate):
    fitted = ndcg(environment, "sl", model=model, epochs=epochs, learning_rate=rate, **FIT)
    assert fitted > 1.25 * ndcg(environment, "popularity")


@pytest.mark.parametrize("loss", ["bpr", "sl", "uib", "advinfonce", "sml"])
def test_vectors_may_be_wider_than_those_that_are_learnt(loss):
    model = fitted(interactions(), loss, model="gat", combine="concat", attention_layers=2)
    extra = 2 if loss == "sml" else 0  # distances, as a product
    assert model.U.shape == (N_USERS, 3 * DIM + extra) and model.V.shape == (N_ITEMS, 3 * DIM + extra)
    assert np.isfinite(model.U).all() and np.isfinite(model.V).all()


@pytest.mark.parametrize("model", ENCODERS)
@pytest.mark.parametrize("values", [{"optimizer": "row-adam"}, {"weight_decay": 0.1}, {"weight_decay": 0.1, "decay": "batch"}])
def test_every_weight_is_trained(model, values):
    trainer = trainer_of(interactions(), "bpr", model=model, **values)
    before = {name: weight.detach().clone() for name, weight in trainer.encoder.named_parameters()}
    trainer.epoch(1, 1.0)
    assert len(before) >= 2
    for name, weight in trainer.encoder.named_parameters():
        assert (weight.detach() != before[name]).any(), name


def test_weights_beside_the_vectors_are_part_of_a_checkpoint():
    first, second = (trainer_of(interactions(), "bpr", model="gat", seed=seed) for seed in (0, 1))
    first.epoch(1, 1.0)
    second.restore(first.arrays())
    assert {"encoder/weights.0", "encoder/at_head.1", "encoder/at_tail.0"} <= set(first.arrays())
    np.testing.assert_array_equal(second.model().U, first.model().U)
