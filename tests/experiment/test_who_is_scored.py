"""Users that a model cannot score are never measured, items that it may not name are not recommended, and distances have the
cosines of their own vectors.
"""

from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest

import rankbench.api as rb
from rankbench.core.errors import ConfigError
from rankbench.evaluation.metrics import metric_set
from rankbench.experiment.execution import Execution
from rankbench.experiment.job import Job, configure
from rankbench.experiment.run import run
from rankbench.tracking.record import about_cold_users

FEW = {"epochs": 2, "embedding_dim": 4}


@pytest.fixture
def table():
    rng = np.random.default_rng(1)
    rows = [(f"u{user}", f"i{item}") for user in range(60) for item in rng.permutation(30)[:9]]
    return pd.DataFrame(rows, columns=["user", "item"])


@pytest.mark.parametrize(
    ("method", "params", "folds_in"),
    [
        ("bpr", {"patience": 0}, False),
        ("bpr", {"patience": 1}, False),
        ("sl", {"model": "youtubenet", "similarity": "distance", "patience": 0}, False),
        ("sl", {"model": "youtubenet", "patience": 0}, True),
        ("sl", {"model": "youtubenet", "similarity": "distance", "rank_by": "dot", "patience": 0}, True),
    ],
)
def test_held_out_users_need_a_method_with_fold_in(table, environment, method, params, folds_in):
    data = rb.dataset(table, split="held-out-users", environment=environment)
    refused = pytest.raises(ConfigError, match=f"{method} scores only users it was trained on")
    with nullcontext() if folds_in else refused:
        model = rb.fit(data, method, environment=environment, **FEW, **params)
        assert len(model.evaluate(environment=environment).per_user) > 0


def test_ids_that_are_none_are_named(table, environment):
    model = rb.fit(table, "ease", environment=environment)
    for call, message in [
        (lambda: model.recommend_new(pd.DataFrame({"user": ["x", None], "item": ["i1", "i2"]})), "row 1 has no user"),
        (lambda: model.recommend_new(pd.DataFrame({"user": ["x", "x"], "item": ["i1", 2]})), "item: expected ids of one type"),
        (lambda: model.recommend([0, "u1"]), "user ids: expected ids of one type"),
        (lambda: model.recommend([b"\xff"]), "user ids: expected ids of one type, .*UTF8"),
    ]:
        with pytest.raises(ConfigError, match=message):
            call()


@pytest.mark.parametrize(("method", "params"), [("cml", {}), ("bpr", {"similarity": "distance"}), ("cml", {"rank_by": "dot"})])
def test_items_of_distances_are_similar_by_the_cosine_of_their_vectors(table, environment, method, params):
    model = rb.fit(table, method, patience=0, environment=environment, **FEW, **params)
    V = model.recommender.V[:, :4]
    unit = V / np.linalg.norm(V, axis=1, keepdims=True)
    cosine = unit[3] @ unit.T
    cosine[3] = -np.inf
    found = model.similar(model.items[3].as_py(), 5)
    np.testing.assert_allclose(found["score"], np.sort(cosine)[::-1][:5], rtol=1e-5)


@pytest.mark.parametrize("self_candidate", [False, True])
def test_a_page_is_not_recommended_to_itself(environment, tmp_path, self_candidate):
    rng = np.random.default_rng(2)
    links = [(f"n{page}", f"n{other}") for page in range(40) for other in rng.permutation(40)[:8] if other != page]
    data = rb.dataset(
        pd.DataFrame(links, columns=["user", "item"]),
        split={"protocol": "link-prediction", "self_candidate": self_candidate},
        environment=environment,
    )
    model = rb.fit(data, "ease", environment=environment, lam=5.0)
    for each in (model, rb.load(model.save(tmp_path / "kept"))):
        for filter_seen in (True, False):
            lists = each.recommend(each.users.to_pylist(), 20, filter_seen)
            assert (lists["user"] == lists["item"]).any() == self_candidate
            # Nor as one that is new to the model, of which all that is known is some of its links.
            few = pd.DataFrame(links[::3], columns=["user", "item"])
            lists = each.recommend_new(few, 20, filter_seen)
            assert (lists["user"] == lists["item"]).any() == self_candidate


def in_time(cold_users, environment):
    """40 users buy on days 0 to 9; on days 10 and 11 the first 20 of them and five new users do."""
    rng = np.random.default_rng(4)
    old = [(f"u{user}", f"i{item}", day) for user in range(40) for day, item in enumerate(rng.permutation(60)[:10])]
    late = [f"u{user}" for user in range(20)] + [f"new{user}" for user in range(5)]
    new = [(user, f"i{item}", day) for user in late for day, item in zip((10, 11), 60 + rng.permutation(5)[:2], strict=True)]
    old += [(f"u{user}", f"i{item}", 3) for user in range(20, 40) for item in range(60, 65)]
    split = {"protocol": "temporal", "test": 0.09, "cold_users": cold_users}
    table = pd.DataFrame([*old, *new], columns=["user", "item", "time"])
    return rb.dataset(table, time="time", split=split, environment=environment)


@pytest.mark.parametrize("mode", ["drop", "popularity", "keep"])
def test_users_without_a_history_are_counted_and_ranked_as_the_card_says(environment, mode):
    data = in_time(mode, environment)
    assert data.counts["cold_test_users"] == 5
    records = {}
    for method in ("ease", "popularity"):
        job = Job(data.card, (configure(method, {}),), metrics=metric_set(["ndcg"], [5]))
        (outcome,) = run(job, environment, Execution(1))
        records[method] = outcome.record
        users = set(outcome.per_user["user"].to_pylist())
        assert len([user for user in users if user.startswith("new")]) == (0 if mode == "drop" else 5)
        assert outcome.record.users["measured"] == len(users) == (20 if mode == "drop" else 25)
        assert outcome.record.users["without_history"] == 5
        assert rb.fit(data, method, environment=environment).evaluate(environment=environment).left_out == (mode == "drop") * 5
    # EASE has the same score for every item, so that it must recommend what popularity does, and not the items of low ids.
    ease, popular = (records[method].groups["without_history"]["ndcg@5"] for method in ("ease", "popularity"))
    assert ease == popular > 0.3
    assert f"(cold_users: {mode})" in about_cold_users(list(records.values()))
    assert f"{popular:.4f}" in about_cold_users(list(records.values()))


def test_nothing_is_measured_if_no_user_has_a_history(environment):
    rows = [(f"u{user}", f"i{item}", item) for user in range(20) for item in range(6)]
    late = [(f"new{user}", f"i{item}", 9) for user in range(6) for item in (1, 3)]
    table = pd.DataFrame(rows + late, columns=["user", "item", "time"])
    data = rb.dataset(table, time="time", split={"protocol": "temporal", "test": 0.05, "valid": 0.2}, environment=environment)
    with pytest.raises(ConfigError, match="none of the 6 users to measure has a history"):
        rb.fit(data, "ease", environment=environment).evaluate(environment=environment)


def test_users_who_were_held_out_have_no_vector_and_so_no_lists_of_its_random_start(table, environment):
    data = rb.dataset(table, split="held-out-users", environment=environment)
    for method, unknown in (("ease", 0), ("bpr", 1)):
        about = {"patience": 0, "epochs": 1} if method == "bpr" else {}
        model, said = rb.fit(data, method, environment=environment, progress=False, **about), []
        model.recommend(model.users.to_pylist(), 1, unknown="skip", warn=said.append)
        assert len(said) == unknown


def test_an_evaluation_says_if_ties_decide_and_what_was_fitted(environment):
    found = rb.fit("synthetic", "itemknn", neighbours=1, environment=environment).evaluate(environment=environment)
    assert found.fit_on == "train+valid" and "end between items with equal scores" in repr(found)
