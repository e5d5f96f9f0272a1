"""A sweep as a user sees it in MLflow while it runs: points of its fits, and no run that runs for ever after Ctrl-C."""

import signal
import sqlite3
from contextlib import closing

import pytest

from .commands import output, start, wait_until

EXPERIMENT = """
name: long
datasets:
  - {name: synthetic, source: {generator: {users: 200, items: 80, interactions_per_user: 12}}}
arms:
  - {method: bpr, params: {epochs: 1000000, patience: 0, embedding_dim: 8, learning_rate: 0.001}}
search: {choose: {metric: ndcg@10, on: valid}}
cutoffs: [10]
resources: {cpus: 1, concurrent: 1}
"""


@pytest.mark.timeout(300)
def test_points_of_a_fit_arrive_while_it_runs_and_an_interrupted_one_is_killed(tmp_path):
    (tmp_path / "long.yaml").write_text(EXPERIMENT, encoding="utf-8")
    process = start(tmp_path, "sweep", "long.yaml")
    store = tmp_path / "results" / "mlflow.db"

    def asked(question):
        try:
            with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection:
                return [row[0] for row in connection.execute(question)]
        except sqlite3.OperationalError:  # the store and its tables are still made, or it is written at this moment
            return []

    def steps():
        return asked("SELECT step FROM metrics WHERE key = 'curve/loss' ORDER BY step")

    def status():
        return asked("SELECT status FROM runs JOIN tags USING (run_uuid) WHERE key = 'rankbench.method'")

    wait_until(lambda: len(steps()) > 1, process)
    first = steps()
    wait_until(lambda: len(steps()) > len(first), process)  # of a second message
    found = steps()
    assert found == [*range(1, len(found) + 1)] and status() == ["RUNNING"]
    process.send_signal(signal.SIGINT)
    output(process, code=130)
    output(start(tmp_path, "tracking", "sync"))  # what an interrupted sweep had no time to send
    assert status() == ["KILLED"]
