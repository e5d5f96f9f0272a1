"""The whole way on a cluster of this machine: fits, searches, claims, the end of a budget, and going on."""

import json
import time

import pytest

from rankbench.api.reproduce import agenda, reproduce
from rankbench.reproduce.counts import counts
from rankbench.reproduce.evidence import Evidence
from rankbench.reproduce.pages import write_pages
from rankbench.reproduce.standing import standings


@pytest.fixture(scope="module")
def no_tracking(tmp_path_factory):
    patch = pytest.MonkeyPatch()
    patch.setenv("RAY_AUTH_MODE", "token")
    yield
    patch.undo()


@pytest.mark.usefixtures("no_tracking")
def test_a_paper_from_nothing_to_its_page(home, tmp_path):
    lines = []
    plan = agenda(["toy"], home)
    outcome = reproduce(plan, home, None, told=lines.append)
    assert outcome.complete and not outcome.failed and outcome.searched == 2
    evidence = Evidence(plan.evidence.folder)
    (search,) = [each for each in evidence.searches["synthetic"] if each.method == "ease"]
    tried = 3 + search.beyond
    assert search.draws == 3 and len([line for line in lines if line.startswith("search EASE")]) == 1
    # The best of 1, 10 and 100 is 100 or beyond, and the range was continued until the best value lay inside it.
    assert search.beyond > 0 and search.chosen["lam"] >= 100 and tried > 3
    rows = {row.arm.label: standings(row, evidence) for row in plan.rows if row.table.name == "toy/1"}
    assert [each.origin for each in rows["EDLAE"]] == ["chosen"]
    # The setting that was found on test is no measurement of the table.
    every = counts(plan.all_tables, {"toy/1"}, evidence, home)["toy/1"]
    assert (every.measured, every.on_test) == (4, 2)
    (claim,) = evidence.claims["synthetic"]
    assert claim.verdict == "holds" and claim.pairs[0].difference > 0 and claim.users > 100
    # Nothing is left, and nothing is done a second time.
    again = agenda(["toy"], home)
    assert again.tasks == ()
    text = {path: path.read_bytes() for path in plan.evidence.folder.glob("*.jsonl")}
    files = write_pages(tmp_path / "pages", plan.all_tables, evidence, home)
    assert {path.name for path in files} == {"toy.md", "toy.png", "README.md"}
    page = (tmp_path / "pages" / "toy.md").read_text()
    assert "EASE is above popularity" in page and "| holds" in page and "as published" in page
    assert {path: path.read_bytes() for path in plan.evidence.folder.glob("*.jsonl")} == text
    for path in text:
        assert all(json.loads(line) for line in path.read_text().splitlines())


@pytest.mark.usefixtures("no_tracking")
@pytest.mark.slow
@pytest.mark.parametrize("budget", [20.0, 90.0])
def test_a_budget_ends_the_work_and_the_next_call_goes_on(home, budget):
    path = home.home / "experiments" / "toy_table2.yaml"
    path.write_text(
        """\
name: toy-table2
published: {paper: Toy, table: 2, recall: recall}
datasets: [synthetic]
arms:
  - name: BPR
    method: bpr
    params: {epochs: 100000, patience: 0}
    published: {synthetic: {recall@20: 0.2}}
"""
    )
    began = time.monotonic()
    plan = agenda(["toy/2"], home)
    outcome = reproduce(plan, home, budget)
    assert not outcome.complete and outcome.fitted == 0
    assert time.monotonic() - began < budget + 60
    assert agenda(["toy/2"], home).tasks  # it waits for the next call, which goes on from its checkpoint
    if budget > 60:  # a fit saves its state after 15 s; Ray and a worker start before
        assert any((home.results / "reproduce" / "checkpoints").glob("*/*"))
