"""Fits from the command line: what they remove, and what they leave alone."""

import re
import shlex

import pytest

from rankbench.cli import _main

pytestmark = pytest.mark.usefixtures("home")


@pytest.mark.parametrize("kind", ["checkpoints", "tiles"])
@pytest.mark.parametrize("is_saved", [False, True])
def test_files_of_others_in_the_way_are_not_removed(home, capsys, kind, is_saved):
    foreign = home / f"m.{kind}" / "thesis.txt"
    foreign.parent.mkdir()
    foreign.write_text("the only copy")
    if is_saved:
        (home / "m").mkdir()
        (home / "m" / "model.json").write_text("{}")
    assert _main(["fit", "synthetic", "popularity", "--out", "m"]) == 2
    error = capsys.readouterr().err
    assert "thesis.txt: in the way of this fit" in error and error.count("\n") == 1
    assert foreign.read_text() == "the only copy"


def test_what_a_killed_fit_has_left_is_removed(home, capsys):
    left = [home / "m.checkpoints" / "000002" / "values.json", home / "m.tiles" / "panel.json"]
    left.append(home / "m.checkpoints" / ".tmp-rankbench-000003-0123abcd" / "half")
    left.append(home / "m.tiles" / ".tmp-rankbench-0123abcd-panel.json")
    for path in left:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    assert _main(["fit", "synthetic", "ials", "iterations=1", "--out", "m"]) == 0
    assert {path.name for path in home.iterdir()} == {"data", "m"}


def test_the_next_command_can_be_pasted_whatever_an_id_is(home, capsys):
    user = "u1; touch x"
    lines = [f"{user if u == 0 else f'u{u}x'},i{i}" for u in range(9) for i in range(u % 3, 9)]
    (home / "raw.csv").write_text("\n".join(["user,item", *lines]) + "\n")
    (home / "shop.yaml").write_text("name: shop\nsource: {file: raw.csv}\nread: {format: delimited}\n")
    assert _main(["fit", "./shop.yaml", "popularity", "--out", "my model"]) == 0
    (said,) = re.findall("next: (.*)", capsys.readouterr().out)
    assert shlex.split(said)[-4:] == ["recommend", "my model", "--user", user]


def test_a_fit_says_which_parts_it_has_and_why(home, capsys):
    small = ["embedding_dim=2", "epochs=2", "n_negatives=2", "eval_every=1"]
    for number, (words, said) in enumerate({
        ("popularity",): "fitted on train and valid: the protocol of the split says so",
        ("popularity", "data.split.protocol=held-out-users"): "fitted on train: the protocol of the split says so",
        ("popularity", "--fit-on", "train"): "fitted on train: --fit-on train",
        ("popularity", "--fit-on", "all"): "fitted on train, valid and test: --fit-on all, so that no part is left to measure",
        ("bpr", *small, "patience=1"): "fitted on train: valid chose iteration",
    }.items()):  # fmt: skip
        method, *more = words
        assert _main(["fit", "synthetic", method, *more, "--out", f"m{number}"]) == 0
        assert said in capsys.readouterr().out
    for words, said in {
        ("bpr", "patience=1", "--fit-on", "all"): "no validation set",
        ("bpr", "--fit-on", "x"): "expected",
    }.items():
        assert _main(["fit", "synthetic", *words, "--out", "m"]) == 2
        assert said in capsys.readouterr().err
