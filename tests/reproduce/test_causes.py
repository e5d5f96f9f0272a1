"""Why cells are off: only measured cells that are neither within 3 % nor in the interval, each with one cause."""

import json
from dataclasses import replace

import pytest

from rankbench.cli import _main
from rankbench.judge.agreement import Agreement
from rankbench.reproduce import pages
from rankbench.reproduce.agreement import Count, count_of
from rankbench.reproduce.counts import by_cause, counts, off_cells
from rankbench.reproduce.pages import write_pages
from rankbench.reproduce.required_fits import rows_of
from rankbench.reproduce.results import count_columns, seed_columns

from .stored import stored

TABLE = """\
published: {paper: Toy, table: 2, recall: recall}
arms:
  - {name: near, method: ease, params: {lam: 1}, cause: steps, published: {synthetic: {recall@20: 0.205}}}
  - {name: in the interval, method: ease, params: {lam: 2}, published: {synthetic: {ndcg@20: 0.29}}}
  - {name: short, method: ease, params: {lam: 3}, cause: steps, published: {synthetic: {recall@20: 0.3, ndcg@20: 0.9}}}
  - {name: too high, method: ease, params: {lam: 4}, published: {synthetic: {recall@20: 0.1}}}
  - {name: too low, method: ease, params: {lam: 5}, published: {synthetic: {recall@20: 0.4}}}
  - {name: a variant, method: ease, params: {lam: 6}, variant_of: too low, published: {synthetic: {recall@20: 0.4}}}
  - {name: not measured, method: ease, params: {lam: 7}, cause: part, published: {synthetic: {recall@20: 0.4}}}
metrics: [recall, ndcg]
cutoffs: [20]
"""
METRICS = {"recall@20": (0.2, 0.199, 0.201), "ndcg@20": (0.3, 0.28, 0.32)}


@pytest.fixture
def evidence(evidence, tables):
    for row in list(rows_of(tables))[:-1]:
        config = row.setting("printed", evidence)
        evidence.add(stored(row, config, METRICS))
    return evidence


def test_each_cell_that_is_off_has_one_cause(tables, evidence, home):
    off = off_cells(tables, {"toy/2"}, evidence, home)
    assert [(each.row, each.cell.metric, each.cause) for each in off] == [
        ("short", "recall@20", "steps"),
        ("short", "ndcg@20", "steps"),
        ("too high", "recall@20", "above"),
        ("too low", "recall@20", "not found"),
    ]
    assert by_cause(off) == [("steps", 2, ["short"]), ("above", 1, ["too high"]), ("not found", 1, ["too low"])]
    every = counts(tables, {"toy/2"}, evidence, home)["toy/2"]
    assert every.measured - every.agree == len(off)
    assert off_cells(tables, {"toy/1"}, evidence, home) == []


def test_agreement_by_the_mean_by_the_interval_and_by_chance(tables, evidence, home):
    """By hand: recall@20 is measured as 0.2 and published as 0.205, 0.3, 0.1 and 0.4, and as 0.4 in a row without a fit. Of the
    four others of a cell, 0.205 alone would agree, in the three cells that do not have it. ndcg@20 is measured as 0.3 with a
    wide interval, and published as 0.29 and 0.9; 0.29 would agree in the cell of 0.9.
    """
    every = counts(tables, {"toy/2"}, evidence, home)["toy/2"]
    assert (every.measured, every.within_1, every.within_3, every.agree) == (6, 0, 1, 2)
    assert every.by_chance / every.with_others == pytest.approx((3 * 1 / 4 + 0 + 0 + 1) / 6)
    assert every.half_widths / every.with_interval == pytest.approx((4 * 0.001 / 0.2 + 2 * 0.02 / 0.3) / 6)
    assert (every.several_seeds, every.several_within_3) == (0, 0)
    (near,) = [row for row in rows_of(tables) if row.arm.label == "near"]
    evidence.add(stored(near, near.setting("printed", evidence), METRICS, seed=1))
    again = counts(tables, {"toy/2"}, evidence, home)["toy/2"]
    assert (again.measured, again.within_3, again.several_seeds, again.several_within_3) == (6, 1, 1, 1)


def test_costs_and_simulations_are_not_counted_as_measured_with_one_seed():
    cells = [
        Agreement("seconds", 1.0, value, None, None, seeds=seeds)
        for value, seeds in ((1.005, 1), (1.02, 3), (2.0, 0), (1.0, 0))
    ]
    _, body = seed_columns(sum(map(count_of, cells), Count()))
    assert body == [
        ["one", "1", "1 (100 %)", "1 (100 %)"],
        ["several", "1", "0 (0 %)", "1 (100 %)"],
        ["costs and simulations", "2", "1 (50 %)", "1 (50 %)"],
    ]


def test_the_share_by_chance_says_of_how_many_cells_it_is():
    """A study of four cells, which have no other published number, and a table of six, of which half would agree."""
    table, study = Count(measured=6, agree=5, by_chance=3.0, with_others=6, others_agree=5), Count(measured=4, agree=4)
    header, body = count_columns("table", {"table": table, "study": study, "all": table + study})
    assert [row[header.index("by chance")] for row in body] == ["50 %", "", "50 % of 6; 5 (83 %) do"]


def test_pages_and_status_tell_the_causes(tables, evidence, home, monkeypatch, capsys, tmp_path):
    write_pages(tmp_path, tables, evidence, home)
    line = "| trained with fewer steps than in the paper"
    for name in ("toy.md", "README.md"):
        (row,) = [each for each in (tmp_path / name).read_text().splitlines() if each.startswith(line)]
        assert [each.strip() for each in row.strip("|").split("|")][1:] == ["2", "short"]
    monkeypatch.setenv("RANKBENCH_HOME", str(home.home))
    assert _main(["reproduce", "status", "toy/2", "--json"]) == 0
    off = json.loads(capsys.readouterr().out)["off"]
    assert [(each["cause"], each["cells"]) for each in off] == [("steps", 2), ("above", 1), ("not found", 1)]
    assert _main(["reproduce", "status", "toy/2"]) == 0
    assert "trained with fewer steps than in the paper" in capsys.readouterr().out


def test_rows_whose_ranges_changed_after_test_are_counted_over_their_datasets(measured, monkeypatch):
    table, evidence = measured
    arms = tuple(arm.model_copy(update={"after_test": arm.label != "C"}) for arm in table.spec.arms)
    rows = [*rows_of([replace(table, spec=table.spec.model_copy(update={"arms": arms}))])]
    cells = iter([[1], [1, 2], [], []])  # of A and B on a dataset, and on one without a measurement
    monkeypatch.setattr(pages, "rows_of", lambda tables: [*rows, *rows])
    monkeypatch.setattr(pages, "counted_cells", lambda row, evidence: next(cells))
    (said,) = pages._after_test([table], evidence)
    assert "3 of the measured cells" in str(said) and "A (toy/2), B (toy/2)" in str(said)
