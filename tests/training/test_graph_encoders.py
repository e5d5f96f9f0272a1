"""Fits of encoders whose weights are learnt beside the vectors: they learn; wider vectors; every weight and optimiser."""

import numpy as np
import pytest
from fits import DIM, N_ITEMS, N_USERS, driven, fitted, interactions, trainer_of

ENCODERS = ("gat", "dgcf", "pinsage")


@pytest.mark.parametrize(
    ("loss", "values"),
    [
        ("sl", {"model": "gat"}),
        ("sl", {"model": "dgcf"}),
        ("sl", {"model": "pinsage"}),
        ("bpr", {"model": "neumf", "n_negatives": 1}),
        ("talos", {"model": "lightgcn", "objective": "catalogue", "users_per_step": 5}),
    ],
    ids=str,
)
def test_a_fit_lowers_its_loss(loss, values):
    losses = []
    steps = {"epochs": 30, "learning_rate": 0.02, "init": "xavier"}
    driven(interactions(), loss, tell=lambda step, valid: losses.append(step.loss), **steps | values)
    assert np.mean(losses[-3:]) < 0.95 * np.mean(losses[:3])


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
