"""What a contest stores of entries that it cannot run."""

from types import SimpleNamespace

import pytest

from rankbench.cluster.machine import Machine
from rankbench.core.environment import Environment
from rankbench.data.cards import load_card
from rankbench.evaluation.metrics import MetricSet
from rankbench.experiment.estimate import Size
from rankbench.leaderboard.attempt import Rules
from rankbench.leaderboard.budget import Budget
from rankbench.leaderboard.contest import Entry, Plan, run
from rankbench.leaderboard.entrants import entrants
from rankbench.leaderboard.results import Results


@pytest.mark.parametrize("threads", [1, 2])
def test_an_entry_without_a_result_has_the_threads_that_it_was_to_have(tmp_path, threads):
    """They decide whether it is done: what is late with one may be in time with two."""
    environment = Environment.from_env()
    results, rules = Results(tmp_path), Rules("ndcg@20", MetricSet(("ndcg@20",)), n_threads=threads)
    entry = Entry(
        entrants("ndcg@20")["popularity"], load_card("synthetic", environment), Size(10, 10, 50, 250.0, 10), Budget(1.0), 1.0
    )
    small = SimpleNamespace(machines=[Machine(2, 1000)])
    run(Plan((entry,), 0, {}), rules, results, environment, small)
    (stored,) = results.all()
    assert (stored.status, stored.threads) == ("failed", threads)
