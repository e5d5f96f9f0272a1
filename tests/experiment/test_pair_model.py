"""A fitted network of pairs as a model with ids: recommend, similar, save, load, evaluate; and what a run does with it."""

import dataclasses
import shutil

import numpy as np
import pandas as pd
import pytest
from model_folders import change_array
from numpy.testing import assert_allclose, assert_array_equal

import rankbench.api as rb
from rankbench.core.errors import ConfigError, DataError
from rankbench.data.cards import load_card
from rankbench.evaluation.metrics import metric_set
from rankbench.experiment import estimate, watch
from rankbench.experiment.execution import Execution
from rankbench.experiment.fitted_model import load
from rankbench.experiment.job import Job, configure
from rankbench.experiment.run import run
from rankbench.experiment.watch import PAIR_USERS, VALID_USERS, ValidationSet, valid_users
from rankbench.fitting.pair_recommender import PairRecommender

SIZE = {"source.generator": {"users": 60, "items": 40, "interactions_per_user": 10}}
SHORT = {"model": "neumf", "embedding_dim": 10, "epochs": 2, "batch_size": 64, "n_negatives": 2, "patience": 0}


@pytest.fixture(params=["ngcf", "he"])
def model(request, environment):
    return rb.fit("synthetic", "bpr", environment=environment, changes=SIZE, network=request.param, **SHORT)


def pair_by_pair(recommender, user):
    """The scores of one user with all items, a pair at a time."""
    scores = []
    for item in range(recommender.n_items):
        both = recommender.U[user] * recommender.V[item]
        z = np.maximum(recommender.A[user] + recommender.C[item] + both @ recommender.mix, 0)
        for W, b in recommender.layers():
            z = np.maximum(z @ W + b, 0)
        output, bias = recommender.output
        scores.append(z @ output + both @ recommender.direct + bias)
    return np.array(scores)


def test_users_get_the_best_of_the_network(model):
    assert type(model.recommender) is PairRecommender
    for row in (0, 17):
        scores = pair_by_pair(model.recommender, row)
        scores[model.history[[row]].indices] = -np.inf
        found = model.recommend([model.users[row].as_py()], 5)
        assert found["item"].tolist() == model.items.to_numpy()[np.argsort(-scores, kind="stable")[:5]].tolist()
        assert_allclose(found["score"], np.sort(scores)[::-1][:5], rtol=1e-4, atol=1e-6)


def test_saved_and_loaded_it_is_the_same_and_damaged_arrays_are_refused(model, environment, tmp_path):
    with pytest.raises(ConfigError, match="bpr has vectors only for the users of its fit"):
        model.recommend_new(pd.DataFrame({"user": ["x"], "item": [model.items[0].as_py()]}))
    folder = model.save(tmp_path / "kept")
    again = load(folder)
    for field in dataclasses.fields(PairRecommender):
        assert_array_equal(getattr(again.recommender, field.name), getattr(model.recommender, field.name))
    some = model.users.to_pylist()[::7]
    pd.testing.assert_frame_equal(again.recommend(some, 6), model.recommend(some, 6))
    assert again.evaluate(environment=environment).metrics == model.evaluate(environment=environment).metrics
    for name, change in [
        ("A", lambda A: A[:, :-1]),
        ("C", lambda C: C[:-1]),
        ("V", lambda V: V.astype(np.float64)),
        ("network", lambda network: network[:-1]),
        ("widths", lambda widths: widths - widths),
        ("widths", lambda widths: widths[:0]),
        ("widths", lambda widths: widths.astype(np.float32)),
    ]:
        shutil.copytree(folder, tmp_path / "damaged", dirs_exist_ok=True)
        change_array(tmp_path / "damaged", f"model.{name}", change)
        with pytest.raises(DataError, match="damaged"):
            load(tmp_path / "damaged")


def job(environment, **values):
    config = configure("bpr", SHORT | values)
    card = load_card("synthetic", environment, SIZE)
    return Job(card, (config,), "train", metrics=metric_set(["recall", "ndcg"], [10]), curve=1)


def test_early_stopping_measures_fewer_users_of_a_network(environment, monkeypatch):
    pairs, products = configure("bpr", {"model": "neumf"}), configure("bpr", {})
    assert [valid_users(each) for each in (pairs, products, configure("ease", {}))] == [PAIR_USERS, VALID_USERS, VALID_USERS]
    limits, create = [], ValidationSet.__init__

    def noted(self, holdout, seed, device, limit):
        limits.append(limit)
        create(self, holdout, seed, device, limit=7)
        assert len(self.rows) == 7

    monkeypatch.setattr(watch.ValidationSet, "__init__", noted)
    (outcome,) = run(job(environment, epochs=4, patience=1, eval_every=1), environment, Execution(2))
    assert limits == [PAIR_USERS]
    assert [row["iteration"] for row in outcome.record.curve][:2] == [1, 2]
    assert all({"ndcg@10", "valid"} <= set(row) for row in outcome.record.curve)


def test_estimates_count_the_network(environment):
    size = estimate.Size(29_858, 40_981, 1_027_370, 3e8, 29_858)
    network, product = (
        dataclasses.replace(job(environment), configs=(configure("bpr", {"model": name, "n_negatives": 1}),))
        for name in ("neumf", "mf")
    )
    assert estimate.seconds(network, size, 2) > estimate.seconds(product, size, 2) + 60
    many = dataclasses.replace(network, configs=(configure("bpr", {"model": "neumf", "n_negatives": 500}),))
    assert estimate.memory(many, size) > estimate.memory(network, size) + 10**9
