"""Sweeps whose trials divide their own work, on clusters of 1, 2 and 4 processors: they end, and never wait for each other.

Trials of two nodes are nested: the trial and its blocks need processors of the same cluster. Ray may be told that it has four
processors on a machine of two.
"""

import pytest

from .commands import nodes, output, records_of, start

EXPERIMENT = """
name: nested
datasets:
  - {name: synthetic, source: {generator: {users: 300, items: 200, interactions_per_user: 15}}}
arms:
  - {method: ials, params: {embedding_dim: {grid: [4, 8, 12, 16]}, iterations: 3}}
  - {method: ease, params: {lam: {grid: [4, 400]}}}
search: {choose: {metric: ndcg@10, on: valid}}
final: {fit_on: train}
cutoffs: [10]
"""


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.fault("F8")
@pytest.mark.parametrize(("n_nodes", "cpus"), [(1, 1), (1, 2), (2, 1), (1, 4), (2, 2)])
def test_nested_trials_end_and_too_many_processors_are_refused(tmp_path, n_nodes, cpus, figure):
    (tmp_path / "nested.yaml").write_text(EXPERIMENT)
    with nodes("--nodes", str(n_nodes), "--cpus", str(cpus), "--memory", "4000000000") as about:
        words = ("sweep", str(tmp_path / "nested.yaml"), "--address", about["address"])
        output(start(tmp_path / "nested", *words, "resources={cpus: 1, nodes: 2}", **about["environment"]))
        refused = start(tmp_path / "refused", *words, f"resources={{cpus: {cpus + 1}}}", **about["environment"])
        _, err = output(refused, code=2)
    records = records_of(tmp_path / "nested").values()
    assert len(records) == 8 and all(record.finished for record in records)
    line = err.splitlines()[-1]
    assert line.startswith("error: ") and f"a fit needs {cpus + 1} CPUs" in line
    assert not records_of(tmp_path / "refused")
    figure(f"{n_nodes} x {cpus} CPU: a nested sweep of 8 fits ends; {cpus + 1} CPUs refused, with both numbers")
