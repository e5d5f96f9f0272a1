"""The leaderboard of this repository: complete, within its times, and saying what the README says of it."""

import re
from pathlib import Path

import pytest

from rankbench.core.environment import Environment
from rankbench.leaderboard.board import Board
from rankbench.leaderboard.collection import collection
from rankbench.leaderboard.entrants import entrants
from rankbench.leaderboard.options import ShowOptions
from rankbench.leaderboard.stored import board as stored_board

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


def test_the_readme_says_what_the_board_says(board):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    said = re.search(r"\[(\d+) methods on (\d+) datasets\]\(docs/results/leaderboard\.md\), (\d+) seconds each", text)
    assert said and [*map(int, said.groups())] == [len(board.ranking.methods), len(board.ranking.datasets), board.seconds]
    first, second = (each.method for each in board.standings[:2])
    assert f"`{first}` has the best mean rank" in text and f"then `{second}`" in text
