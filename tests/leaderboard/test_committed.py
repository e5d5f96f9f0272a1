"""The leaderboard of this repository: complete, within its budgets, and saying what the README says of it."""

from pathlib import Path

import numpy as np
import pytest

from rankbench.leaderboard.board import Board, comparable
from rankbench.leaderboard.results import Leaderboard, Result

STORE = Path(__file__).parents[2] / "experiments" / "leaderboard"
APART, BY_TIME = "movielens-1m-strong", {"irb-food-temporal": 2, "seq-steam-100k": 8}
FAMILIES = ("ials", "rg-authors", "deql-l2", "rgx-sgd", "bsl", "bpr", "lightgcn", "popularity")


@pytest.fixture(scope="module")
def board() -> Board:
    entries, notes = comparable([each for each in Leaderboard(STORE).all(Result) if each.allowed == "10s"])
    return Board(tuple(entries), "10s", "ndcg@20", notes)


def test_every_method_is_on_every_dataset_within_the_budget(board):
    assert len(board.entries) == 12 * 65 and len(board.ranking.methods) == 65 and not board.left_out
    assert len(board.ranking.datasets) == 11 and list(board.datasets_apart) == [APART]
    assert all(each.seconds["all"] <= 1.1 * each.budget for each in board.entries if each.finished)
    assert not any(each.status == "failed" for each in board.entries)
    assert {each.dataset for each in board.entries if each.status == "not applicable"} == {APART}


def test_alternating_least_squares_leads_as_the_readme_says(board):
    assert {board.ranking.methods[i] for i in board.ranking.order[:2]} == {"rg-authors", "ials"}
    few = Board(tuple(e for e in board.entries if e.entrant in FAMILIES and e.dataset != APART), "10s", "ndcg@20")
    p_values = {frozenset((each.method, each.against)): each.p_holm for each in few.paired}
    assert [round(p_values[frozenset((name, "bsl"))], 2) for name in ("ials", "rg-authors")] == [0.03, 0.03]


def test_deql_is_near_the_best_unless_the_catalogue_is_large(board):
    standings = board.ranking
    near = standings.values[:, standings.methods.index("deql-l2")] >= 0.95 * np.nanmax(standings.values, axis=1)
    assert near.sum() == 6
    lost = [each for each in board.entries if each.entrant == "deql-l2" and not each.finished]
    assert {each.dataset for each in lost} == {"citeulike", "gowalla"}


def test_popularity_is_near_the_top_where_data_are_split_by_time(board):
    standings = board.ranking
    column = standings.methods.index("popularity")
    assert {name: standings.ranks[standings.datasets.index(name), column] for name in BY_TIME} == BY_TIME
