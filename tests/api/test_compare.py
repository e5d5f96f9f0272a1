"""rankbench.api.compare: models and evaluations against each other."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy import stats

import rankbench.api as rb
from rankbench.core.errors import ConfigError, DataError
from rankbench.evaluation.summary import Interval

CARD = """
name: tiny
source: {generator: {users: 80, items: 40, interactions_per_user: 10}}
split: {seed: SEED}
"""


@pytest.fixture
def card(tmp_path):
    """A function from a split seed to the path of a card."""

    def make(seed):
        path = tmp_path / f"tiny-{seed}.yaml"
        path.write_text(CARD.replace("SEED", str(seed)))
        return str(path)

    return make


def evaluation(**columns):
    m = len(next(iter(columns.values())))
    frame = pd.DataFrame({"user": np.arange(m)} | columns)
    return rb.Evaluation({name: Interval(float(np.mean(v))) for name, v in columns.items()}, frame)


def test_models_are_measured_and_compared_with_the_best_and_the_baseline(environment, card):
    models = {
        "floor": rb.fit(card(0), "random", environment=environment),
        "ease": rb.fit(card(0), "ease", lam=50, environment=environment),
        "weak": rb.fit(card(0), "ease", lam=5000, environment=environment),
    }
    found = rb.compare(models, metric="ndcg@10", baseline="floor", environment=environment).set_index(["model", "against"])
    values = {n: m.evaluate(metrics=["ndcg@10"], environment=environment).per_user["ndcg@10"] for n, m in models.items()}
    best = max(values, key=lambda name: values[name].mean())
    assert {against for _, against in found.index} == {best, "floor"} and len(found) == 4
    for (model, against), row in found.iterrows():
        d = values[model] - values[against]
        assert row["difference"] == pytest.approx(d.mean()) and row["users"] == len(d)
        assert row["p_wilcoxon"] == pytest.approx(stats.wilcoxon(d.round(6), zero_method="pratt").pvalue)
    assert found.loc[(best, "floor"), "verdict"] == "better"


def test_models_that_were_fitted_on_different_parts_are_compared_with_a_warning(environment, card, caplog):
    models = {part: rb.fit(card(0), "ease", fit_on=part, environment=environment) for part in ("train", "train+valid")}
    rb.compare(models, metric="ndcg@10", environment=environment)
    said = "the models were fitted on train and on train+valid: a difference can come from that alone"
    assert said in caplog.text
    caplog.clear()
    measured = {part: model.evaluate(metrics=["ndcg@10"], environment=environment) for part, model in models.items()}
    rb.compare(measured, metric="ndcg@10", environment=environment)
    assert said in caplog.text


def test_equal_data_that_name_users_differently_are_refused(environment):
    """The rows of a matrix are its users, from 0; of the same data, a table may count them from 1."""
    X = sp.csr_array(np.random.default_rng(0).random((60, 30)) < 0.3)
    user, item = X.nonzero()
    table = pd.DataFrame({"user": user + 1, "item": item})
    models = {name: rb.fit(data, "ease", environment=environment) for name, data in {"rows": X, "table": table}.items()}
    assert len({each.evaluate(environment=environment).dataset for each in models.values()}) == 1
    with pytest.raises(DataError, match="rows and table each have users that the other one lacks, as if the files"):
        rb.compare(models, environment=environment)


def test_evaluations_are_taken_as_they_are_and_users_matched_by_id():
    rng = np.random.default_rng(0)
    first, second = (evaluation(hit=rng.random(50)) for _ in range(2))
    shuffled = rb.Evaluation(second.metrics, second.per_user.sample(frac=0.8, random_state=1))
    (row,) = rb.compare([first, shuffled], metric="hit").to_dict("records")
    assert (row["users"], row["left_out"]) == (40, 10) and {row["model"], row["against"]} == {"1", "2"}
    both = first.per_user.merge(shuffled.per_user, on="user")
    assert abs(row["difference"]) == pytest.approx(abs((both["hit_x"] - both["hit_y"]).mean()))


def test_no_model_takes_the_name_of_another():
    found = [rb.Evaluation({}, evaluation(hit=np.arange(3.0)).per_user, method) for method in ("ease", "ease", "ease 1")]
    with pytest.raises(ConfigError, match="models: ease 1 would be the name of two"):
        rb.compare(found, metric="hit")


def test_what_cannot_be_compared_is_refused(environment, card):
    one = rb.fit(card(0), "popularity", environment=environment)
    with pytest.raises(ConfigError, match="needs at least two models, got 1"):
        rb.compare([one], environment=environment)
    with pytest.raises(ConfigError, match="only evaluations on the same part of the same data can be compared"):
        rb.compare([one, rb.fit(card(1), "popularity", environment=environment)], environment=environment)
    with pytest.raises(ConfigError, match=r"1: has no per-user values of 'hitt'; did you mean hit\?"):
        rb.compare([evaluation(hit=np.ones(3))] * 2, metric="hitt")
    with pytest.raises(ConfigError, match="unknown baseline '3'"):
        rb.compare([evaluation(hit=np.ones(3))] * 2, metric="hit", baseline="3")
