"""The figures of a leaderboard, by the numbers that they draw."""

import numpy as np
import pytest

from rankbench.judge.over_datasets import spread
from rankbench.leaderboard.comparable import ranking_of
from rankbench.leaderboard.figures import mean_ranks, quality_by_budget, shares_of_best

from .entries import entry

SOURCES = {"a": "one", "b": "one", "c": "two"}


def ranking(**values):
    """`values`: method → its value on the datasets a, b and c; None has no result."""
    results = [
        entry(dataset, name, value) if value is not None else entry(dataset, name, status="over budget")
        for name, own in values.items()
        for dataset, value in zip("abc", own, strict=True)
    ]
    return ranking_of(results, "ndcg@20", SOURCES)


def test_the_table_of_colours_has_shares_of_the_best_value_in_the_order_of_the_ranks():
    (panel,) = shares_of_best(ranking(ease=(0.2, 0.1, None), sl=(0.4, 0.4, 0.3)), "ndcg@20", "f").panels
    assert list(panel.rows) == ["sl", "ease"] and list(panel.columns) == ["a", "b", "c"]
    np.testing.assert_allclose(panel.shares, [[100, 100, 100], [50, 25, np.nan]])


def test_mean_ranks_have_their_intervals_and_the_best_is_the_first():
    found = spread(ranking(ease=(0.2, 0.1, 0.5), sl=(0.4, 0.4, 0.3), bpr=(0.1, 0.2, 0.1)))
    (panel,) = mean_ranks(found, "f").panels
    assert list(panel.rows) == ["sl", "ease", "bpr"]
    for place, name in enumerate(panel.rows):
        line, point = panel.marks[2 * place : 2 * place + 2]
        rank = found[name].mean_rank
        assert (line.x, line.y) == ([rank.low, rank.high], [place, place]) and (point.x, point.y) == ([rank.mean], [place])


def test_the_share_of_a_budget_is_of_the_best_value_at_any_budget_and_near_duplicates_count_once():
    small, large = ranking(ease=(0.2, 0.1, 0.4), sl=(0.1, 0.2, None)), ranking(ease=(0.2, 0.1, 0.4), sl=(0.4, 0.4, 0.5))
    other = ranking_of([entry("a", "ease", 0.9)], "ndcg@20", SOURCES)  # does not have all of the datasets
    (panel,) = quality_by_budget(large, [(10.0, small), (30.0, large), (100.0, other)], "ndcg@20", "f").panels
    drawn = {mark.name: mark for mark in panel.marks}
    assert list(drawn) == ["sl", "ease"] and all(list(mark.x) == [10.0, 30.0] for mark in drawn.values())
    assert drawn["sl"].y == pytest.approx([(0.25 / 2 + 0.5 / 2 + 0) / 2, 1])
    assert drawn["ease"].y == pytest.approx([(0.5 / 2 + 0.25 / 2 + 0.8) / 2] * 2)
    assert quality_by_budget(small, [(10.0, small)], "ndcg@20", "f") is None
