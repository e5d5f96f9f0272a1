"""Experiments that select datasets and methods by patterns, families and `all`."""

import pytest

from rankbench.core.errors import ConfigError
from rankbench.data.cards import card_names
from rankbench.experiment.job import configure
from rankbench.experiment.methods import families, registered
from rankbench.experiment.ranges import space_of
from rankbench.fitting.families import FAMILIES
from rankbench.schema.reading import load_experiment
from rankbench.sweeps.plan import plan
from rankbench.sweeps.selection import by_name, of_methods


def load(text, tmp_path, environment, **changes):
    path = tmp_path / "some.yaml"
    path.write_text(text, encoding="utf-8")
    return by_name(load_experiment(path, changes), environment, "some.yaml")


def test_all_is_every_card_and_every_method(tmp_path, environment):
    spec = load("{name: everything, datasets: all, methods: all}", tmp_path, environment)
    assert list(spec.datasets) == list(card_names(environment))
    assert [arm.method for arm in spec.arms] == registered().names()


def test_patterns_and_families_and_what_they_leave_out(tmp_path, environment):
    text = """
name: some
datasets: ['movielens-1m*', '!*-temporal', {name: 'irb-douban-*', split: {seed: 7}}, gowalla]
methods: ['debiased-*', family: softmax, '!family:debiased']
"""
    spec = load(text, tmp_path, environment)
    names = [name for name in card_names(environment) if name.startswith("movielens-1m") and not name.endswith("-temporal")]
    douban = [name for name in card_names(environment) if name.startswith("irb-douban-")]
    assert len(names) > 1 and len(douban) > 1
    assert list(spec.datasets) == [*names, *({"name": name, "split": {"seed": 7}} for name in douban), "gowalla"]
    members = {each.name for each in registered() if "softmax" in each.families and "debiased" not in each.families}
    assert {arm.method for arm in spec.arms} == members


def test_an_entry_of_its_own_comes_before_a_pattern(tmp_path, environment):
    text = "{name: own, datasets: ['movielens-1*', {name: movielens-1m, split: {seed: 3}}], methods: [family: linear],"
    spec = load(text + " arms: [{method: ease, params: {lam: {grid: [1, 2]}}}]}", tmp_path, environment)
    assert {"name": "movielens-1m", "split": {"seed": 3}} in spec.datasets and "movielens-1m" not in spec.datasets
    (own,) = [arm for arm in spec.arms if arm.method == "ease"]
    assert own.params == {"lam": {"grid": [1, 2]}}
    named = load(text + " arms: [{method: ease, name: mine}]}", tmp_path, environment)
    assert [arm.label for arm in named.arms if arm.method == "ease"] == ["mine"]


def test_fits_end_by_the_metric_that_chooses_settings(tmp_path, environment):
    methods = "[bpr, ials, {method: sl, params: {stop_metric: mrr@20}}, {method: psl, params: {patience: 0}}, ease]"
    text = f"{{name: some, datasets: synthetic, methods: {methods}, search: {{choose: {{metric: METRIC}}}}}}"
    stated = {}
    for metric in ("recall@50", "ndcg@20", "auc@20"):
        arms = load(text.replace("METRIC", metric), tmp_path, environment).arms
        stated[metric] = {arm.label: arm.params["stop_metric"] for arm in arms if "stop_metric" in arm.params}
    by_hand = {"sl": "mrr@20"}
    assert stated == {"recall@50": {"bpr": "recall@50"} | by_hand, "ndcg@20": by_hand, "auc@20": by_hand}
    patient = load(
        text.replace("METRIC", "recall@50").replace("ials", "{method: ials, params: {patience: 5}}"), tmp_path, environment
    )
    assert next(arm for arm in patient.arms if arm.label == "ials").params["stop_metric"] == "recall@50"


def test_params_go_to_the_methods_that_have_them(tmp_path, environment):
    text = "{name: some, datasets: synthetic, methods: [{method: 'deql-l*', params: {p: 0.3}}, ials, popularity], params: "
    spec = load(text + "{iterations: 3, lam: 7.0, p: 0.9}}", tmp_path, environment)
    params = {arm.method: arm.params for arm in spec.arms}
    assert params["deql-l2"] == {"lam": 7.0, "p": 0.3}  # the nearer value counts
    assert params["ials"] == {"iterations": 3, "lam": 7.0} and params["popularity"] == {}
    text = "{name: some, datasets: synthetic, methods: ['deql-l*', {method: deql-l2, params: {p: 0.3}}, {family: linear}]}"
    params = {arm.method: arm.params for arm in load(text, tmp_path, environment).arms}
    assert params.pop("deql-l2") == {"p": 0.3} and params["ease"] == {} and {*map(len, params.values())} == {0}


def test_with_the_registry_an_arm_without_a_range_gets_those_of_its_method(tmp_path, environment):
    arms = "arms: [{method: ease, params: {lam: {grid: [1, 2]}}}, {method: bpr, params: {learning_rate: 0.1, epochs: 3}},"
    text = f"{{name: some, datasets: synthetic, {arms} {{method: popularity}}, {{method: bpr, name: deep, params: "
    text += "{model: lightgcn}}], search: registry}"
    spec = load(text, tmp_path, environment, **{"search.trials": 4})
    ease, bpr, popularity, deep = spec.arms
    assert ease.params == {"lam": {"grid": [1, 2]}} and ease.ranges is None
    assert bpr.searched == ["weight_decay"] and bpr.params["learning_rate"] == 0.1 and bpr.ranges == "registry"
    assert popularity.params == {} and popularity.ranges is None
    assert set(deep.searched) == {"learning_rate", "weight_decay", "n_layers"}
    assert by_name(spec, environment, "again") == spec
    text = text.replace("search: registry", "search: none")
    none = load(text, tmp_path, environment)
    assert none.arms[0].searched == ["lam"] and not none.arms[1].searched
    one = load(text.replace("{model: lightgcn}", "{model: lightgcn}, ranges: registry"), tmp_path, environment)
    assert [arm.ranges for arm in one.arms] == [None, None, None, "registry"] and one.arms[3].searched == deep.searched


def test_a_number_that_is_given_is_not_searched_in_its_other_form():
    assert {"lam", "lam_prime"} & space_of(configure("deql-l2", {})).keys() == {"lam"}
    assert not {"lam", "lam_prime"} & space_of(configure("deql-l2", {"lam": 100}), ["lam"]).keys()
    assert not {"lam", "lam_prime"} & space_of(configure("deql-l2", {"lam_prime": 100}), ["lam_prime"]).keys()


def test_the_defaults_are_the_first_setting_in_the_ranges_of_the_registry(tmp_path, environment):
    text = "{name: some, datasets: synthetic, arms: [{method: bce, params: {model: neumf}}], search: registry}"
    planned = plan(load(text, tmp_path, environment, **{"search.trials": 60}), environment, 2, "some.yaml")
    settings = [config for unit in planned.search for config in unit.job.configs]
    assert settings[0].flat == configure("bce", {"model": "neumf"}).flat and len({str(each.flat) for each in settings}) > 40
    assert all(each.flat["network"] != "he" or each.flat["gmf_dim"] < 64 for each in settings)  # others do not fit together
    assert any(note.startswith(f"bce: {len(settings)} of 60 settings are planned: other draws") for note in planned.notes)
    adaptive = plan(load(text, tmp_path, environment, **{"search.by": "tpe"}), environment, 2, "some.yaml")
    assert adaptive.search[0].job.configs[0].flat == settings[0].flat and adaptive.n_fits == 10


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{name: a, datasets: synthetic, methods: ease, search: al}", "search.ranges: expected 'none' or 'registry'"),
        ("{name: a, datasets: 'movilens-*', methods: ease}", "some.yaml: datasets: 'movilens-*' matches nothing; did you mean"),
        ("{name: a, datasets: synthetic, methods: [eas]}", "some.yaml: methods: unknown method 'eas'; did you mean ease?"),
        ("{name: a, datasets: synthetic, methods: [ease], params: {lamb: 3}}", "params.lamb: none of the methods has this"),
        ("{name: a, datasets: synthetic, methods: [{method: ease, family: als}]}", "give method or family"),
        (
            "{name: a, datasets: synthetic, arms: [{method: ease, ranges: registry}], params: {lam: {grid: [1, 2]}}}",
            "some.yaml: params: lam has a range here, and ease has ranges: registry; leave one of them out",
        ),
        ("{name: a, datasets: synthetic}", "give arms or methods"),
        (
            "{name: a, datasets: [synthetic, {name: '!gowalla', split: {seed: 1}}], methods: ease}",
            "!gowalla leaves datasets out, so changes of a card have no effect",
        ),
        (
            "{name: a, datasets: synthetic, methods: [ease, {method: '!ials', params: {lam: 3}}]}",
            "!ials leaves methods out, so params have no effect",
        ),
        (
            "{name: a, datasets: synthetic, methods: [{method: ease, params: {lam: 3}}, {method: ease, params: {lam: 4}}]}",
            "some.yaml: methods: ease is given twice with other params",
        ),
        (
            "{name: a, datasets: synthetic, methods: ease, claims: [{text: t, better: [ease], than: [esae], metric: ndcg@5}]}",
            "some.yaml: claims[0]: no arm 'esae'; did you mean ease?",
        ),
    ],
)
def test_a_selection_without_a_match_is_one_line(text, message, tmp_path, environment):
    with pytest.raises(ConfigError) as error:
        load(text, tmp_path, environment)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_arms_of_methods(tmp_path, environment):
    text = "{name: a, datasets: synthetic, arms: [{method: ease}, {method: ease, name: two}, {method: sl}, {method: bpr}]}"
    spec = load(text, tmp_path, environment)
    assert [arm.label for arm in of_methods(spec, ["family:linear"], "x").arms] == ["ease", "two"]
    with pytest.raises(ConfigError, match="selects none of its methods, ease, sl, bpr"):
        of_methods(spec, ["family:als"], "x")


def test_every_method_of_the_package_declares_known_families():
    for each in registered():
        assert each.families and set(each.families) <= set(FAMILIES), each.name
    assert set(families()) == set(FAMILIES)
