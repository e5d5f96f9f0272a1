"""Claims are tested on values per user, over seeds, and say whether they hold, do not, or are not significant."""

from dataclasses import replace
from itertools import product

import pytest

from rankbench.reproduce.evidence import Evidence
from rankbench.reproduce.ledger_records import StoredClaim
from rankbench.reproduce.pages import write_pages
from rankbench.reproduce.paired import check_claims
from rankbench.reproduce.shown_claims import shown_claims


def claim(measured, text):
    table, evidence = measured
    return evidence.claim_of("synthetic", table.card_key("synthetic"), "toy/2", text, "recall@20")


def test_a_claim_holds_is_contradicted_or_cannot_be_told(home, measured):
    table, evidence = measured
    assert check_claims([table], ["synthetic"], evidence, home) == 3
    verdicts = {claim.text: claim.verdict for claim in evidence.lines(StoredClaim, "synthetic")}
    assert verdicts == {"A is first": "holds", "B is above A": "contradicted", "B is above C": "not significant"}
    first = claim(measured, "A is first")
    assert first.users == 400 and first.tests == 3 and first.missing == ()
    for pair in first.pairs:
        assert pair.low < pair.difference < pair.high and pair.difference == pytest.approx(0.2, abs=0.03)
        assert (pair.agreeing, pair.seeds) == (2, 2)
    against = claim(measured, "B is above A").pairs[0]
    assert against.difference < 0 and against.agreeing == 0


def test_the_page_says_why_a_claim_cannot_be_told_and_which_holds_with_one_seed(home, measured, tmp_path):
    table, evidence = measured
    check_claims([table], ["synthetic"], evidence, home)
    first, second, third = table.spec.claims
    open_claim = second.model_copy(update={"undecided": "The searches were not equal."})
    table = replace(table, spec=table.spec.model_copy(update={"claims": (first, open_claim, third)}))
    held = claim(measured, "A is first")
    evidence.add(replace(held, pairs=tuple(replace(pair, seeds=1) for pair in held.pairs)))
    write_pages(tmp_path, [table], evidence, home)
    page = (tmp_path / "toy.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:3]] for line in page.splitlines() if " − " in line]
    assert {tuple(row) for row in rows} == {
        ("A is first", "holds (users)"), ("B is above A", "cannot be told"), ("B is above C", "not significant")
    }  # fmt: skip
    assert "- B is above A (synthetic, toy/2): The searches were not equal." in page


def test_rows_that_a_file_has_added_to_a_claim_or_taken_away_since_its_tests_are_those_of_the_page(home, measured, tmp_path):
    table, evidence = measured
    first, *others = table.spec.claims

    def shown(tested, stated):
        """The verdict, the pairs and the rows without a test on the page of a file whose claim was another one when tested."""
        tables = [replace(table, spec=table.spec.model_copy(update={"claims": (claim, *others)})) for claim in (tested, stated)]
        evidence.folder.joinpath("synthetic.claims.jsonl").unlink(missing_ok=True)
        again = Evidence(evidence.folder)
        check_claims(tables[:1], ["synthetic"], again, home)
        write_pages(tmp_path, tables[1:], again, home)
        lines = (tmp_path / "toy.md").read_text().splitlines()
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| A is first")]
        return {line[1] for line in cells}, [line[4] for line in cells], [line for line in lines if "not compared with" in line]

    narrow = first.model_copy(update={"than": ("B",)})
    assert shown(first, first) == ({"holds"}, ["A − B", "A − C"], [])
    missing = "- A is first (synthetic, toy/2): not compared with C."
    assert shown(narrow, first) == ({"holds so far"}, ["A − B"], [missing])
    assert shown(first, narrow) == ({"holds"}, ["A − B"], [])
    without_runner_up = first.model_copy(update={"than": ("C",)})
    assert shown(without_runner_up, first) == ({"cannot be told"}, ["A − C"], [missing.replace("C.", "B.")])


def test_a_claim_is_of_its_datasets_and_says_whether_a_range_was_changed_after_test(home, measured):
    table, evidence = measured
    first, second, third = table.spec.claims
    claims = first, second.model_copy(update={"datasets": ("elsewhere",)}), third
    arms = tuple(arm.model_copy(update={"after_test": arm.label == "C"}) for arm in table.spec.arms)
    table = replace(table, spec=table.spec.model_copy(update={"claims": claims, "arms": arms}))
    assert check_claims([table], ["synthetic"], evidence, home) == 2
    shown = {each.tests.text: each.verdict for each in shown_claims([table], evidence)}
    changed = "(range changed after test)"
    assert shown == {"A is first": f"holds {changed}", "B is above C": f"not significant {changed}"}


def test_a_claim_whose_rows_are_measured_and_not_tested_is_on_the_page(home, measured, tmp_path):
    table, evidence = measured
    write_pages(tmp_path, [table], evidence, home)
    cells = [[cell.strip() for cell in line.split("|")[1:6]] for line in (tmp_path / "README.md").read_text().splitlines()]
    untested = ["not tested", "none"]
    assert [line for line in cells if "not tested" in line] == [
        [each.text, "synthetic", "toy/2", *untested] for each in table.spec.claims
    ]
    assert "A is first (synthetic, toy/2): not compared with A, B, C." in (tmp_path / "toy.md").read_text()


def test_the_same_runs_are_not_tested_twice_and_missing_ones_not_at_all(home, measured):
    table, evidence = measured
    check_claims([table], ["synthetic"], evidence, home)
    assert check_claims([table], ["synthetic"], evidence, home) == 0
    elsewhere = Evidence(home.results / "evidence")
    elsewhere._lines.pop((StoredClaim, "synthetic"))
    (home.results / "reproduce").rename(home.results / "gone")
    assert check_claims([table], ["synthetic"], elsewhere, home) == 0


def test_a_claim_of_other_data_under_the_same_name_is_another_claim(home, measured):
    table, evidence = measured
    check_claims([table], ["synthetic"], evidence, home)
    stored = evidence.lines(StoredClaim, "synthetic")
    evidence._lines[StoredClaim, "synthetic"] = [*(replace(claim, card="0" * 12, users=1) for claim in stored), *stored]
    assert check_claims([table], ["synthetic"], evidence, home) == 0
    assert claim(measured, "A is first").users == 400
    assert evidence.claim_of("synthetic", "1" * 12, "toy/2", "A is first", "recall@20") is None


def test_rows_without_values_are_named_and_a_claim_that_misses_them_holds_so_far(home, measured):
    table, evidence = measured
    records = home.results / "reproduce" / "records"
    (records / "final-C-0").rename(home.results / "C-0")
    (records / "final-C-1").rename(home.results / "C-1")
    assert check_claims([table], ["synthetic"], evidence, home) == 2
    first = claim(measured, "A is first")
    assert (first.verdict, first.missing, [pair.than for pair in first.pairs]) == ("holds so far", ("C",), ["B"])
    assert claim(measured, "B is above A").verdict == "contradicted"
    (home.results / "C-1").rename(records / "final-C-1")
    assert check_claims([table], ["synthetic"], evidence, home) == 2
    first = claim(measured, "A is first")
    assert (first.verdict, first.missing) == ("holds", ())
    assert {pair.than: (pair.agreeing, pair.seeds) for pair in first.pairs} == {"B": (2, 2), "C": (1, 1)}
    (records / "final-B-1").rename(home.results / "B-1")
    assert check_claims([table], ["synthetic"], evidence, home) == 0  # fewer runs than the stored test had


def test_pairs_that_several_machines_have_tested_are_one_claim(home, measured):
    table, evidence = measured

    def have(*labels):
        """Keep the values per user of these rows alone."""
        for label, seed in product("ABC", (0, 1)):
            here, away = home.results / "reproduce" / "records" / f"final-{label}-{seed}", home.results / f"{label}-{seed}"
            source, goal = (away, here) if label in labels else (here, away)
            if source.exists():
                source.rename(goal)

    have("A", "B")
    check_claims([table], ["synthetic"], evidence, home)
    (first,) = claim(measured, "A is first").pairs
    have("A", "C")
    assert check_claims([table], ["synthetic"], evidence, home) == 1  # of B, nothing is here
    both = claim(measured, "A is first")
    assert (both.verdict, both.missing, len(both.runs)) == ("holds", (), 6)
    assert both.pairs[0] == first and [pair.than for pair in both.pairs] == ["B", "C"]
    assert [pair.tests for pair in both.pairs] == [3, 3]  # of three rows, although two were compared at a time
    have("A", "B", "C")
    assert check_claims([table], ["synthetic"], evidence, home) == 1  # B and C, which had not been together
    assert claim(measured, "A is first") == both


def test_rows_that_share_no_seed_are_not_compared(home, measured):
    table, evidence = measured
    records = home.results / "reproduce" / "records"
    (records / "final-A-0").rename(home.results / "A-0")
    (records / "final-B-1").rename(home.results / "B-1")
    check_claims([table], ["synthetic"], evidence, home)
    first = claim(measured, "A is first")
    assert (first.missing, [(pair.than, pair.seeds) for pair in first.pairs]) == (("B",), [("C", 1)])
    assert claim(measured, "B is above A") is None
