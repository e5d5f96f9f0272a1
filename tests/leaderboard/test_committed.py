"""The leaderboard of this repository: complete, within its times, and saying what the README says of it."""

import re
from pathlib import Path
from statistics import median

import pytest

from rankbench.core.environment import Environment
from rankbench.leaderboard.board import Board
from rankbench.leaderboard.collection import collection, sources
from rankbench.leaderboard.entrants import entrants
from rankbench.leaderboard.options import BoardOptions, ShowOptions
from rankbench.leaderboard.results import Leaderboard, Result
from rankbench.leaderboard.stored import board as stored_board
from rankbench.leaderboard.stored import boards

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def board() -> Board:
    return stored_board(ShowOptions(store=ROOT / "experiments" / "leaderboard"), Environment.from_env())


def test_every_method_is_on_every_dataset_of_the_collection_within_the_time(board):
    known, datasets = {*entrants("ndcg@20")}, {each.dataset for each in board.entries}
    assert datasets <= {*collection(Environment.from_env()).datasets}
    assert {(each.dataset, each.entrant) for each in board.entries} == {(name, method) for name in datasets for method in known}
    assert not any(each.status == "failed" for each in board.entries)
    assert all(each.seconds["all"] <= each.budget for each in board.entries if each.finished)
    assert all(each.default for each in board.entries if each.finished and each.tried > 1)


def test_the_methods_that_go_on_are_measured_on_every_dataset_of_a_larger_budget(board):
    text = (ROOT / "docs" / "leaderboard.md").read_text(encoding="utf-8")
    said = re.search(r"They are, best first, (.+?)\.", text, re.DOTALL)
    names = {*re.split(r",\s+|\s+and\s+", said[1])}
    assert len(names) == 30 and names <= {*board.ranking.methods}
    store, environment = Leaderboard(ROOT / "experiments" / "leaderboard"), Environment.from_env()
    for each in boards(BoardOptions(), store, sources(environment)):
        if each.seconds > board.seconds:
            assert names <= {*each.ranking.methods}
            assert all(of.status != "failed" and of.seconds.get("all", 0) <= of.budget for of in each.entries)


def test_the_readme_says_what_the_board_says(board):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    said = re.search(r"\[(\d+) methods on (\d+) datasets\]\(docs/results/leaderboard\.md\), (\d+) seconds each", text)
    assert said and [*map(int, said.groups())] == [len(board.ranking.methods), len(board.ranking.datasets), board.seconds]
    first, second = (each.method for each in board.standings[:2])
    assert f"`{first}` has the best mean rank" in text and f"then `{second}`" in text


def test_the_readme_says_what_more_time_gains(board):
    store, text = Leaderboard(ROOT / "experiments" / "leaderboard"), (ROOT / "README.md").read_text(encoding="utf-8")
    values = {(each.dataset, each.entrant): each.metrics["ndcg@20"][0] for each in board.entries if each.finished}
    early = [each for each in store.all(Result) if each.allowed == "10s" and each.finished]
    gains = {
        name: median(values[each.dataset, name] / each.metrics["ndcg@20"][0] - 1 for each in early if each.entrant == name)
        for name in ("sl", "lightgcn", "ease")
    }
    said = f"`sl` gains {100 * gains['sl']:.0f} %, `lightgcn` {100 * gains['lightgcn']:.0f} % and `ease` nothing"
    assert said in text and abs(gains["ease"]) < 0.005
