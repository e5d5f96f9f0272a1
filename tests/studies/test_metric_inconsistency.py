"""The simulation against enumeration: every list, every pair, each metric by its definition over items one by one."""

import math
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbench.core.errors import ConfigError
from rankbench.core.params import parameters
from rankbench.data.prepare import load
from rankbench.studies.metric_inconsistency import METRICS, MetricInconsistency, measured, positives_of_users, simulate

K = 3


def by_definition(positives, length, alpha, beta):
    """Metrics of a list that has positive items at `positives`, by walking it."""
    relevant = [rank in positives for rank in range(1, length + 1)]
    places = [at for at, is_one in enumerate(relevant) if is_one]
    negatives = [at for at, is_one in enumerate(relevant) if not is_one]
    top, worst = places[: math.ceil(alpha * len(places))], negatives[: math.ceil(beta * len(negatives))]

    def ordered(some, others):
        return sum(one < other for one, other in product(some, others)) / (len(some) * len(others))

    def dcg(labels):
        return sum(1 / math.log2(at + 2) for at, is_one in enumerate(labels) if is_one)

    ideal = sorted(relevant, reverse=True)
    return {
        "hits": sum(relevant[:K]),
        "auc": ordered(places, negatives),
        "llpauc": ordered(top, worst),
        "ndcg": dcg(relevant) / dcg(ideal),
        "ndcg@K": dcg(relevant[:K]) / dcg(ideal[:K]),
    }


@given(st.data())
def test_metrics_of_a_list_are_those_of_their_definitions(data):
    length = data.draw(st.integers(K + 1, 30))
    positives = data.draw(st.sets(st.integers(1, length), min_size=1, max_size=length - 1))
    alpha, beta = data.draw(st.floats(0.01, 1)), data.draw(st.floats(0.01, 1))
    expected = by_definition(positives, length, alpha, beta)
    found = measured(np.array([sorted(positives)]), length, K, alpha, beta)
    assert found.hits[0] == expected["hits"]
    for name in METRICS:
        assert found.metrics[name][0] == pytest.approx(expected[name], abs=1e-11), name


def exact(n, length, alpha, beta):
    """Metric → the three ratios in %, over every pair of lists with n positives."""
    lists = [by_definition(set(chosen), length, alpha, beta) for chosen in combinations(range(1, length + 1), n)]
    pairs = list(product(lists, lists))
    unequal = sum(one["hits"] != other["hits"] for one, other in pairs)
    ratios = {}
    for name in METRICS:
        # Looked at from the list that the metric prefers.
        preferred = [(a, b) if a[name] > b[name] else (b, a) for a, b in pairs if abs(a[name] - b[name]) > 1e-9]
        opposed = sum(a["hits"] < b["hits"] for a, b in preferred)
        idle = sum(a["hits"] <= b["hits"] for a, b in preferred)
        ratios[name] = 100 * opposed / len(pairs), 100 * opposed / unequal, 100 * idle / len(pairs)
    return ratios


@pytest.mark.parametrize(("n", "length", "alpha", "beta"), [(1, 6, 1, 1), (2, 8, 0.5, 0.5), (4, 9, 0.5, 0.2)])
def test_the_simulation_estimates_the_ratios_over_every_pair(n, length, alpha, beta):
    p = MetricInconsistency(list_lengths=str(length), K=K, alpha=alpha, beta=beta, trials=40_000)
    found = simulate(np.array([n, n]), length, p, seed=0)
    for name, expected in exact(n, length, alpha, beta).items():
        assert list(found[name].values()) == pytest.approx(expected, abs=1.5), name  # four standard errors of the second
    assert found["ndcg"]["opposed"] <= found["ndcg"]["no gain"]


def test_lists_that_are_drawn_a_few_at_a_time_are_the_same(monkeypatch):
    p, sizes = MetricInconsistency(list_lengths="25", trials=50), np.array([3, 5])
    at_once = simulate(sizes, 25, p, seed=0)
    monkeypatch.setattr("rankbench.studies.metric_inconsistency.ITEMS", 60)
    assert simulate(sizes, 25, p, seed=0) == at_once


def test_draws_with_replacement_estimate_the_ratios_over_every_pair_of_sequences():
    """Lists of two ranks out of four that may be equal; AUC orders them by the sum of the ranks."""
    lists = [(sum(rank <= K for rank in ranks), -sum(ranks)) for ranks in product(range(1, 5), repeat=2)]
    pairs = list(product(lists, lists))
    preferred = [(a, b) if a[1] > b[1] else (b, a) for a, b in pairs if a[1] != b[1]]
    opposed = 100 * sum(a[0] < b[0] for a, b in preferred) / len(pairs)
    no_gain = 100 * sum(a[0] <= b[0] for a, b in preferred) / len(pairs)
    p = MetricInconsistency(list_lengths="4", K=K, trials=40_000, with_replacement=True, n_positives=2)
    found = simulate(np.array([2]), 4, p, seed=0)["auc"]
    assert (found["opposed"], found["no gain"]) == (pytest.approx(opposed, abs=1), pytest.approx(no_gain, abs=1))
    assert no_gain > 10


def test_a_number_of_positives_replaces_those_of_the_users(environment):
    split = load("synthetic", environment).split
    assert positives_of_users(split, MetricInconsistency(n_positives=7)).tolist() == [7]
    in_test = positives_of_users(split, MetricInconsistency(positives="test"))
    every = positives_of_users(split, MetricInconsistency())
    n_items = split.fit_matrix("train+valid").nnz + split.test_target.nnz
    assert in_test.sum() == split.test_target.nnz and every.sum() == n_items and (every > 0).all()


def test_users_with_more_positives_are_drawn_as_often_as_there_are_such_users():
    p = MetricInconsistency(list_lengths="8", K=K, alpha=0.5, beta=0.5, trials=40_000)
    found = simulate(np.array([1, 1, 1, 4]), 8, p, seed=0)
    few, many = exact(1, 8, 0.5, 0.5), exact(4, 8, 0.5, 0.5)
    for name in METRICS:
        assert found[name]["no gain"] == pytest.approx(0.75 * few[name][2] + 0.25 * many[name][2], abs=1), name


def test_seeds_decide_and_bad_values_are_refused():
    p = MetricInconsistency(list_lengths="30", K=K, trials=500)
    sizes = np.array([2, 5, 9])
    assert simulate(sizes, 30, p, 0) == simulate(sizes, 30, p, 0) != simulate(sizes, 30, p, 1)
    for values, word in [({"K": 0}, "K"), ({"alpha": 0}, "alpha"), ({"beta": 1.5}, "beta"), ({"list_lengths": "9,x"}, "9,x")]:
        with pytest.raises(ConfigError, match=word):
            parameters(MetricInconsistency, values, "metric-inconsistency")
