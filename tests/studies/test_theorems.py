"""The gaps of the theorems against worked numbers, dense eigenvalues, and a maximum over all distributions, in float64."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.optimize import minimize

from rankbench.studies.theorems import Theorems, least_eigenvalue, robust_gap, simulate, softmax_gap, talos_gap


def test_rg2_is_below_softmax_where_two_items_share_the_probability():
    o = np.zeros(1000)
    o[:2] = 10
    assert softmax_gap(o) == pytest.approx(-2.9722446987 - 0.7155489166, abs=1e-7)
    assert least_eigenvalue(o) < 0
    assert softmax_gap(np.full(1000, 0.3)) == pytest.approx(0.3**2 / 2) and least_eigenvalue(np.zeros(1000)) == pytest.approx(0)


@example([700.0, -100.0, -100.0, -100.0])
@example([30.0, 0.0, -30.0])
@given(st.lists(st.floats(-8, 8), min_size=2, max_size=12))
def test_the_assumption_is_tested_by_the_least_eigenvalue(logits):
    o = np.array(logits)
    p = np.exp(o) / np.exp(o).sum()
    matrix = np.eye(len(o)) / len(o) - np.diag(p) + np.outer(p, p)
    assert least_eigenvalue(o) == pytest.approx(np.linalg.eigvalsh(matrix)[0], abs=1e-8)


@given(st.lists(st.floats(-0.3, 0.3), min_size=4, max_size=10), st.floats(0.01, 0.02))
def test_logits_that_stay_within_the_assumption_are_within_the_bound(logits, scale):
    """The proof: if the matrix has no negative eigenvalue on the way from 0 to o, the inequality holds."""
    o = scale * np.array(logits)
    if all(least_eigenvalue(step * o) >= 0 for step in np.linspace(0, 1, 11)):
        assert softmax_gap(o) >= -1e-12


def test_talos_by_the_definition():
    s, tau, p = np.array([0.7, 0.3, 0.5, 0.1, -0.2, -0.6]), 0.1, Theorems(K=2)

    def activation(x):
        return (1 / (1 + math.exp(0.5 - x))) ** (1 / tau)

    loss = -math.log(sum(map(activation, s[:2])) / sum(map(activation, s)))
    assert loss == pytest.approx(0.3252484940)
    assert talos_gap(s, 2, tau, p) == (pytest.approx(loss + math.log(2) / tau + math.log(1 / 2)), 1)
    none = -math.log(sum(map(activation, s[4:])) / sum(map(activation, s)))
    gap, hits = talos_gap(s[[4, 5, 0, 1, 2, 3]], 2, tau, p)
    assert (gap, hits) == (pytest.approx(none + math.log(2) / tau + math.log(1e-4)), 0)


@pytest.mark.parametrize("tau", [0.05, 0.3])
def test_no_distribution_within_the_radius_does_better(tau):
    g = np.array([0.4, 0.1, -0.1, -0.5, -0.9])
    gap, radius = robust_gap(g, tau)
    assert gap < 1e-9 and 0 < radius < math.log(5)

    def divergence(q):
        return (q * np.log(np.maximum(q, 1e-300) * len(g))).sum()

    within = {"type": "ineq", "fun": lambda q: radius - divergence(q)}
    whole = {"type": "eq", "fun": lambda q: q.sum() - 1}
    start, bounds = np.full(5, 0.2), [(1e-12, 1)] * 5
    best = minimize(
        lambda q: -(q @ g), start, bounds=bounds, constraints=[within, whole], options={"ftol": 1e-14, "maxiter": 500}
    )
    q = np.exp(g / tau) / np.exp(g / tau).sum()
    assert divergence(q) == pytest.approx(radius) and -best.fun == pytest.approx(q @ g, abs=1e-6)


def test_lists_have_the_positives_of_users_and_every_theorem_is_tested():
    found = simulate(np.array([3]), 40, Theorems(trials=5, K=5, lift=2.0), 0, lambda *progress: None)
    assert all(hits == 3 for _, hits in found["Talos is above Precision, hits", 0.1])
    assert {theorem for theorem, _ in found} >= {"SL is a robust loss", "Talos is a robust loss", "RG² is above softmax"}
    assert all(len(values) == 5 for values in found.values())
