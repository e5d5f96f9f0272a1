"""Which entries of a store are ranked: methods, datasets and metrics that are left out, and what a board says about them."""

import re
from dataclasses import replace

import numpy as np
import pytest

from rankbench.judge.declared import Declared
from rankbench.leaderboard.board import Board
from rankbench.leaderboard.collection import Collection
from rankbench.leaderboard.comparable import ranking_of
from rankbench.leaderboard.options import BoardOptions, ShowOptions
from rankbench.leaderboard.results import Leaderboard
from rankbench.leaderboard.site import write_site, write_summary
from rankbench.leaderboard.stored import board as stored_board
from rankbench.leaderboard.stored import boards

from .entries import entry

ANY = Collection.model_validate({"datasets": {"a": {"domain": "x", "split": "random", "source": "a"}}}).datasets


def test_methods_that_were_not_run_everywhere_are_left_out():
    results = [
        entry("b", "ease", 0.2), entry("b", "bpr", 0.1), entry("b", "dense", status="over budget"), entry("b", "late", 0.3),
        entry("a", "ease", 0.3), entry("a", "bpr", 0.4), entry("a", "dense", 0.5), entry("a", "new", 0.9),
        entry("c", "ease", status="failed"), entry("c", "bpr", status="over budget"),
        entry("a", "late", status="not applicable"),
    ]  # fmt: skip
    board = ranking_of(results, "ndcg@20")
    assert board.datasets == ("a", "b") and board.methods == ("bpr", "dense", "ease")
    np.testing.assert_array_equal(board.values, [[0.4, 0.5, 0.3], [0.1, np.nan, 0.2]])
    assert ranking_of([], "ndcg@20").methods == ()


def test_an_entry_without_the_metric_counts_as_not_run(tmp_path):
    results = [
        entry(dataset, name, 0.1 * number) for dataset in "abc" for number, name in enumerate(("bpr", "ease", "ials"), 1)
    ]
    by_mrr = [
        replace(each, metric="mrr@5", metrics={"mrr@5": (0.9, None, None)}) for each in results[:4] if each.entrant == "bpr"
    ]
    kept = [each for each in results if (each.dataset, each.entrant) not in {(one.dataset, one.entrant) for one in by_mrr}]
    board = ranking_of([*by_mrr, *kept], "ndcg@20")
    assert board.methods == ("ease", "ials") and not np.isnan(board.values).any()
    store = Leaderboard(tmp_path / "store")
    for each in (*by_mrr, *kept):
        store.add(each)
    (shown,) = boards(BoardOptions(), store, {})
    assert shown.metric == "ndcg@20" and shown.left_out == {"bpr": 1}
    paths = {path.name: path for path in write_site(tmp_path / "site", [shown], store, {}, ANY)}
    page = paths["dataset-a.html"].read_text(encoding="utf-8")  # the values of users, which tests need, are not here
    assert "No tests: they need two methods" in page and "compared with the best one" not in page


def test_a_failure_says_nothing_of_a_method_and_what_is_late_is_the_last():
    results = [entry(dataset, name, value) for dataset in "ab" for name, value in (("ease", 0.2), ("bpr", 0.1))]
    lost = entry("b", "new", status="failed", reason="needs 30 GB of memory")
    board = Board((*results, entry("a", "new", 0.9), lost), "10s", "ndcg@20")
    assert board.ranking.methods == ("bpr", "ease") and board.left_out == {"new": 1}
    assert any(line.endswith("counts as not measured; the next command tries again: new on b.") for line in board.caveats())
    for status in ("over budget", "diverged"):
        late = Board((*board.entries[:-1], replace(lost, status=status)), "10s", "ndcg@20")
        assert {each.method: (each.mean_rank, each.no_result) for each in late.standings}["new"] == (2.0, 1)
        assert not any("Failed" in line for line in late.conclusions())


def test_equal_mean_ranks_share_a_place_and_none_of_them_is_called_the_best():
    values = {"ease": (0.3, 0.3, 0.2, 0.2), "ials": (0.2, 0.2, 0.3, 0.3), "bpr": (0.1,) * 4, "copy": (0.1,) * 4}
    results = [entry(dataset, name, each[i]) for i, dataset in enumerate("abcd") for name, each in values.items()]
    board = Board(tuple(results), "10s", "ndcg@20")
    assert [(each.method, each.place) for each in board.standings] == [("ease", 1), ("ials", 1), ("bpr", 3), ("copy", 3)]
    assert "ease and ials share the best mean rank, 1.5." in board.conclusions()


def test_which_processor_measured_which_dataset_is_said(tmp_path):
    store = Leaderboard(tmp_path / "store")
    for dataset, cpus in {"a": ("Intel", "Intel"), "b": ("Intel", "Intel"), "c": ("Intel", "AMD"), "d": ("AMD", "AMD")}.items():
        for name, value, cpu in zip(("ease", "bpr"), (0.2, 0.1), cpus, strict=True):
            store.add(entry(dataset, name, value, cpu=cpu))
    (shown,) = boards(BoardOptions(), store, {})
    said = " ".join(shown.caveats())
    assert "AMD: d; AMD and Intel: c; Intel: the other 2." in said
    assert shown.facts()["processors"]["c"] == {"Intel": 1, "AMD": 1}
    assert "Entries on one dataset had different processors, so their budgets are not equal: c (1 on Intel, 1 on AMD)." in said
    page, *_ = write_summary(tmp_path / "standings.md", [shown], {})
    text = page.read_text(encoding="utf-8")
    assert said.split(". ")[0] in text and "processors: AMD and Intel;" in text
    assert re.search(r"\| a +\|.*\| Intel +\|", text) and re.search(r"\| c +\|.*\| Intel; AMD +\|", text)
    paths = {path.name: path.read_text(encoding="utf-8") for path in write_site(tmp_path / "site", [shown], store, {}, ANY)}
    assert "<dt>processor</dt><dd>Intel</dd>" in paths["dataset-a.html"]
    assert "<dt>processors</dt><dd>AMD and Intel</dd>" in paths["dataset-c.html"] and ">AMD</td>" in paths["dataset-c.html"]
    assert ">AMD</td>" not in paths["dataset-d.html"] and ">AMD</td>" in paths["method-ease.html"]
    assert "c,10s" in paths["entries.csv"] and {*re.findall("AMD|Intel", paths["entries.csv"])} == {"AMD", "Intel"}
    (alone,) = boards(BoardOptions(datasets=["a", "b"]), store, {})
    assert not any("processor" in line for line in alone.conclusions())


@pytest.mark.parametrize(("last", "told"), [(0.9, "ease is better than sl (p"), (0.4, "none of 1 differs significantly")])
def test_a_pair_whose_mean_and_ranks_disagree_is_not_told(last, told):
    """One dataset moves the mean of twelve the other way; Wilcoxon's test alone would tell the pair."""
    worse = [*(0.9 - 0.001 * n for n in range(11)), 0.9]
    entries = [entry(f"d{n:02}", "sl", value) for n, value in enumerate(worse)]
    entries += [entry(f"d{n:02}", "ease", 0.91 if n < 11 else last + 0.05) for n in range(12)]
    declared = Declared(fixed="2026-01-01", pairs=(("ease", "sl"),))
    board = Board(tuple(entries), "10s", "ndcg@20", declared=declared)
    (pair,) = board.paired
    assert pair.p_holm < 0.05 and (pair.difference > 0) == (last > 0.5) and pair.better > pair.worse
    assert any(told in line for line in board.conclusions())


def test_how_races_ended_and_what_their_searches_gained_is_said():
    values = {"settled": (0.2, 0.1), "exhausted": (0.3, 0.3), "still gaining": (0.11, 0.1)}
    entries = [
        entry("a", name[0], value, ended=name, default={"ndcg@20": own}, tried=tried)
        for tried, (name, (value, own)) in zip((12, 1, 3), values.items(), strict=True)
    ]
    said = Board((*entries, entry("a", "x", 0.1, ended="settled")), "10s", "ndcg@20").conclusions()
    assert "Would more time help? 2 settled, 1 exhausted, 1 still gaining." in said
    gain = "better than the defaults by 10.0 % in the median of 3 entries, of which 1 ended with the value of the defaults and"
    assert f"The searched setting is {gain} 1 tried nothing else; by 100.0 % in the 1 that tried 10 settings or more." in said


def test_a_method_that_beats_most_others_is_named_if_missing_results_cost_it_the_best_rank():
    values = {"sure": 0.8, "bold": 0.9, "a": 0.4, "b": 0.3, "c": 0.2, "d": 0.1}
    results = [
        entry(dataset, name, status="over budget") if name == "bold" and dataset in "de" else entry(dataset, name, value)
        for dataset in "abcde"
        for name, value in values.items()
    ]
    board = Board(tuple(results), "10s", "ndcg@20", sources={name: name for name in "abcdefg"})
    said = " ".join(board.conclusions())
    assert (
        "One by one, bold beats the most methods (+5 wins − losses), although its mean rank is at place 3; it has no result "
        in said
    )
    assert "2 of the 7 datasets of the collection are not on this board: f, g." in said


def test_luck_that_datasets_share_and_other_code_on_one_dataset_are_said():
    about = {"a": ("asha", "1", "1"), "b": ("asha", "1", "2"), "c": ("asha by dataset", "2", "2")}
    entries = [
        entry(dataset, name, 0.1, search=search, revision=revision)
        for dataset, (search, *revisions) in about.items()
        for name, revision in zip(("ease", "bpr"), revisions, strict=True)
    ]
    said = " ".join(Board(tuple(entries), "10s", "ndcg@20").caveats())
    assert "On 2 of the 3 datasets, the races of a method tried the same settings" in said
    assert "of several revisions of the code, between which a method may differ: b (2)." in said
    alone = " ".join(Board(tuple(each for each in entries if each.dataset != "b"), "10s", "ndcg@20").caveats())
    assert "same settings" not in alone and "revisions" not in alone


def test_other_budgets_of_the_store_are_named(tmp_path, environment):
    store = Leaderboard(tmp_path)
    for each in (entry(), entry(entrant="sl"), entry(allowed="30s", budget=30.0)):
        store.add(replace(each, metrics={"ndcg@20": (0.1, None, None)}))
    shown = stored_board(ShowOptions(store=tmp_path), environment)
    assert shown.allowed == "10s" and shown.notes == ("Shown are entries to 10s; the option budget shows others: 1 to 30s.",)
    (note,) = stored_board(ShowOptions(store=tmp_path, budget="30s"), environment).notes
    assert note == "Without an entry at 30s, and so not on this board: sl."


def test_a_dataset_whose_races_did_not_go_on_is_not_on_the_board_of_a_larger_budget(tmp_path):
    store = Leaderboard(tmp_path)
    over, more = {"ended": "exhausted"}, {"ended": "still gaining"}
    for dataset in ("gone-on", "waiting", "all-over"):
        store.add(entry(dataset, "ease", 0.2, **over))
        store.add(entry(dataset, "sl", 0.3, **(over if dataset == "all-over" else more)))
    store.add(entry("gone-on", "sl", 0.4, allowed="30s", budget=30.0, **more))
    small, large = sorted(boards(BoardOptions(), store, {}), key=lambda each: each.seconds)
    assert len(small.entries) == 6 and large.ranking.datasets == ("all-over", "gone-on") and not large.datasets_apart
    assert "No race has gone on to 30s on waiting, so not on this board." in large.notes
    # Of these methods, all races were over before, and one of another method has gone on.
    for methods in (["ease"], ["ease", "bpr"]):
        store.add(entry("gone-on", "bpr", 0.1, **more))
        (alone,) = boards(BoardOptions(methods=methods), store, {}, "30s")
        assert alone.ranking.datasets == ("all-over", "gone-on", "waiting")
    # Entries with other threads, which are not shown, have not gone on.
    store.add(entry("waiting", "sl", 0.5, allowed="30s", budget=30.0, threads=4, **more))
    (_, large) = sorted(boards(BoardOptions(), store, {}), key=lambda each: each.seconds)
    assert large.ranking.datasets == ("all-over", "gone-on")
    # In a call that has ended, what did not go on will not.
    (ended,) = boards(
        BoardOptions(), store, {}, "30s", entries=[entry("waiting", "ease", **over), entry("waiting", "sl", **more)]
    )
    assert {each.entrant for each in ended.entries} == {"ease"}


def test_methods_that_cannot_be_measured_take_no_others_off_a_board_of_few():
    over = {"allowed": "100s", "budget": 100.0}
    few = [entry("usual", name, 0.1 * i, **over) for i, name in enumerate(("ease", "ials", "sl", "psl"), start=1)]
    held_out = [entry("held-out", name, 0.1, **over) for name in ("ease", "ials")]
    held_out += [entry("held-out", name, status="not applicable") for name in ("sl", "psl", "bsl", "bpr", "cml")]
    board = Board((*few, *held_out), "100s", "ndcg@20")
    assert len(board.ranking.methods) == 4 and board.datasets_apart == {"held-out": 2}


def test_budgets_are_compared_by_entries_of_one_kind(tmp_path):
    store = Leaderboard(tmp_path)
    for allowed, threads, by in (
        ("10s", 1, "ndcg@20"),
        ("30s", 1, "ndcg@20"),
        ("100s", 2, "ndcg@20"),
        ("300s", 1, "recall@20"),
    ):
        about = {"allowed": allowed, "budget": float(allowed[:-1]), "threads": threads, "metric": by}
        store.add(replace(entry("a", "ease", 0.2), **about))
    shown = boards(BoardOptions(), store, {})
    assert [each.allowed for each in shown] == ["30s", "10s"]
    assert all("chosen by another metric are left out: 100s, 300s." in each.notes[-1] for each in shown)
    (asked,) = boards(BoardOptions(), store, {}, "100s")
    assert (asked.allowed, asked.notes) == ("100s", ())


def test_only_entries_on_the_newest_data_are_shown(tmp_path):
    store = Leaderboard(tmp_path)
    for name, card, started in (("ease", "new", "2026-02"), ("bpr", "old", "2026-01"), ("sl", "old", "2025-12")):
        store.add(replace(entry("a", name, 0.2), card=card, fingerprint=card, started_at=started))
    store.add(replace(entry("a", "slow", status="over budget"), card="new"))
    (shown,) = boards(BoardOptions(), store, {})
    assert {each.entrant for each in shown.entries} == {"ease", "slow"}


@pytest.mark.parametrize(("methods", "said"), [(2, "Too few methods"), (3, "All methods have the same rank")])
def test_why_there_is_no_test_over_datasets(methods, said):
    values = 0.2 if methods == 3 else 0.1
    results = [entry(dataset, name, values) for dataset in "abcd" for name in ("ease", "ials", "sl")[:methods]]
    assert any(said in line for line in Board(tuple(results), "10s", "ndcg@20").conclusions())


def test_a_dataset_on_which_few_methods_were_run_stands_apart():
    methods = ("ease", "ials", "bpr", "sl", "talos")
    results = [entry(dataset, name, 0.1 * number) for dataset in "ab" for number, name in enumerate(methods, start=1)]
    results += [entry("held-out", name, 0.3) for name in methods[:2]]
    results += [entry("held-out", name, status="not applicable") for name in methods[2:]]
    board = Board(tuple(results), "10s", "ndcg@20")
    assert board.ranking.datasets == ("a", "b") and set(board.ranking.methods) == set(methods)
    assert board.datasets_apart == {"held-out": 2} and board.left_out == {}
    assert any("held-out (2)" in line for line in board.conclusions())
    # It has a ranking of its own, and a third method there, of five, is enough for one with the others.
    alone = Board((*results[10:], entry("held-out", "new", status="failed")), "10s", "ndcg@20")
    assert alone.ranking.methods == ("ease", "ials") and alone.left_out == dict.fromkeys(("bpr", "sl", "talos", "new"), 0)
    said = [line.partition("because they ")[2] for line in alone.caveats() if line.startswith("Left out")]
    assert said == [
        "are not applicable to every dataset, as their entries say: bpr (0 of 1), sl (0 of 1), talos (0 of 1).",
        "were not measured on every dataset: new (0 of 1).",
    ]
    more = ranking_of([*results, entry("held-out", "bpr", 0.2)], "ndcg@20")
    assert more.datasets == ("a", "b", "held-out") and more.methods == ("bpr", "ease", "ials")


def test_what_was_fixed_beforehand_is_said_if_it_is_significant(tmp_path):
    """Ten datasets, of which two are of one source, on which sl gains on ease with the number of users."""
    names = ["movielens-100k", "movielens-1m", *"abcdefgh"]
    store = Leaderboard(tmp_path)
    for number, name in enumerate(names):
        for method, value in {"sl": 0.2 + number / 100, "bpr": 0.1, "ease": 0.2}.items():
            store.add(replace(entry(name, method, value), traits={"users": 2.0**number, "items": float(number % 3)}))
    text = "fixed: 2026-11-28\npairs: [[bpr, sl], [sl, ease], [sl, other]]\ngroups: {x: [ease], y: [sl]}\ntraits: [[x, y]]\n"
    (tmp_path / "comparisons.yaml").write_text(text, encoding="utf-8")
    (shown,) = boards(BoardOptions(), store, {"movielens-100k": "ml", "movielens-1m": "ml"})
    said = " ".join(shown.conclusions())
    assert "3 methods on 10 datasets from 9 sources" in said
    better = "sl is better than bpr (p = 0.012) and sl is better than ease (p = 0.012)"
    assert f"the 3 comparisons fixed on 2026-11-28: {better}. " in said
    assert "The larger the trait 'users' of a dataset, the better y in comparison with x" in said and "'items'" not in said
    rank = shown.spread["sl"].mean_rank
    assert f"sl has the best mean rank, {rank.mean:.1f} ({rank.low:.1f} – {rank.high:.1f})." in said
    assert "A method without a result counts as 0" not in said
    store.add(replace(entry("h", "ease", status="over budget"), traits={"users": 512.0, "items": 0.0}))
    (late,) = boards(BoardOptions(), store, {"movielens-100k": "ml", "movielens-1m": "ml"})
    assert "A method without a result counts as 0; it is 1.00 on the 8 sources where every method" in " ".join(
        late.conclusions()
    )
    (tmp_path / "comparisons.yaml").unlink()
    assert "correction for all pairs" in " ".join(boards(BoardOptions(), store, {})[0].conclusions())
