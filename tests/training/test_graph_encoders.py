"""Fits of encoders whose weights are learnt beside the vectors: better than popularity, wider vectors, every optimiser."""

import numpy as np
import pytest
from fits import DIM, N_ITEMS, N_USERS, driven, fitted, interactions, trainer_of

from rankbench.data.blocks import csr_from_pairs
from rankbench.data.splits import Holdout
from rankbench.evaluation.metrics import measure, metric_set
from rankbench.evaluation.ranking import rank
from rankbench.fitting.recommenders import FactorRecommender

ENCODERS = ("gat", "dgcf", "pinsage")
FIT = {"embedding_dim": 16, "batch_size": 128, "n_negatives": 5, "learning_rate": 0.01, "epochs": 30, "init": "xavier"}


def clusters(n_users=120, n_items=60, groups=4):
    """X and holdout: users prefer the items of their group, and some items of every group are popular."""
    rng = np.random.default_rng(0)
    same = rng.integers(0, groups, n_users)[:, None] == (np.arange(n_items) % groups)[None]
    met = rng.random(same.shape) < np.where(same, 0.5, 0.02) * np.geomspace(1, 0.3, n_items)
    target = met & (rng.random(met.shape) < 0.25)
    X, held = (csr_from_pairs(*np.nonzero(part), met.shape) for part in (met & ~target, target))
    return X, Holdout(np.arange(n_users, dtype=np.int32), X, held)


def ndcg(model, X, holdout):
    counts = np.bincount(X.indices, minlength=X.shape[1])
    (ranking,) = rank([model], holdout, 10)
    return measure(ranking, holdout.target, counts, metric_set(["ndcg"], [10])).values["ndcg@10"].mean()


@pytest.mark.parametrize(
    ("loss", "values"),
    [
        ("sl", {"model": "gat"}),
        ("sl", {"model": "dgcf"}),
        ("sl", {"model": "pinsage", "epochs": 60}),
        ("bpr", {"model": "neumf", "n_negatives": 1, "hidden_dropout": 0.2, "optimizer": "row-adam"}),
        ("bce", {"model": "neumf", "network": "he", "embedding_dim": 20, "neg_reduction": "sum", "n_negatives": 4}),
    ],
    ids=str,
)
def test_a_fit_ranks_better_than_popularity(loss, values):
    X, holdout = clusters()
    counts = np.bincount(X.indices, minlength=X.shape[1]).astype(np.float32)
    popular = ndcg(FactorRecommender(np.ones((X.shape[0], 1), np.float32), counts[:, None]), X, holdout)
    found = ndcg(driven(X, loss, **FIT | values).model, X, holdout)
    assert found > 1.5 * popular, (found, popular)


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
