"""Stand-ins: named and labelled as such, of the right size, split as the card says, beside no published number."""

import json

import pytest

from rankbench.cli import _main
from rankbench.core.config import validate
from rankbench.core.environment import Environment
from rankbench.core.errors import ConfigError
from rankbench.data.cards import ORIGIN, card_names, load_card
from rankbench.data.prepare import prepare
from rankbench.schema.datasets import card_of
from rankbench.schema.experiment import ExperimentSpec
from rankbench.sweeps.plan import plan
from rankbench.sweeps.stand_in import stand_in, stand_in_card

BEAUTY = {
    "name": "paper-table",
    "datasets": ["amazon-beauty", "movielens-1m"],
    "arms": [
        {
            "name": "EASE",
            "method": "ease",
            "params": {"lam": {"grid": [10, 100]}},
            "published": {"amazon-beauty": {"recall@5": 0.5}, "gowalla": {"recall@5": 0.1}},
            "printed": {"amazon-beauty": {"lam": 22}},
            "chosen": {"amazon-beauty": {"lam": 33}, "movielens-1m": {"lam": 44}, "gowalla": {"lam": 55}},
        },
        {"method": "popularity"},
    ],
    "not_run": [{"name": "BigNet", "why": "not built here", "published": {"amazon-beauty": {"recall@5": 0.9}}}],
    "published": {"paper": "Paper", "table": 1},
    "search": {"choose": {"metric": "ndcg@5"}},
    "cutoffs": [5],
    "resources": {"concurrent": 1},
}


def spec_of(content):
    return validate(ExperimentSpec, content, "x.yaml")


def test_an_experiment_on_stand_ins_has_their_names_and_no_published_number(environment):
    spec = stand_in(spec_of(BEAUTY), environment, 0.02, "x.yaml")
    assert spec.name == "paper-table-stand-in"
    assert [entry["name"] for entry in spec.datasets] == ["amazon-beauty-stand-in-0.02", "movielens-1m-stand-in-0.02"]
    assert spec.published is None and spec.not_run == () and not any(arm.published or arm.printed for arm in spec.arms)
    assert "0.5" not in spec.model_dump_json() and "0.9" not in spec.model_dump_json()
    assert spec.arms[0].chosen == {"amazon-beauty-stand-in-0.02": {"lam": 33}, "movielens-1m-stand-in-0.02": {"lam": 44}}
    whole = stand_in(spec_of(BEAUTY), environment, 1, "x.yaml")
    assert [entry["name"] for entry in whole.datasets] == ["amazon-beauty-stand-in", "movielens-1m-stand-in"]


def test_its_plan_has_a_key_of_its_own_measures_the_papers_columns_and_takes_chosen_parameters(environment):
    small, smaller = (stand_in(spec_of(BEAUTY), environment, factor, "x.yaml") for factor in (0.02, 0.015))
    planned = plan(small, environment, 2, "x.yaml")
    assert planned.key != plan(smaller, environment, 2, "x.yaml").key
    assert "recall@5" in planned.metrics.names
    assert len(planned.search) == 2 * 3
    # What a sweep keeps in its folder is read back as the same experiment.
    again = ExperimentSpec.model_validate(json.loads(small.model_dump_json()))
    assert plan(again, environment, 2, "x.yaml").key == planned.key
    given = plan(small, environment, 2, "x.yaml", use_chosen=True).given
    assert [members[0].params.lam for members in given.values()] == [33, 44]


@pytest.mark.parametrize(
    ("name", "factor", "protocol", "text"),
    [
        ("amazon-beauty", 0.02, "random-per-user", "nobody has published parts of it"),
        ("movielens-1m-temporal", 0.05, "random-per-user", "since it has no times"),
        ("seq-amazon2014-beauty-last", 0.02, "leave-one-out", "not the last: it has no times"),
        ("movielens-20m", 0.01, "held-out-users", ""),
        ("wiki-vote", 0.05, "link-prediction", ""),
        ("movielens-1m", 0.05, "random-per-user", ""),
    ],
)
def test_a_stand_in_is_prepared_split_and_labelled(name, factor, protocol, text, environment):
    card = load_card(name, environment)
    made = stand_in_card(card, factor, "x.yaml")
    assert made.split.protocol == protocol and made.split.seed == card.split.seed
    assert f"{factor:g} of the size of {name}" in made.stand_in and text in made.stand_in
    dataset = prepare(made, environment)
    wanted = card.expect.prepared.users or card.expect.raw.users
    # Users that have no item of train after the split are dropped, so a few are missing.
    assert 0.9 * wanted * factor < dataset.counts["users"] <= wanted * factor + 1
    assert min(dataset.counts[part] for part in ("train", "valid", "test")) > 0
    assert not dataset.differences


def test_numbers_of_held_out_users_are_scaled_and_shares_are_not(environment):
    users = load_card("movielens-20m", environment)
    assert (users.split.valid, stand_in_card(users, 0.01, "x.yaml").split.valid) == (10_000, 100)
    share = load_card("amazon-beauty-2018", environment)
    assert stand_in_card(share, 0.01, "x.yaml").split == share.split
    whole = stand_in_card(users, 1, "x.yaml").source.generator
    assert (whole.users, whole.items) == (136_677, 20_108)
    assert whole.interactions_per_user == pytest.approx(9_990_682 / 136_677)


def test_built_in_data_stay_or_are_scaled(environment):
    card = load_card("synthetic", environment)
    assert stand_in_card(card, 1, "x.yaml") == card
    scaled = stand_in_card(card, 0.1, "x.yaml")
    assert (scaled.name, scaled.source.generator.users, scaled.source.generator.items) == ("synthetic-0.1", 200, 100)
    assert scaled.source.generator.tastes == card.source.generator.tastes
    assert "built-in data at 0.1 of the size of synthetic" in scaled.stand_in


def test_a_card_without_counts_is_refused_by_name(environment, tmp_path):
    (tmp_path / "shop.yaml").write_text("name: shop\nsource: {file: shop.csv}\nexpect: {raw: {users: 40}}")
    content = BEAUTY | {"datasets": [str(tmp_path / "shop.yaml")], "arms": [{"method": "ease"}], "not_run": []}
    with pytest.raises(ConfigError, match=r"x\.yaml: shop: no stand-in, .* how many items, interactions there are"):
        stand_in(spec_of(content), environment, 1, "x.yaml")


@pytest.mark.parametrize("factor", [0, -0.5, 1.01, float("nan")])
def test_a_factor_that_is_none_is_refused(factor, environment):
    with pytest.raises(ConfigError, match="--stand-in: expected a factor above 0 and at most 1"):
        stand_in(spec_of(BEAUTY), environment, factor, "x.yaml")


def test_every_card_of_the_catalogue_has_a_stand_in(environment):
    names = list(card_names(Environment.from_env()))
    assert len(names) > 50
    for name in names:
        made = stand_in_card(load_card(name, environment), 0.01, name)
        entry = {"name": made.name, "card": made.model_dump(mode="json", exclude=ORIGIN, exclude_none=True)}
        assert made.stand_in and card_of(entry, environment, name) == made
        split = made.split.model_dump()
        assert "published" not in split.values() and "time" not in (split.get("order"), split.get("targets_by"))


@pytest.fixture
def home(home):
    (home / "table.yaml").write_text(json.dumps(BEAUTY))
    return home


def test_a_dry_run_shows_rows_totals_and_what_the_data_are(home, capsys):
    assert _main(["sweep", str(home / "table.yaml"), "--stand-in", "0.02", "--dry-run"]) == 0
    text = capsys.readouterr().out
    header, *lines = text.splitlines()
    assert " ".join(header.split()) == "dataset model settings fits shared with cpus memory GB time per fit total time"
    assert lines[0].split()[:4] == ["amazon-beauty-stand-in-0.02", "EASE", "2", "2"]
    assert len([line for line in lines if line.startswith(("amazon-beauty-stand-in", "movielens-1m-stand-in"))]) == 4
    assert "  amazon-beauty-stand-in-0.02 is a stand-in: synthetic data at 0.02 of the size of amazon-beauty" in text
    assert "search: 6 fits, about" in text and "final: 4 fits, about" in text and "(rough)" in text
    assert f"writes {home}/results/sweeps/paper-table-stand-in-" in text and "10 records" in text
    assert not (home / "results").exists()


@pytest.mark.parametrize(
    "words", [(), ("--chosen",), ("search.by=tpe", "search.trials=5", "arms.0.params.lam={uniform: [1, 9]}")]
)
def test_a_dry_run_as_json_has_the_same_columns_for_every_search(home, capsys, words):
    assert _main(["sweep", str(home / "table.yaml"), "--stand-in", "0.02", "--dry-run", "--json", *words]) == 0
    output = json.loads(capsys.readouterr().out)
    columns = "dataset model stage state settings fits shared_with nodes cpus workers memory_gb seconds_a_fit seconds_in_all"
    assert [{*row} for row in output["rows"]] == [{*columns.split()}] * 4
    assert len(output["stand_ins"]) == 2 and output["writes"]["records"] > 0
    stages = {stage["name"]: stage["fits"] for stage in output["stages"]}
    if words == ("--chosen",):
        assert stages == {"final": 4} and len(output["given"]) == 4 and output["fits"] == []
    elif words:
        assert stages == {"search": 12, "final": 4} and len(output["fits"]) == 2
        assert {row["settings"] for row in output["rows"] if row["model"] == "EASE"} == {None}
    else:
        assert stages == {"search": 6, "final": 4} and [fit["fit"] for fit in output["fits"]] == [1, 2, 3, 4, 5, 6]
        assert [row["settings"] for row in output["rows"]] == [2, 1, 2, 1]
    for row in output["rows"]:
        assert row["seconds_in_all"] == pytest.approx(row["fits"] * row["seconds_a_fit"], rel=0.2, abs=0.2)
