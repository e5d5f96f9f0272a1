"""One entry within its budget, on real fits of a small dataset."""

import numpy as np
import pytest

from rankbench.core.environment import Environment
from rankbench.core.errors import ConfigError
from rankbench.data.cards import load_card
from rankbench.evaluation.metrics import metric_set
from rankbench.experiment.job import Job, configure
from rankbench.experiment.run import run
from rankbench.leaderboard.attempt import Attempt, Rules
from rankbench.leaderboard.budget import Budget
from rankbench.leaderboard.entrants import entrants

RULES = Rules("ndcg@10", metric_set(("ndcg", "recall"), (10,)), seeds=(0, 1))


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    home = tmp_path_factory.mktemp("leaderboard")
    return Environment(home / "data", None, True, home / "results", None, None)


def attempt(environment, name, budget, rules=RULES):
    each = Attempt(entrants(rules.metric)[name], load_card("synthetic", environment), Budget(budget), rules, environment)
    each.load()
    each.warm_up()
    each.search()
    return each


@pytest.mark.parametrize("name", ["ease", "ials", "sl", "popularity", "lightgcn", "rg2"])
def test_the_result_is_that_of_the_chosen_setting(environment, name):
    each = attempt(environment, name, 3.0)
    result, per_user = each.test()
    # Whether the second seed fits into the budget depends on what else the machine does.
    assert result.seeds in (((0, 1), (0,)) if each.entrant.spec.seeded else ((0,),))
    values = []
    for seed in result.seeds:
        job = Job(each.card, (configure(result.method, result.params),), "train", "test", RULES.metrics, seed=seed)
        (outcome,) = run(job, environment)
        values.append(outcome.per_user["ndcg@10"].to_numpy())
        assert outcome.record.metrics["ndcg@10"].mean == pytest.approx(result.by_seed[len(values) - 1], rel=1e-12)
    np.testing.assert_allclose(per_user["ndcg@10"].to_numpy(), np.mean(values, axis=0), rtol=1e-6)
    assert result.metrics["ndcg@10"][0] == pytest.approx(np.mean(result.by_seed), rel=1e-9)


def test_more_settings_are_tried_and_the_best_is_taken(environment):
    each = attempt(environment, "ease", 1.0)
    assert each.winner.value == max(other.value for other in each.tried) and len(each.tried) > 5
    assert all(other.model is None for other in each.tried if other is not each.winner)


def test_a_method_that_cannot_be_measured_says_so(environment):
    each = Attempt(
        entrants("ndcg@10")["bpr"],
        load_card("synthetic", environment, {"split.protocol": "held-out-users"}),
        Budget(1.0),
        RULES,
        environment,
    )
    with pytest.raises(ConfigError, match="scores only users it was trained on"):
        each.load()


def test_a_setting_that_does_not_fit_the_data_costs_itself_alone(environment):
    from dataclasses import replace

    gat = entrants("ndcg@10")["gat"]
    odd = replace(gat, space={"n_heads": {"choice": [3, 5, 7]}})  # 64 is no multiple of any of them
    each = Attempt(odd, load_card("synthetic", environment), Budget(3.0), RULES, environment)
    each.load()
    each.warm_up()
    each.search()
    assert each.winner.config == odd.config()
    assert all("must be a multiple of n_heads" in other.failure for other in each.tried if other is not each.winner)
