"""rb.datasets and rb.methods, and what `dir(rb)` shows."""

import pytest

import rankbench.api as rb
from rankbench.core.errors import ConfigError


def test_datasets_are_a_table_by_name(environment):
    table = rb.datasets(environment=environment)
    assert table.loc["synthetic", "raw_data"] == "built in"
    assert table.loc["gowalla", "users"] == 29858 and table.loc["gowalla", "raw_data"] == "offline"


def test_methods_are_a_table_by_name_and_their_parameters_too():
    table = rb.methods()
    assert {"ease", "ials", "talos"} <= set(table.index) and "tau" in table.loc["talos", "parameters"]
    assert rb.methods("ease").loc["lam", "description"]
    with pytest.raises(ConfigError, match=r"did you mean talos\?"):
        rb.methods("tallos")


def test_only_public_names_are_listed():
    assert dir(rb) == sorted(rb.__all__) and all(hasattr(rb, name) for name in rb.__all__)


def test_one_id_may_be_given_without_a_list(environment):
    model = rb.fit("synthetic", "ease", lam=100.0, changes={"source.generator.users": 60}, environment=environment)
    assert model.recommend(0, k=3).equals(model.recommend([0], k=3))
    assert model.recommend("0", k=3)["item"].equals(model.recommend([0], k=3)["item"])
    assert model.similar(1, k=3).equals(model.similar([1], k=3))
    with pytest.raises(ConfigError, match="unknown user id 'u17'"):
        model.recommend("u17")


def test_a_model_and_an_evaluation_say_what_they_are(environment):
    model = rb.fit("synthetic", "ease", lam=100.0, changes={"source.generator.users": 60}, environment=environment)
    assert repr(model).startswith("Model ease\n") and "lam=100.0" in repr(model) and "array" not in repr(model)
    evaluation = model.evaluate(metrics=["ndcg"], cutoffs=[5], environment=environment)
    assert "ndcg@5" in repr(evaluation) and "<table" in evaluation._repr_html_()
    assert evaluation.table.loc["ndcg@5", "mean"] == evaluation.metrics["ndcg@5"].mean
