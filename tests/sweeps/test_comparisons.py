"""comparisons.json from records: seeds averaged a user, users pooled over splits, what is unfinished left out."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from rankbench.core.errors import DataError
from rankbench.judge.compare import FEW, compare
from rankbench.schema.stored_sweep import ComparisonsFile
from rankbench.sweeps.comparisons import compare_finals
from rankbench.tracking.record import DatasetInfo, Measured, RunRecord, per_user_table, write_record


@pytest.fixture
def runs(tmp_path):
    """A function that writes a final run with one value a user, and the list of what it wrote."""
    written = []

    def add(model, values, seed=0, split=0, dataset="x", **about):
        users, column = list(values), np.array(list(values.values()))
        record = RunRecord(
            id=f"{dataset}-{model}-{seed}-{split}", method=model, params={},
            dataset=DatasetInfo(dataset, "f", split_seed=split), fit_on="train", measured_on="test", seed=seed,
            dtype="float32", arm=model, stage="final", metrics={"hit@5": Measured(column.mean(), 0.0, 1.0)}, **about,
        )  # fmt: skip
        write_record(tmp_path, record, per_user_table(pa.array(users), {"hit@5": column}))
        written.append(record)

    return tmp_path, written, add


def values_of(seed, users="abcdefgh"):
    return dict(zip(users, np.random.default_rng(seed).random(len(users)).astype(np.float32).tolist(), strict=True))


def test_seeds_are_averaged_first_and_splits_second(runs):
    folder, written, add = runs
    # Users b to h are measured on both splits, a and i on one.
    for split, users in ((0, "abcdefgh"), (4, "bcdefghi")):
        add("steady", values_of(10 + split, users), split=split)
        for seed in (0, 1, 2):
            add("seeded", values_of(20 + split + seed, users), seed=seed, split=split)
    compared = compare_finals(written, folder, ["hit@5"], 0)
    expected = {}
    for model, seeds, first in (("steady", [0], 10), ("seeded", [0, 1, 2], 20)):
        on_split = [{u: np.mean([values_of(first + split + s, us)[u] for s in seeds]) for u in us} for split, us in SPLITS]
        expected[model] = [np.mean([each[u] for each in on_split if u in each]) for u in "abcdefghi"]
    by_hand = compare({model: (np.array(list("abcdefghi")), np.array(v)) for model, v in expected.items()}, metric="hit@5")
    (pair,) = compared.comparisons
    assert pair.users == 9 and pair.difference == pytest.approx(by_hand.pairs[0].difference, abs=1e-7)
    assert pair.low == pytest.approx(by_hand.pairs[0].low, abs=1e-7)
    assert pair.p_wilcoxon == by_hand.pairs[0].p_wilcoxon
    rows = {row.model: row for row in compared.models}
    means = [record.metrics["hit@5"].mean for record in written if record.method == "seeded"]
    assert rows["seeded"].std == pytest.approx(np.std(means, ddof=1)) and rows["seeded"].seeds == (0, 1, 2)
    assert [row.best for row in compared.models].count(True) == 1


SPLITS = ((0, "abcdefgh"), (4, "bcdefghi"))


def test_a_split_on_which_a_run_failed_is_left_out_for_all(runs):
    folder, written, add = runs
    for split in (0, 1):
        add("one", values_of(split), split=split)
        add("two", values_of(5 + split), split=split)
    whole = compare_finals(written, folder, ["hit@5"], 0)
    written[-1] = replace(written[-1], status="failed", error="no memory", metrics={})
    (pair,) = compare_finals(written, folder, ["hit@5"], 0).comparisons
    only_first = np.mean(list(values_of(0).values())) - np.mean(list(values_of(5).values()))
    assert abs(pair.difference) == pytest.approx(abs(only_first), abs=1e-6) and pair.by_split == {}
    assert set(whole.comparisons[0].by_split) == {"0", "1"}


@pytest.mark.parametrize("failed", [{1, 2}, {0, 1, 2}])
def test_a_mean_is_over_all_runs_of_its_model_whatever_failed_of_others(runs, failed):
    folder, written, add = runs
    for split in (0, 1, 2):
        add("one", values_of(split), split=split)
        add("two", values_of(5 + split), split=split)
        if split in failed:
            written[-1] = replace(written[-1], status="failed", error="no memory", metrics={})
    compared = compare_finals(written, folder, ["hit@5"], 0)
    mean = {row.model: row for row in compared.models}["one"]
    by_run = [np.mean(list(values_of(split).values())) for split in (0, 1, 2)]
    assert mean.mean == pytest.approx(np.mean(by_run), abs=1e-6) and mean.std == pytest.approx(np.std(by_run, ddof=1), abs=1e-6)
    assert mean.split_seeds == (0, 1, 2) and mean.low < mean.mean < mean.high
    assert len(compared.comparisons) == (len(failed) < 3)


def test_models_without_a_common_split_have_means_and_no_pair(runs):
    """Splits of held-out users have other users, so that there may be no user to compare on either."""
    folder, written, add = runs
    add("one", values_of(0, "abcd"), split=0)
    add("two", values_of(1, "efgh"), split=1)
    compared = compare_finals(written, folder, ["hit@5"], 0)
    assert compared.comparisons == () and not any(row.best for row in compared.models)
    means = {row.model: row.mean for row in compared.models}
    assert means == {each.arm: pytest.approx(each.metrics["hit@5"].mean, abs=1e-6) for each in written}


def test_datasets_are_apart_and_a_metric_of_whole_lists_has_no_entry(runs):
    folder, written, add = runs
    add("one", values_of(0))
    add("two", values_of(1))
    add("one", values_of(2), dataset="y")
    compared = compare_finals(written, folder, ["coverage@5", "hit@5"], 0)
    assert [(p.dataset, p.metric) for p in compared.comparisons] == [("x", "hit@5")]
    assert [(m.dataset, m.model) for m in compared.models] == [("x", "one"), ("x", "two"), ("y", "one")]
    assert compared.metrics == ("coverage@5", "hit@5")


def test_nothing_finished_is_no_comparison_and_a_lost_table_is_named(runs):
    folder, written, add = runs
    assert compare_finals([], folder, ["hit@5"], 0).comparisons == ()
    add("one", values_of(0))
    (folder / written[0].id / "per_user.parquet").unlink()
    with pytest.raises(DataError, match=r"x-one-0-0/per_user\.parquet"):
        compare_finals(written, folder, ["hit@5"], 0)


def test_neighbours_of_many_models_are_stored_and_progress_ends_with_all(runs):
    folder, written, add = runs
    for number in range(FEW + 1):
        add(f"m{number}", values_of(number))
        add(f"m{number}", values_of(50 + number), dataset="y")
    seen = []
    some = compare_finals(written, folder, ["hit@5"], 0, False, lambda *about: seen.append(about))
    assert len(some.neighbours) == 2 * FEW and len(some.comparisons) == 2 * FEW
    assert ComparisonsFile.model_validate(some.content()) == some
    assert seen == sorted(seen) and seen[-1] == pytest.approx((2, 1.0))
    every = compare_finals(written, folder, ["hit@5"], 0)
    assert "neighbours" not in every.content() and every.models == some.models
