"""The deviation between seeds: worked numbers, rows that share fits, and the section of a page."""

import pytest

from rankbench.reproduce.evidence import Evidence
from rankbench.reproduce.pages import write_pages
from rankbench.reproduce.required_fits import rows_of
from rankbench.reproduce.seeds import spreads

from .stored import stored

TABLE = """\
published: {paper: Toy, table: 2, recall: recall}
arms:
  - {name: steady, method: bpr, params: {patience: 0, epochs: 3}, published: {synthetic: {recall@20: 0.2}}}
  - {name: wide, method: bpr, params: {patience: 5, epochs: 4}, published: {synthetic: {ndcg@20: 0.3, recall@20: 0.2}}}
  - {name: the same, method: bpr, params: {patience: 5, epochs: 4}, published: {synthetic: {recall@20: 0.2}}}
  - {name: two seeds, method: bpr, params: {patience: 5, epochs: 6}, published: {synthetic: {recall@20: 0.2}}}
metrics: [recall, ndcg]
cutoffs: [20]
"""
NDCG = {"steady": (0.5, 0.5, 0.5), "wide": (0.29, 0.30, 0.31), "two seeds": (0.1, 0.9)}


@pytest.fixture
def evidence(evidence, tables):
    for row in rows_of(tables):
        config = row.setting("printed", evidence)
        for seed, ndcg in enumerate(NDCG.get(row.arm.label, ())):
            metrics = {"recall@20": (0.2, 0.19, 0.21), "ndcg@20": (ndcg, ndcg - 0.03, ndcg + 0.03)}
            evidence.add(stored(row, config, metrics, seed))
    return evidence


def test_the_deviation_between_seeds_is_beside_that_over_users(tables, evidence):
    wide, steady = spreads(rows_of(tables), evidence)
    assert (wide.row.arm.label, wide.metric, wide.seeds, wide.stopped_early) == ("wide", "ndcg@20", 3, True)
    assert wide.mean == pytest.approx(0.3)
    assert wide.of_seeds == pytest.approx(0.01 / 0.3)  # the sample deviation of 0.29, 0.30 and 0.31
    assert wide.of_users == pytest.approx(0.03 / 0.3)
    assert (steady.row.arm.label, steady.of_seeds, steady.stopped_early) == ("steady", 0, False)


def test_the_page_has_both_kinds_of_training(tables, evidence, home, tmp_path):
    write_pages(tmp_path, tables, evidence, home)
    page = (tmp_path / "toy.md").read_text()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines()]
    assert ["validation chooses the epoch", "1", "3.33 %", "3.33 %", "10.00 %"] in rows
    assert ["fixed", "1", "0.00 %", "0.00 %", "5.00 %"] in rows
    assert ["wide", "toy/2", "synthetic", "ndcg@20", "3", "0.3000", "3.33 %", "10.00 %"] in rows


def test_a_paper_without_several_seeds_has_no_such_section(tables, home, tmp_path):
    write_pages(tmp_path, tables, Evidence(home.home / "nothing"), home)
    assert "How much the seed matters" not in (tmp_path / "toy.md").read_text()
