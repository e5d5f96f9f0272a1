"""The store of a leaderboard."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from rankbench.core.errors import DataError
from rankbench.leaderboard.board import Board
from rankbench.leaderboard.results import POINTS, Leaderboard, Result, thinned, within

from .entries import entry


def result(entrant="ease", allowed="30s", **other):
    return entry("lastfm", entrant, allowed=allowed, budget=12.5, **other)


def test_what_was_added_is_read_again(tmp_path):
    results = Leaderboard(tmp_path / "store")
    first = result(params={"lam": 0.1234567890123}, metrics={"ndcg@20": (0.25, 0.2, 0.3), "coverage@20": (0.5, None, None)})
    table = pa.table({"user": ["b", "a"], "ndcg@20": np.array([0.1, 0.4], np.float32)})
    results.add(first, table)
    results.add(result("bpr", status="over budget", reason="the first fit was not complete in time"))
    again = Leaderboard(tmp_path / "store")
    assert [*again.all(Result)] == [*results.all(Result)] and len([*again.all(Result)]) == 2
    assert again.find(result()) == first
    users, values, _ = again.users_of(first, "ndcg@20")
    assert users.tolist() == ["b", "a"] and values == pytest.approx([0.1, 0.4])
    assert again.users_of(result("bpr"), "ndcg@20") is None


def test_another_budget_stays_and_the_same_entry_is_replaced(tmp_path):
    results = Leaderboard(tmp_path)
    for allowed, tried in (("10s", 1), ("30s", 2), ("10s", 3)):
        results.add(result(allowed=allowed, tried=tried))
    assert [(each.allowed, each.tried) for each in Leaderboard(tmp_path).all(Result)] == [("10s", 3), ("30s", 2)]


CHANGES = [
    {"precision": "float64"},
    {"threads": 2},
    {"metric": "recall@20"},
    {"rules": "others"},
    {"card": "other"},
    {"fingerprint": "other"},
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
def test_what_decides_a_result_is_part_of_its_key(tmp_path, change):
    """Two entries that differ in it stay side by side, each with the values of its users, whichever came last."""
    one = result(fingerprint="data", tried=1, started_at="1")
    other = replace(one, tried=2, started_at="2", **change)
    for number, order in enumerate(([one, other, one], [other, one, other])):
        results = Leaderboard(tmp_path / str(number))
        for each in order:
            results.add(each, pa.table({"user": ["a"], each.metric: np.array([each.tried], np.float32)}))
        again = Leaderboard(tmp_path / str(number))
        assert sorted(each.tried for each in again.all(Result)) == [1, 2]
        assert [again.find(replace(each, tried=0)) for each in (one, other)] == [one, other]
        assert [again.users_of(each, each.metric)[1].tolist() for each in (one, other)] == [[1.0], [2.0]]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (('"lastfm"', '"../../x"'), "lastfm.entries.jsonl:1: dataset: String should match"),
        (('"ease"', '"../ease"'), "lastfm.entries.jsonl:1: entrant: String should match"),
        (('"30s"', '"../x"'), "lastfm.entries.jsonl:1: allowed: String should match"),
        (('"budget": 12.5', '"budget": 0'), "lastfm.entries.jsonl:1: budget: Input should be greater than 0"),
        (('"threads": 1', '"threads": 0'), "lastfm.entries.jsonl:1: threads: Input should be greater than or equal to 1"),
        (
            ('"lastfm"', '"movielens-1m"'),
            "lastfm.entries.jsonl:1: dataset: is of 'movielens-1m', and the file has those of 'lastfm'",
        ),
    ],
)
def test_what_cannot_be_of_an_entry_is_refused(tmp_path, change, told):
    Leaderboard(tmp_path).add(result())
    path = tmp_path / "lastfm.entries.jsonl"
    path.write_text(path.read_text().replace(*change))
    with pytest.raises(DataError, match=told):
        Leaderboard(tmp_path)


def test_an_entry_on_data_that_have_changed_is_run_again(tmp_path):
    results = Leaderboard(tmp_path)
    results.add(result(fingerprint="old"))
    results.add(result("slow", status="over budget"))
    assert results.find(result(fingerprint="old")) and not results.find(result(fingerprint="new"))
    assert results.find(result("slow", fingerprint="new"))  # it does not know its data


def test_a_race_in_which_every_setting_diverged_is_over(tmp_path):
    """A larger budget does not try it again, as it does what failed, and the board of that budget has it, too."""
    results = Leaderboard(tmp_path)
    for status in ("diverged", "failed"):
        results.add(result(status, allowed="10s", status=status))
    later = {status: replace(result(status, allowed="100s"), budget=100.0) for status in ("diverged", "failed")}
    assert results.find(later["diverged"]).status == "diverged" and results.find(later["failed"]) is None
    assert [each.entrant for each in within(results.all(Result), "100s")] == ["diverged"]


def test_a_failure_replaces_nothing_that_was_measured(tmp_path):
    """Another machine may fail where this one did not, or was not in time."""
    results = Leaderboard(tmp_path)
    measured = result(metrics={"ndcg@20": (0.25, 0.2, 0.3)})
    results.add(measured)
    results.add(result(status="failed", reason="needs 1 GB of memory"))
    assert [*Leaderboard(tmp_path).all(Result)] == [measured]
    results.add(result("bpr", status="over budget", reason="late"))
    results.add(result("bpr", status="failed", reason="died"))
    assert [each.status for each in Leaderboard(tmp_path).all(Result)] == ["over budget", "finished"]


def test_values_of_users_belong_to_the_measurement_that_they_came_with(tmp_path):
    """The line of an entry travels with the store, the values of its users do not."""
    results = Leaderboard(tmp_path)
    table = pa.table({"user": ["a", "b"], "ndcg@20": np.array([0.1, 0.4], np.float32)})
    results.add(result(started_at="2026-11-24"), table)
    results.add(replace(result(), started_at="2026-11-25"))
    (entry,) = results.all(Result)
    assert results.users_of(entry, "ndcg@20") is None
    results.add(entry, table)
    assert results.users_of(entry, "ndcg@20") is not None


def test_users_without_a_history_are_stored_and_named_where_there_are_any(tmp_path):
    results = Leaderboard(tmp_path / "store")
    metrics = {"ndcg@20": (0.5, None, None)}
    for dataset, users in (("lastfm", {}), ("steam", {"measured": 6365, "without_history": 1285})):
        for entrant in ("ease", "bpr"):
            results.add(replace(result(entrant), dataset=dataset, metrics=metrics, users=users))
    assert "without_history" not in (tmp_path / "store" / "lastfm.entries.jsonl").read_text()
    lines = Board(tuple(Leaderboard(tmp_path / "store").all(Result)), "30s", "ndcg@20").conclusions()
    assert [line for line in lines if "history" in line] == [
        "Users without a history, who are measured as `cold_users` in the card says: 1,285 on steam."
    ]


def test_the_board_of_a_budget_has_the_last_result_of_races_that_were_over_before(tmp_path):
    races = {"ended": "settled"}
    lines = [
        entry(entrant="ease", ended="exhausted"), entry(entrant="sl", allowed="30s", budget=30.0, **races),
        entry(entrant="sl", ended="still gaining"), entry(entrant="bpr", ended="still gaining"),
        entry(entrant="ials", allowed="100s", budget=100.0, **races), entry(entrant="old"),
        entry(entrant="cml", status="not applicable"),
    ]  # fmt: skip
    ease, sl, _, _, ials, _, cml = lines
    assert {each.entrant: each for each in within(lines, "100s")} == {"ease": ease, "sl": sl, "ials": ials, "cml": cml}
    assert {each.allowed for each in within(lines, "10s")} == {"10s"} and len(within(lines, "10s")) == 5
    results = Leaderboard(tmp_path)
    for each in lines:
        results.add(each)
    assert results.find(entry(entrant="sl", allowed="300s", budget=300.0)) == sl
    assert results.find(entry(entrant="bpr", allowed="30s", budget=30.0)) is None


def test_a_curve_has_few_points_and_its_last_one():
    curve = [(1.0 + n / 10, float(n)) for n in range(1000)]
    few = thinned(curve)
    assert 25 <= len(few) <= POINTS and few[-1] == curve[-1] and set(few) < set(curve) and thinned(few) == few
