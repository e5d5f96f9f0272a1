"""Foreign lists in the table of a sweep: the lists of its own model are tested as identical to it, and stay when it goes on."""

import json

import pytest

import rankbench.api as rb
from rankbench.cli import _main
from rankbench.core.config import assignments
from rankbench.core.environment import Environment
from rankbench.schema.stored_sweep import read_sweep

EXPERIMENT = """
name: small
datasets:
  - {name: synthetic, source: {generator: {users: 200, items: 80, interactions_per_user: 12}}}
arms:
  - {method: popularity}
  - {method: ease, params: {lam: {grid: [10, 100]}}}
search: {choose: {metric: ndcg@10, on: valid}}
cutoffs: [10]
resources: {cpus: 1, concurrent: 1}
"""
CARD = ["data.source.generator.users=200", "data.source.generator.items=80", "data.source.generator.interactions_per_user=12"]


@pytest.fixture
def swept(home, at_once):
    (home / "small.yaml").write_text(EXPERIMENT)
    assert _main(["sweep", "small.yaml", "--json"]) == 0
    (folder,) = (home / "results" / "sweeps").iterdir()
    return folder


def test_the_lists_of_a_model_of_the_sweep_are_identical_to_its_row(swept, home, capsys):
    own = next(record for record in read_sweep(swept).finals if record.arm == "ease")
    environment, changes = (
        Environment.from_env(),
        {name.removeprefix("data."): value for name, value in assignments(CARD).items()},
    )
    data = rb.dataset("synthetic", changes=changes, environment=environment)
    model = rb.fit(data, "ease", fit_on=own.fit_on, progress=False, lam=own.params["lam"], environment=environment)
    lists = model.recommend(model.users.to_pylist(), k=60)
    lists.to_parquet(home / "twin.parquet")
    words = ["evaluate", "synthetic", "twin.parquet", *CARD, "--sweep", "small", "--no-track"]
    assert _main(words) == 0 and "rankbench report small" in capsys.readouterr().out
    assert _main(words) == 0 and capsys.readouterr()  # the same lists replace themselves
    assert _main(["report", "small", "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    rows = {row["model"]: row for row in table["rows"]}
    name = "twin (foreign lists)"
    assert [*rows] == ["popularity", "ease", name]
    assert rows[name]["metrics"]["ndcg@10"]["mean"] == rows["ease"]["metrics"]["ndcg@10"]["mean"]
    found = {(pair["model"], pair["metric"]): pair for pair in table["differences"]}
    twin = found.get((name, "ndcg@10")) or found["ease", "ndcg@10"]
    assert {twin["model"], twin["against"]} == {name, "ease"} and twin["verdict"] == "identical for every user"
    stored = read_sweep(swept)
    assert {each.model for each in stored.compared.models} == {*rows} and name not in {each.arm for each in stored.finals}

    assert _main(["sweep", "small.yaml", "--resume", "--json"]) == 0  # writes the tests of its own rows anew
    capsys.readouterr()
    assert _main(["report", "small", "--format", "csv"]) == 0 and name in capsys.readouterr().out
    lists[lists["rank"] < 50].to_parquet(home / "twin.parquet")
    assert _main(words) == 2 and "has other lists called twin (foreign lists)" in capsys.readouterr().err
    for more, problem in [
        ([*words, "--on", "valid"], "its table is of test"),
        ([*words[:3], "--sweep", "small"], "its synthetic has fingerprint"),
        ([*words[:3], *CARD, "data.name=other", "--sweep", "small"], "has no results on other; its datasets are synthetic"),
        ([*words[:3], *CARD, "--sweep", "large"], "no sweep large in"),
    ]:
        assert _main(more) == 2 and problem in capsys.readouterr().err
