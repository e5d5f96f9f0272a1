"""`rankbench study` as a user meets it: files, one JSON object, near misses."""

import json

import numpy as np
import pytest

from rankbench.cli import _main

from ..pictures import size_of

CARD = """
name: toy
source: {generator: {users: 60, items: 50, interactions_per_user: 12}}
split: {protocol: random-per-user, test: 0.2, valid: 0.2}
"""
SMALL = {
    "metric-inconsistency": ["list_lengths=25,40", "trials=200"],
    "threshold-error": ["epochs=2", "n_negatives=8", "K=5", "T_beta=1", "samples=4,8", "passes=5", "embedding_dim=4"],
    "theorems": ["trials=3", "K=5"],
    "epoch-time": ["losses=bpr,talos", "epochs=1", "n_negatives=4", "embedding_dim=4"],
}


@pytest.fixture(autouse=True)
def card(home):
    path = home / "toy.yaml"
    path.write_text(CARD)
    return path


def words(name, card):
    data = "datasets" if name == "metric-inconsistency" else "dataset"
    return ["study", name, f"{data}={card}", *SMALL[name]]


@pytest.mark.parametrize("name", SMALL)
def test_a_study_leaves_its_three_files_and_says_what_it_rests_on(name, card, tmp_path, capsys, drawn):
    folder = tmp_path / "out"
    assert _main([*words(name, card), "--out", str(folder), "--seed", "3", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert sorted(path.name for path in folder.iterdir()) == ["plot.png", "result.json", "table.md"]
    result = json.loads((folder / "result.json").read_text())
    assert result["rows"] == printed["rows"] and result["seed"] == 3
    assert result["environment"]["packages"]["torch"] and result["datasets"][0]["fingerprint"]
    assert all(set(result["columns"]) <= set(row) for row in result["rows"])
    table = (folder / "table.md").read_text().splitlines()
    assert sum(line.startswith("|") for line in table) == len(result["rows"]) + 2
    (panels,) = drawn
    numbers = [value for row in result["rows"] for value in row.values() if isinstance(value, float)]
    points = np.concatenate(panels)  # each is a number of a row, beside a place on the axis
    assert len(points) >= len(result["rows"]) and np.isclose(points[:, :, None], numbers).any(axis=(1, 2)).all()
    size_of(folder / "plot.png")


def test_times_are_set_against_sl_and_bpr_has_one_negative(card, capsys):
    assert _main([*words("epoch-time", card), "--json"]) == 0
    rows = {row["loss"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert set(rows) == {"sl", "bpr", "talos"}
    assert rows["bpr"]["negatives"] == 1 and rows["talos"]["negatives"] == 4
    assert rows["sl"]["against_sl"] == 1
    assert rows["talos"]["against_sl"] == pytest.approx(rows["talos"]["seconds"] / rows["sl"]["seconds"])
    assert all(row["published"] is None for row in rows.values())  # the paper knows no such data


@pytest.mark.parametrize(("length", "published"), [(64, 0.42), (4, None)])
def test_published_seconds_stand_beside_those_of_the_papers_setting_alone(card, capsys, monkeypatch, length, published):
    monkeypatch.setattr("rankbench.studies.epoch_time.DATASETS", {str(card): "Beauty"})
    words = ["study", "epoch-time", f"dataset={card}", "losses=sl", "epochs=1", f"embedding_dim={length}", "--json"]
    assert _main(words) == 0
    assert [row["published"] for row in json.loads(capsys.readouterr().out)["rows"]] == [published]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["metric-inconsistent"], "did you mean metric-inconsistency?"),
        (["threshold-error", "n_negative=3"], "did you mean n_negatives?"),
        (["threshold-error", "samples=4,many"], "samples"),
        (["threshold-error", "samples=0"], "samples must be > 0"),
        (["epoch-time", "losses=tallos"], "did you mean talos?"),
        (["metric-inconsistency", "datasets=amazon-beaty"], "did you mean amazon-beauty?"),
        (["metric-inconsistency", "list_lengths=20"], "list_lengths must be > K"),
        (["theorems", "epsilon=1"], "epsilon must lie in (0, 1)"),
        (["metric-inconsistency", "list_lengths=99999999999999999999"], "list_lengths must be <= 10,000,000"),
    ],
)
def test_what_is_wrong_is_one_line_and_exit_code_2(given, said, capsys, tmp_path):
    assert _main(["study", *given]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
    assert not list((tmp_path / "results").rglob("result.json"))


def test_the_list_names_every_study_and_its_parameters(capsys):
    assert _main(["study", "--json"]) == 0
    listed = {each["name"]: {p["name"] for p in each["params"]} for each in json.loads(capsys.readouterr().out)}
    assert set(listed) == set(SMALL) and "n_negatives" in listed["threshold-error"]
    assert _main(["study"]) == 0
    assert "epoch-time" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["metric-inconsistency", "threshold-error"])
def test_the_same_seed_gives_the_same_rows(name, card, capsys):
    for seed in ("0", "0", "1"):
        assert _main([*words(name, card), "--seed", seed, "--json"]) == 0
    first, again, other = (json.loads(text + "\n}") for text in capsys.readouterr().out.split("\n}\n")[:3])
    assert first["rows"] == again["rows"] != other["rows"]
