"""A table measured on three nodes has the evidence of one measured on this machine alone."""

import json
from pathlib import Path

import pytest

from rankbench.reproduce.evidence import Evidence
from rankbench.reproduce.ledger_records import StoredClaim, StoredFit, StoredSearch

from ..sweeps.commands import nodes, output, start

pytestmark = [pytest.mark.cluster, pytest.mark.slow]  # minutes, and sweeps on clusters are tested always

EXPERIMENT = """\
name: toy-table9
published: {paper: Toy, table: 9, recall: recall}
datasets: [synthetic]
arms:
  - {name: Popularity, method: popularity, published: {synthetic: {recall@20: 0.1}}}
  - {name: EASE, method: ease, params: {lam: {grid: [1, 10, 100]}}, published: {synthetic: {recall@20: 0.2}}}
  - name: BPR
    method: bpr
    params: {embedding_dim: 8, epochs: 5, patience: 0}
    published: {synthetic: {recall@20: 0.2}}
claims: [{text: EASE is above popularity, better: [EASE], than: [Popularity], metric: recall@20}]
"""


def evidence_of(home: Path, *words: str, **environment: str) -> Evidence:
    (home / "experiments" / "evidence").mkdir(parents=True)
    (home / "experiments" / "toy_table9.yaml").write_text(EXPERIMENT)
    variables = environment | {"RANKBENCH_HOME": str(home), "RANKBENCH_DATA": str(home.parent / "data")}
    out, _ = output(start(home, "reproduce", "toy/9", "--json", *words, **variables))
    about = json.loads(out)
    assert about["complete"] and not about["failed"] and not about["not_measured"]
    return Evidence(home / "experiments" / "evidence")


@pytest.mark.timeout(500)
def test_a_cluster_gives_the_same_evidence(tmp_path):
    with nodes() as about:
        there = evidence_of(tmp_path / "there", "--address", about["address"], **about["environment"])
    here = evidence_of(tmp_path / "here")
    measured = [{each.key: each.metrics for each in evidence.lines(StoredFit, "synthetic")} for evidence in (there, here)]
    assert measured[0] == measured[1] and len(measured[0]) == 5  # popularity and EASE once, BPR with three seeds
    assert [each.chosen for each in there.lines(StoredSearch, "synthetic")] == [
        each.chosen for each in here.lines(StoredSearch, "synthetic")
    ]
    assert [each.pairs for each in there.lines(StoredClaim, "synthetic")] == [
        each.pairs for each in here.lines(StoredClaim, "synthetic")
    ]
