"""The collection: each line is held to its rule and its card, near-duplicates count once together, and a mistake is named."""

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from rankbench.cli import _main
from rankbench.core.errors import ConfigError
from rankbench.data.cards import card_names, load_card
from rankbench.data.prepare import prepare
from rankbench.leaderboard.board import Board
from rankbench.leaderboard.collection import chosen_datasets, collection, every_member, sources
from rankbench.leaderboard.explorer import explorer

from .entries import entry

ROOT = Path(__file__).parents[2]
KINDS = {
    "random-per-user": "random",
    "temporal": "temporal",
    "leave-one-out": "leave-last",
    "held-out-users": "held-out users",
    "link-prediction": "graph",
}
FIRST_BOARD = {
    *("amazon-beauty", "citeulike", "gowalla", "irb-food-temporal", "lastfm", "movielens-100k", "movielens-1m"),
    *("movielens-1m-strong", "seq-steam-100k", "steam-purchases", "wiki-vote", "wikispeedia"),
}


@pytest.fixture
def members(environment):
    return collection(environment).datasets


def test_every_dataset_has_a_card_that_is_split_as_the_line_says(members, environment):
    assert len(members) >= 40
    for name, member in members.items():
        card = load_card(name, environment)
        assert card.source.licence and not card.source.generator and (name in FIRST_BOARD or not card.stand_in), name
        assert member.split == KINDS.get(card.split.protocol, member.split), name
        known = [n for n in (card.expect.prepared.interactions, card.expect.raw.interactions) if n]
        assert min(known) >= 20_000, name


def test_of_one_source_and_kind_there_are_two_at_most_and_no_data_are_cut_twice_alike(members, environment):
    assert max(Counter((each.source, each.split) for each in members.values()).values()) == 2
    cut = Counter((load_card(name, environment).mirror_folder, each.split) for name, each in members.items())
    assert max(cut.values()) == 1
    folders = {}
    for name, each in members.items():
        assert folders.setdefault(load_card(name, environment).mirror_folder, each.source) == each.source


def test_near_duplicates_count_once_beside_a_collection_of_ones_own(tmp_path, environment):
    (tmp_path / "experiments" / "leaderboard").mkdir(parents=True)
    own = "datasets: {movielens-100k: {domain: films, split: random, source: mine}}"
    (tmp_path / "experiments" / "leaderboard" / "datasets.yaml").write_text(own, encoding="utf-8")
    changed = replace(environment, home=tmp_path)
    found = sources(changed)
    assert list(collection(changed).datasets) == ["movielens-100k"] and found["movielens-100k"] == "mine"
    assert found["amazon-beauty"] == found["seq-amazon2014-toys"] == sources(environment)["amazon-beauty"]


def test_the_first_board_is_part_of_it(members):
    assert set(members) >= FIRST_BOARD


def test_the_page_says_how_many_of_each_kind_there_are(members):
    page = (ROOT / "docs" / "leaderboard.md").read_text(encoding="utf-8")
    said = {kind: int(n) for kind, n in re.findall(r"^\| `([a-z -]+)`: .* \| (\d+) \|$", page, re.MULTILINE)}
    assert said == Counter(each.split for each in members.values())
    assert f"the {len(members)} datasets" in page and f"from {len({each.source for each in members.values()})} sources" in page


@pytest.mark.slow
@pytest.mark.mirror
def test_every_dataset_is_as_large_as_the_rule_says(members, mirror_environment):
    for name in members:
        data = prepare(load_card(name, mirror_environment), mirror_environment)
        validation, test = data.split.holdout("valid", "train"), data.split.holdout("test", data.card.final_fit)
        tested = len(test.rows) - int(test.cold[test.rows].sum())
        assert data.counts["interactions"] >= 20_000 and tested >= 500, name
        assert len(validation.rows) * data.split.n_items <= 4e9, name


def own(tmp_path, environment, text):
    folder = tmp_path / "home" / "experiments" / "leaderboard"
    folder.mkdir(parents=True)
    (folder / "datasets.yaml").write_text(text)
    return replace(environment, home=tmp_path / "home")


def test_a_source_counts_once_however_many_of_its_datasets_are_asked_for(tmp_path, environment):
    lines = {"gowalla": "a", "lastfm": "b", "movielens-1m": "b", "movielens-100k": "b"}
    text = "".join(f"  {name}: {{domain: x, split: random, source: {source}}}\n" for name, source in lines.items())
    mine = own(tmp_path, environment, f"datasets:\n{text}")
    for names in (sorted(lines), ["gowalla", "movielens-1m"], ["a", "lastfm", "movielens-1m", "other"]):
        entries = tuple(entry(name, method, 0.1) for name in names for method in ("ease", "bpr"))
        found = Board(entries, "10s", "ndcg@20", sources=sources(mine)).ranking.weights
        given = [lines.get(name, f"own: {name}") for name in names]
        assert found.tolist() == pytest.approx([1 / given.count(source) for source in given])


def test_a_dataset_that_is_called_as_the_source_of_another_is_not_merged_with_it(tmp_path, environment):
    mine = own(tmp_path, environment, "datasets: {gowalla: {domain: x, split: random, source: mine}}\n")
    entries = [entry(name, method, 0.1) for name in ("gowalla", "mine") for method in ("ease", "bpr")]
    board = json.loads(explorer({"10s": entries}, "10s", {}, every_member(mine), "ndcg@20").data)
    found = {each["name"]: each["source"] for each in board["datasets"]}
    assert found["gowalla"] == "mine" != found["mine"]
    stated = f"datasets: {{gowalla: {{domain: x, split: random, source: '{found['mine']}'}}}}\n"
    with pytest.raises(ConfigError, match=re.escape("datasets.gowalla.source")):
        collection(own(tmp_path / "stated", environment, stated))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("datasets: {}\n", "datasets"),
        ("dataset: {}\n", "dataset: unknown key; did you mean datasets?"),
        (
            "datasets: {gowala: {domain: x, split: random, source: a}}\n",
            "datasets.gowala: no such dataset; did you mean gowalla?",
        ),
        ("datasets: {gowalla: {domain: x, split: radom, source: a}}\n", "datasets.gowalla.split"),
        ("datasets: {gowalla: {domain: x, split: random}}\n", "datasets.gowalla.source: missing"),
        ("datasets: {gowalla: {domain: x, split: random, source: a, size: 3}}\n", "datasets.gowalla.size: unknown key"),
        ("datasets: {gowalla: {domain: '<b>', split: random, source: a}}\n", "datasets.gowalla.domain"),
        (
            "datasets:\n  gowalla: {domain: x, split: random, source: a}\n  gowalla: {}\n",
            ":3: not valid YAML: key 'gowalla' is",
        ),
    ],
)
def test_a_mistake_is_named_with_file_and_row(text, message, tmp_path, environment):
    mine = own(tmp_path, environment, text)
    with pytest.raises(ConfigError) as error:
        collection(mine)
    assert str(error.value).startswith(str(mine.home / "experiments/leaderboard/datasets.yaml")) and message in str(error.value)
    assert "\n" not in str(error.value)


def test_words_select_from_all_datasets_and_the_collection_is_what_is_left_without_them(members, environment):
    assert chosen_datasets([], environment) == list(members)
    assert chosen_datasets(["!gowalla", "!sessions-*"], environment) == [
        name for name in members if name != "gowalla" and not name.startswith("sessions-")
    ]
    assert chosen_datasets(["synthetic", "gowalla-*"], environment) == [
        "synthetic", *(name for name in card_names(environment) if name.startswith("gowalla-")),
    ]  # fmt: skip


def test_the_command_measures_the_collection(tmp_path, environment, monkeypatch, capsys):
    mine = own(tmp_path, environment, "datasets: {no-such: {domain: x, split: random, source: a}}\n")
    monkeypatch.setenv("RANKBENCH_HOME", str(mine.home))
    assert _main(["leaderboard", "--methods", "popularity", "--dry-run"]) == 2
    assert "datasets.no-such: no such dataset" in capsys.readouterr().err
