"""The whole way in a process of its own: fits, searches, claims, the end of a budget, and going on."""

import json
import os
import subprocess
import sys
import time

import pytest
from mlflow.tracking import MlflowClient

from rankbench.cluster.machine import Machine
from rankbench.cluster.session import Session
from rankbench.reproduce.agenda import agenda
from rankbench.reproduce.agreement import measurements
from rankbench.reproduce.catalogue import paper_tables
from rankbench.reproduce.counts import counts
from rankbench.reproduce.engine import BudgetedRun, run_within_budget
from rankbench.reproduce.evidence import Evidence
from rankbench.reproduce.ledger_records import StoredClaim, StoredSearch
from rankbench.reproduce.options import ReproduceOptions
from rankbench.reproduce.pages import write_pages
from rankbench.reproduce.required_fits import rows_of
from rankbench.tracking.record import read_record

LONG = """\
name: toy-table2
published: {paper: Toy, table: 2, recall: recall}
datasets: [synthetic]
arms:
  - name: BPR
    method: bpr
    params: {epochs: 100000, patience: 0}
    published: {synthetic: {recall@20: 0.2}}
"""

HALVED = """\
name: toy-table3
published: {paper: Toy, table: 3, recall: recall}
datasets: [synthetic]
arms:
  - name: BPR
    method: bpr
    params: {epochs: 4, patience: 4, eval_every: 1, stop_metric: ndcg@20, learning_rate: {choice: [1.0, 0.1, 0.01, 0.001]}}
    published: {synthetic: {recall@20: 0.2}}
search: {trials: 4, scheduler: asha, grace: 1, choose: {metric: ndcg@20}}
"""

ALONE = "resources: {concurrent: 1}\n"  # one worker instead of one per processor, each of which starts with each stage


# On a busy machine, what is sent to MLflow may take longer than a command waits for it.
PATIENT = """
from rankbench.tracking import mlflow_sink
mlflow_sink.PATIENCE = mlflow_sink.LIMIT = 300.0
from rankbench.cli import main; main()
"""


def command(home, *words):
    """The JSON that `rankbench reproduce` prints, and its stderr."""
    variables = os.environ | {
        "RANKBENCH_HOME": str(home.home),
        "RANKBENCH_DATA": str(home.data),
        "RANKBENCH_RESULTS": str(home.results),
        "RANKBENCH_OFFLINE": "1",
    }
    for name in ("RANKBENCH_MIRROR", "RANKBENCH_TRACKING_URI", "RAY_ADDRESS"):
        variables.pop(name, None)
    program = [sys.executable, "-c", PATIENT, "reproduce", *words, "--json"]
    done = subprocess.run(program, env=variables, cwd=home.home, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.timeout(1500)
def test_a_paper_from_nothing_to_its_page(home, tmp_path, monkeypatch):
    (home.home / "experiments" / "toy_table3.yaml").write_text(HALVED + ALONE)
    first = home.home / "experiments" / "toy_table1.yaml"
    # EDLAE is best within this range, so that the range of EASE alone is continued.
    first.write_text(first.read_text().replace("choice: [1, 10, 100]", "choice: [10, 100, 1000]") + ALONE)
    other = home.results / "reproduce" / "checkpoints" / "interrupted" / "000001"
    other.mkdir(parents=True)
    folder = home.home / "experiments" / "evidence"
    about = command(home, "toy")
    assert [path.name for path in other.parent.parent.iterdir()] == ["interrupted"] and other.exists()
    assert about["complete"] and not about["failed"] and about["searched"] == 3 and not about["not_measured"]
    tables, evidence = paper_tables(home), Evidence(folder)
    (search,) = [each for each in evidence.lines(StoredSearch, "synthetic") if each.method == "ease"]
    # The best of 1, 10 and 100 is 100 or beyond, and the range was continued until the best value lay inside it.
    assert search.draws == 3 and search.beyond > 0 and search.chosen["lam"] >= 100
    rows = {row.arm.label: measurements(row, evidence) for row in rows_of(tables[:1])}
    assert [each.origin for each in rows["EDLAE"]] == ["chosen"]
    # The setting that was found on test is no measurement of the table.
    every = counts(tables, {"toy/1"}, evidence, home)["toy/1"]
    assert (every.measured, every.on_test) == (4, 2)
    (claim,) = evidence.lines(StoredClaim, "synthetic")
    assert claim.verdict == "holds" and claim.pairs[0].difference > 0 and claim.users > 100
    files = write_pages(tmp_path / "pages", tables, evidence, home)
    assert {path.name for path in files} == {"toy.md", "toy.png", "toy-3-synthetic-curves.png", "README.md"}
    client = MlflowClient(f"sqlite:///{home.results}/mlflow.db")
    experiment = client.get_experiment_by_name("reproduce").experiment_id
    tags = [run.data.tags for run in client.search_runs([experiment])]
    notes = [each["mlflow.note.content"] for each in tags if each.get("rankbench.measured_on") == "test"]
    assert notes and all("| recall@20 " in note for note in notes)
    assert {each["rankbench.table"] for each in tags if "rankbench.run" in each} == {"toy/1", "toy/1, toy/2", "toy/3"}
    page = (tmp_path / "pages" / "toy.md").read_text()
    assert "EASE is above popularity" in page and "| holds" in page and "as published" in page
    assert "EASE (as published): lam 3.0, where the paper has 10" in page and "EASE: lam" not in page
    # Table 2 has the same row, and refers to what table 1 says about it.
    assert page.count("- EASE: Its cause is the scale of lam.") == page.count("Its cause is") == 1
    assert page.count("- EASE: the causes, as far as they are known, are at toy/1 on synthetic") == 1
    # What becomes of a trial that may be ended early depends on the others, so another search must not take it for its own.
    (halved,) = [each for each in evidence.lines(StoredSearch, "synthetic") if each.method == "bpr"]
    assert halved.draws == 4 and 0 < halved.stopped < 4 + halved.beyond and halved.seconds > 0
    apart = [read_record(path.parent) for path in home.results.glob("reproduce/searches/*/records/*/record.json")]
    assert sum(record.stopped for record in apart) == halved.stopped and len(apart) == halved.draws + halved.beyond
    assert not list(home.results.glob("reproduce/records/search-*-bpr-*"))
    assert min(len(record.curve) for record in apart if record.stopped) == 1
    # Searches that were interrupted after their last trial run none of them again; then nothing is left.
    text = {path: path.read_bytes() for path in folder.glob("*.jsonl")}
    (folder / "synthetic.searches.jsonl").unlink()
    plan = agenda(ReproduceOptions(["toy"], stages=["search"]), home)
    monkeypatch.setattr("rankbench.sweeps.run_units.run_group", lambda *_: pytest.fail("a trial is run again"))
    budgeted = BudgetedRun(plan.evidence, home, Session(True, (Machine(2, 8 << 30),)), plan.metrics)
    assert run_within_budget(lambda: plan.tasks_left(home, 2), budgeted)
    assert budgeted.outcome.searched == 3 and not agenda(ReproduceOptions(["toy"]), home).tasks
    assert {path: path.read_bytes() for path in folder.glob("*.jsonl")} == text


@pytest.mark.slow
@pytest.mark.parametrize("budget", [20, 90])
def test_a_budget_ends_the_work_and_the_next_call_goes_on(home, budget):
    (home.home / "experiments" / "toy_table2.yaml").write_text(LONG)
    began = time.monotonic()
    about = command(home, "toy/2", "--budget", f"{budget}s")
    assert not about["complete"] and about["fitted"] == 0
    assert time.monotonic() - began < budget + 90
    assert command(home, "toy/2", "--dry-run")["tasks"]  # it waits for the next call, which goes on from its checkpoint
    if budget > 60:  # a fit saves its state after 15 s; Ray and a worker start before
        assert any((home.results / "reproduce" / "checkpoints").glob("*/*"))
