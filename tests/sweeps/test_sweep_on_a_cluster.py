"""A sweep on three nodes, one of which dies in the middle: the records are those of a sweep on this machine alone."""

import os
import signal

import pytest

from .commands import nodes, output, records_of, start, wait_until

EXPERIMENT = """
name: wide
datasets:
  - {name: synthetic, source: {generator: {users: 600, items: 300, interactions_per_user: 15}}}
arms:
  - {method: ials, params: {embedding_dim: {grid: [8, 16]}, iterations: 6}}
  - {method: ease, params: {lam: {grid: [4, 400]}}}
  - {method: bpr, params: {embedding_dim: 8, epochs: 5, n_negatives: 5, learning_rate: {grid: [0.01, 0.1]}}}
search: {choose: {metric: ndcg@10, on: valid}}
final: {fit_on: train}
cutoffs: [10]
resources: {cpus: 1, nodes: 2}
"""


@pytest.mark.cluster
@pytest.mark.timeout(500)
@pytest.mark.fault("F1")
def test_a_node_that_dies_changes_nothing(tmp_path, figure):
    """Trials on two nodes beside narrow ones."""
    (tmp_path / "x.yaml").write_text(EXPERIMENT)
    words = ("sweep", str(tmp_path / "x.yaml"))
    with nodes("--memory", "4000000000") as about:
        spread = start(tmp_path / "spread", *words, "--address", about["address"], **about["environment"])
        wait_until(lambda: records_of(tmp_path / "spread"), spread)
        os.kill(about["raylets"][2], signal.SIGKILL)
        _, err = output(spread)
    assert "ials: 2 nodes of 1 CPU: resources.nodes: 2" in err
    output(start(tmp_path / "alone", *words))
    there, here = records_of(tmp_path / "spread"), records_of(tmp_path / "alone")
    assert there.keys() == here.keys() and len(here) == 9
    assert all(record.finished for record in there.values())
    for name, record in here.items():
        if record.method == "ease":
            # By tiles on two nodes, unless only one was left.
            assert there[name].metrics["ndcg@10"].mean == pytest.approx(record.metrics["ndcg@10"].mean, rel=1e-4)
        else:
            assert there[name].metrics == record.metrics
    figure(f"a sweep on 3 nodes, one killed: {len(here)} of {len(here)} records equal to those of one machine")
