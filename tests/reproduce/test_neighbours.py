"""Rows of a table are tested against the next ones, over users, with the correction for all pairs of the rows."""

import json
from dataclasses import replace

import pytest

from rankbench.judge.compare import compare
from rankbench.reproduce.evidence import Evidence
from rankbench.reproduce.ledger_records import StoredFit
from rankbench.reproduce.pages import write_pages
from rankbench.reproduce.paired import check_neighbours, standing_pairs
from rankbench.tracking.record import read_per_user


def stored(home, evidence, table):
    check_neighbours([table], ["synthetic"], evidence, home)
    return evidence.neighbours_of("synthetic", table.card_key("synthetic"), "toy/2", "recall@20")


def test_each_row_is_tested_against_the_next_one(home, measured):
    table, evidence = measured
    found = stored(home, evidence, table)
    upper, lower = found.pairs
    assert upper.better == "A" and upper.than == lower.better and {lower.better, lower.than} == {"B", "C"}
    assert (upper.verdict, lower.verdict) == ("better", "not distinguishable")
    assert (upper.agreeing, upper.seeds) == (2, 2) and (found.users, found.tests, found.missing) == (400, 3, ())
    tables = [[read_per_user(home.results / f"reproduce/records/final-{label}-{seed}") for seed in (0, 1)] for label in "ABC"]
    samples = {
        label: (each[0]["user"].to_numpy(), (each[0]["recall@20"].to_numpy() + each[1]["recall@20"].to_numpy()) / 2)
        for label, each in zip("ABC", tables, strict=True)
    }
    by_hand = {(pair.model, pair.against): pair for pair in compare(samples, baseline=lower.than).pairs}
    expected = by_hand[lower.better, lower.than]
    assert lower.difference == pytest.approx(expected.difference, abs=2e-6)
    assert lower.p_wilcoxon_holm == pytest.approx(expected.p_wilcoxon_holm, abs=1e-4)
    assert check_neighbours([table], ["synthetic"], evidence, home) == 0
    assert stored(home, Evidence(evidence.folder), table) == found


def test_rows_without_values_are_named_and_more_runs_are_tested_again(home, measured):
    table, evidence = measured
    records = home.results / "reproduce" / "records"
    for seed in (0, 1):
        (records / f"final-C-{seed}").rename(home.results / f"C-{seed}")
    found = stored(home, evidence, table)
    assert (found.missing, [(pair.better, pair.than) for pair in found.pairs], found.tests) == (("C",), [("A", "B")], 1)
    (home.results / "C-1").rename(records / "final-C-1")
    assert len(stored(home, evidence, table).pairs) == 2
    for label in "ABC":
        (records / f"final-{label}-1").rename(home.results / f"{label}-1")
    assert check_neighbours([table], ["synthetic"], evidence, home) == 0  # fewer runs than the stored tests had


def test_tests_of_fits_that_were_replaced_are_not_shown(home, measured):
    table, evidence = measured
    lower = stored(home, evidence, table).pairs[1]
    fits = evidence.folder / "synthetic.fits.jsonl"
    fits.write_text("".join(line for line in fits.open() if json.loads(line)["run"] not in ("final-C-0", "final-C-1")))
    left = Evidence(evidence.folder)
    write_pages(home.home / "pages", [table], left, home)
    page = (home.home / "pages" / "toy.md").read_text()
    tested = page[page.index("| row, by recall@20") :]
    assert lower.verdict not in tested[: tested.index("Without a test")] and "Without a test here: C." in tested


def test_a_fit_that_was_measured_again_elsewhere_ends_the_tests_of_its_row(home, measured):
    table, evidence = measured
    first = stored(home, evidence, table)
    row = first.pairs[1].than
    again = next(fit for fit in evidence.lines(StoredFit, "synthetic") if fit.run == f"final-{row}-0")
    evidence.add(replace(again, started_at="2026-11-25T11:18:48+00:00"))  # the run id is made from the setting, and stays
    pairs, replaced = standing_pairs(first, table, evidence)
    assert pairs == first.pairs[:1] and replaced == (row,)
    # The values here are those of the fit before: the row is compared with the one seed whose values are here.
    found = stored(home, Evidence(evidence.folder), table)
    assert {pair.seeds for pair in found.pairs if row in (pair.better, pair.than)} == {1}
    assert f"final-{row}-0" not in found.runs


def test_rows_of_another_machine_keep_their_tests(home, measured):
    table, evidence = measured
    first = stored(home, evidence, table)
    records, fits = home.results / "reproduce" / "records", evidence.folder / "synthetic.fits.jsonl"
    lower = first.pairs[1]
    gone = lower.than  # its fits are replaced; of the others only those of the upper row of the new pair are here
    lines = [json.loads(line) for line in fits.open()]
    fits.write_text(
        "".join(json.dumps(each | {"run": each["run"].replace(f"-{gone}-", f"-new{gone}-")}) + "\n" for each in lines)
    )
    for seed in (0, 1):
        (records / f"final-{gone}-{seed}").rename(records / f"final-new{gone}-{seed}")
        (records / f"final-A-{seed}").rename(home.results / f"A-{seed}")
    found = stored(home, Evidence(evidence.folder), table)
    assert [(pair.better, pair.than) for pair in found.pairs] == [(pair.better, pair.than) for pair in first.pairs]
    assert found.pairs[0] == first.pairs[0] and not found.missing
    assert {f"final-new{gone}-{seed}" for seed in (0, 1)} < set(found.runs) and f"final-{gone}-0" not in found.runs
    assert stored(home, Evidence(evidence.folder), table) == found
    assert (found.tests, [found.corrected_for(pair) for pair in found.pairs]) == (1, [3, 1])
    write_pages(home.home / "pages", [table], Evidence(evidence.folder), home)
    page = (home.home / "pages" / "toy.md").read_text()
    shown = page[page.index("| row, by recall@20") :].split("\n\n")[0].splitlines()
    assert [line.strip("| ").split("|")[-1].strip() for line in shown if "---" not in line] == ["corrected for", "3", "1"]


def test_an_older_line_tells_a_correction_only_if_all_rows_were_tested_in_one_call(home, measured):
    table, evidence = measured
    found = stored(home, evidence, table)
    older = replace(found, pairs=tuple(replace(pair, tests=None) for pair in found.pairs))
    evidence.add(older)
    (line,) = (evidence.folder / "synthetic.neighbours.jsonl").read_text().splitlines()
    assert all("tests" not in pair for pair in json.loads(line)["pairs"])  # it stays as it is
    assert [older.corrected_for(pair) for pair in older.pairs] == [3, 3]
    mixed = replace(older, tests=1)  # the last call had two of the three rows
    assert [mixed.corrected_for(pair) for pair in mixed.pairs] == [None, None]


def test_a_row_that_is_measured_later_parts_the_pair_that_it_lies_between(home, measured):
    table, evidence = measured
    records, fits = home.results / "reproduce" / "records", evidence.folder / "synthetic.fits.jsonl"
    every = fits.read_text()
    first = stored(home, evidence, table)
    upper, middle, lower = first.pairs[0].better, first.pairs[1].better, first.pairs[1].than
    # At first, there is no fit of the row in the middle; it comes when the values of the upper row are elsewhere.
    (evidence.folder / "synthetic.neighbours.jsonl").unlink()
    fits.write_text("".join(line for line in every.splitlines(keepends=True) if f"-{middle}-" not in line))
    (pair,) = stored(home, Evidence(evidence.folder), table).pairs
    assert (pair.better, pair.than) == (upper, lower)
    fits.write_text(every)
    for seed in (0, 1):
        (records / f"final-{upper}-{seed}").rename(home.results / f"{upper}-{seed}")
    found = stored(home, Evidence(evidence.folder), table)
    assert [(pair.better, pair.than) for pair in found.pairs] == [(middle, lower)] and found.missing == (upper,)


def test_a_pair_of_rows_that_are_here_is_tested_even_if_their_runs_are_known(home, measured):
    table, evidence = measured
    first = stored(home, evidence, table)
    evidence.add(replace(first, pairs=first.pairs[:1]))
    assert stored(home, Evidence(evidence.folder), table) == first


def test_a_row_whose_values_are_elsewhere_still_lies_between_two_others(home, measured):
    table, evidence = measured
    records = home.results / "reproduce" / "records"
    (records / "final-A-1").rename(home.results / "A-1")
    first = stored(home, evidence, table)
    middle = first.pairs[0].than
    for seed in (0, 1):
        (records / f"final-{middle}-{seed}").rename(home.results / f"{middle}-{seed}")
    again = Evidence(evidence.folder)
    assert check_neighbours([table], ["synthetic"], again, home) == 0  # the row above and the row below are no new pair
    (home.results / "A-1").rename(records / "final-A-1")
    found = stored(home, Evidence(evidence.folder), table)
    assert found != first and [(pair.better, pair.than) for pair in found.pairs] == [(p.better, p.than) for p in first.pairs]


def test_one_row_has_no_neighbour(home, measured):
    table, evidence = measured
    for path in (home.results / "reproduce" / "records").glob("final-[BC]-*"):
        path.rename(home.results / path.name)
    assert stored(home, evidence, table) is None
