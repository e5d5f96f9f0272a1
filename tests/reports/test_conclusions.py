"""The sentence that a report begins with, against tests whose outcome is known, and where nothing can be concluded."""

import json
from dataclasses import replace

import numpy as np
import pytest

from rankbench.judge.compare import compare
from rankbench.reports.conclusions import conclude
from rankbench.reports.report import write_report
from rankbench.reports.rows import missing_row, row_of

USERS = np.arange(400)
RNG = np.random.default_rng(0)
BASE = RNG.uniform(0.2, 0.6, 400)
NOISE = RNG.normal(0, 0.05, 400) * np.where(USERS % 2, 1, -1)


def pairs_of(dataset="x", metric="ndcg@20", **columns):
    return compare({arm: (USERS, values) for arm, values in columns.items()}, dataset=dataset, metric=metric).pairs


@pytest.fixture
def rows(make_run):
    """rows(arms, dataset="x", seeds=1, missing={arm: why}) → measured rows, then missing ones."""

    def make(arms, dataset="x", seeds=1, missing=None):
        measured = [
            row_of([make_run("final", arm, 0.3, dataset, seed=seed) for seed in range(seeds)], ("ndcg@20",), {}, 0, {})
            for arm in arms
        ]
        return [*measured, *(missing_row(dataset, arm, "ease", {}, why) for arm, why in (missing or {}).items())]

    return make


def test_the_leader_what_is_not_significantly_different_and_what_is_worse(rows):
    noise = NOISE - NOISE.mean()
    pairs = pairs_of(SL=BASE, InfoNCE=BASE + noise - 0.0005, softmax=BASE - noise - 0.0004, BPR=BASE - 0.05, pop=BASE - 0.1)
    found = conclude(rows(["SL", "InfoNCE", "softmax", "BPR", "pop"]), pairs, "ndcg@20")
    (one,) = found.datasets
    assert (one.leader, one.tied, one.behind) == ("SL", ("InfoNCE", "softmax"), ("BPR", "pop"))
    assert one.sentence == (
        f"SL leads in ndcg@20 ({BASE.mean():.4f}); InfoNCE and softmax are not significantly different from it; BPR and "
        f"pop are worse; the closest is BPR (-{100 * 0.05 / BASE.mean():.2g} %)."
    )
    assert found.summary == "" and "every model was run once" in found.caveats[0]


def test_a_leader_alone_and_a_field_without_one(rows):
    alone = conclude(rows(["A", "B", "C"]), pairs_of(A=BASE, B=BASE - 0.1, C=BASE - 0.2), "ndcg@20").datasets[0]
    assert "; all other models are worse; the closest is B (-" in alone.sentence
    two = conclude(rows(["A", "B"]), pairs_of(A=BASE, B=BASE - 0.1), "ndcg@20").datasets[0]
    assert two.sentence.endswith(f"; B is worse (-{100 * 0.1 / BASE.mean():.2g} %).")
    noise = NOISE - NOISE.mean()
    level = conclude(rows(["A", "B", "C"]), pairs_of(A=BASE, B=BASE + noise - 1e-4, C=BASE - noise - 1e-4), "ndcg@20").datasets[
        0
    ]
    assert level.sentence.endswith("; none of the other 2 models is significantly different from it.") and level.leading == (
        "A",
        "B",
        "C",
    )


def test_equal_models_are_said_to_be_equal_and_not_undecided(rows):
    found = conclude(rows(["A", "B", "C"]), pairs_of(A=BASE, B=BASE, C=BASE - 0.1), "ndcg@20").datasets[0]
    assert found.identical == ("B",) and "; B has the same value for every user; C is worse (-" in found.sentence


def test_the_metric_of_the_search_decides_and_another_leader_elsewhere_is_named(rows):
    pairs = (*pairs_of(metric="recall@20", A=BASE - 0.1, B=BASE), *pairs_of(A=BASE, B=BASE - 0.1))
    found = conclude(rows(["A", "B"]), pairs, "ndcg@20").datasets[0]
    assert (found.metric, found.leader) == ("ndcg@20", "A") and found.sentence.endswith(" In recall@20, B leads.")
    assert conclude(rows(["A", "B"]), pairs, "map@10").datasets[0].metric == "recall@20"


def test_a_mean_over_more_splits_than_the_tests_is_named(make_run):
    """A has a run on each of three splits, B's third one failed; the tests use the two that both have."""

    def row(arm, splits):
        runs = [make_run("final", arm, 0.3, seed=seed, data={"split_seed": split}) for split in splits for seed in (0, 1)]
        return row_of(runs, ("ndcg@20",), {}, 0, {})

    said = " The table's means are over all splits of A (3); the tests use only the {} on which every model has a result."
    pairs = pairs_of(A=BASE, B=BASE - 0.1)
    for common in ((0, 4), (4,)):
        (one,) = conclude([row("A", (0, 4, 5)), row("B", common)], pairs, "ndcg@20").datasets
        assert one.sentence.endswith(said.format(len(common)))
    (one,) = conclude([row("A", (0, 4)), row("B", (4, 0)), row("not tested", (0,))], pairs, "ndcg@20").datasets
    assert "splits" not in one.sentence


def test_where_there_is_nothing_to_compare_it_says_so(rows):
    assert conclude(rows(["A"]), (), "ndcg@20").sentences == ("Only A was measured, so there is nothing to compare.",)
    assert conclude(rows([], missing={"A": "failed", "B": "not run"}), (), "ndcg@20").sentences == (
        "Nothing was measured (failed; not run).",
    )
    assert conclude(rows(["A", "B"]), (), "popularity@20").datasets[0].sentence == (
        "2 models were measured and not tested against each other, so there is no conclusion."
    )
    assert "not finished" in conclude(rows([], missing={"A": "not run"}), (), "ndcg@20", finished=False).sentences[0]


def test_rows_without_a_result_and_stand_ins_limit_the_sentence(rows):
    found = conclude(
        rows(["A", "B"], missing={"C": "failed", "D": "not run"}), pairs_of(A=BASE, B=BASE - 0.1), "ndcg@20", ["x"]
    )
    sentence = found.datasets[0].sentence
    assert "2 of 4 rows have no result (failed; not run)." in sentence
    assert sentence.endswith("These data are a stand-in, so this says nothing about the data that they stand for.")
    assert found.datasets[0].missing == ("C", "D")


def test_many_names_are_counted(rows):
    arms = [f"m{i}" for i in range(12)]
    noise = NOISE - NOISE.mean()
    columns = {arm: BASE + (noise - 1e-4 * i if i % 2 else -noise - 1e-4 * i if i else 0) for i, arm in enumerate(arms)}
    found = conclude(rows(arms), pairs_of(**columns), "ndcg@20").datasets[0]
    assert len(found.tied) == 11 and "none of the other 11 models" in found.sentence
    worse = conclude(
        rows(["A", "t", *arms]), pairs_of(A=BASE, t=BASE + noise - 1e-4, **{m: BASE - 0.2 for m in arms}), "ndcg@20"
    )
    assert "m0, m1, m2, m3 and 8 other models are worse" in worse.datasets[0].sentence


def test_the_summary_counts_the_datasets_on_which_a_model_is_in_the_leading_group(rows):
    def over(*worse, missing=None):
        """Of A, B and C on one dataset each: the models that are worse there."""
        all_rows, pairs = [], []
        for dataset, behind in zip("xyz", worse, strict=True):
            noise = {"A": 0 * NOISE, "B": NOISE - NOISE.mean() - 1e-4, "C": NOISE.mean() - NOISE - 1e-4}
            pairs += pairs_of(dataset, **{arm: BASE + noise[arm] - 0.2 * (arm in behind) for arm in "ABC"})
            all_rows += rows(["A", "B", "C"], dataset)
        return conclude(all_rows, tuple(pairs), "ndcg@20", ["y"] if missing else []).summary

    assert over("BC", "BC", "BC") == "Over 3 datasets, A leads or is not significantly different from the leader on each."
    assert over("", "C", "C") == "Over 3 datasets, A and B lead or are not significantly different from the leader on each."
    assert over("A", "BC", "BC", missing=True) == (
        "Over 3 datasets (1 of them stand-ins), no model leads on each: A leads or is not significantly different from the "
        "leader on 2 of 3, B on 1 of 3, C on 1 of 3."
    )


def test_seeds_are_in_the_tests_only_where_every_model_has_several(rows):
    pairs = pairs_of(A=BASE, B=BASE - 0.1)
    assert "is the mean over seeds and splits" in conclude(rows(["A", "B"], seeds=3), pairs, "ndcg@20").caveats[0]
    mixed = [*rows(["A"], seeds=3), *rows(["B"])]
    assert "; B was run once, so" in conclude(mixed, pairs, "ndcg@20").caveats[0]


def test_models_that_were_fitted_on_less_than_the_others_are_named(rows):
    pairs = pairs_of(A=BASE, B=BASE - 0.1)
    a, b = rows(["A", "B"])
    whole = replace(a, fit_on=("train+valid",))
    said = conclude([whole, b], pairs, "ndcg@20").caveats[1]
    assert said == "B was fitted on train alone, other models on valid, too: a difference can come from that."
    for equal in ([a, b], [whole, replace(b, fit_on=("train+valid",))]):
        assert len(conclude(equal, pairs, "ndcg@20").caveats) == 1


def test_seeds_are_not_said_of_methods_that_draw_no_random_numbers(rows):
    pairs = pairs_of(A=BASE, B=BASE - 0.1)
    drawn, fixed = ([replace(row, seeded=seeded) for row in rows(["A", "B"])] for seeded in (True, False))
    assert conclude(fixed, pairs, "ndcg@20").caveats[0].endswith("corrected for all pairs of models.")
    (mixed,) = conclude([drawn[0], fixed[1]], pairs, "ndcg@20").caveats
    assert mixed.endswith("; A was run once, so differences between seeds are not in the tests.")
    several = [replace(row, seeded=True) for row in rows(["A"], seeds=3)]
    assert conclude([*several, fixed[1]], pairs, "ndcg@20").caveats[0].endswith("is the mean over seeds and splits.")


def test_it_stands_first_in_every_form_of_the_report(make_run, make_sweep, tmp_path):
    pairs = [vars(pair) for pair in pairs_of(A=BASE, B=BASE - 0.1)]
    sweep = make_sweep([make_run("final", arm, 0.3) for arm in "AB"], {"A": {}, "B": {}}, compared={"comparisons": pairs})
    files = {path.name: path for path in write_report(tmp_path, sweep)}
    sentence = "A leads in ndcg@20"
    assert files["report.md"].read_text().splitlines()[2].startswith(f"**{sentence}")
    page = files["report.html"].read_text()
    body = page[page.index("<body>") :]
    assert body.index(sentence) < body.index("Which?") < body.index("<table")
    content = json.loads(files["table.json"].read_text())["conclusions"]
    assert content["text"][0].startswith(sentence) and content["datasets"][0]["behind"] == ["B"]
