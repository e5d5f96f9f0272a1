"""DEQL collapsed, against the paper's two algorithms, themselves held to the expectation over every dropout mask."""

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from deql_oracles import H, direct, miller, v
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal

from rankbench.core.errors import ConfigError
from rankbench.data.blocks import gram
from rankbench.experiment.methods import registered
from rankbench.solvers.inverse.shared import fit_shared
from rankbench.solvers.linear.deql import DEQL, DEQLL2

PROPERTY = settings(max_examples=60, deadline=None)  # kernels are compiled at their first call
BINARY = arrays(float, (9, 5), elements=st.sampled_from([0.0, 1.0]))
NO_EMPTY_ITEM = BINARY.filter(lambda X: X.any(axis=0).all())
TINY = arrays(float, (4, 3), elements=st.sampled_from([0.0, 1.0]))
P, RIDGE = st.floats(0.05, 0.9), st.floats(0.1, 100.0)
A, B = st.floats(0.3, 3.0), st.floats(0.1, 5.0)  # B reaches beyond A: b > a is allowed
PAIRS = st.tuples(A, B) | A.map(lambda a: (a, a))
PAPER = pytest.mark.parametrize("paper", [direct, miller])


def fit(X, *members):
    """One model a member (method, parameters), all from one inverse."""
    pairs = [(solver := registered().get(method), solver.params(**values)) for method, values in members]
    return fit_shared(gram(sp.csr_array(X), np.float64), pairs)


def weights(X, method, **values):
    (model,) = fit(X, (method, values))
    return model.dense_weights()


def h2(p, a, b):
    return (1 - p) * ((1 - p) * p * a**2 + (1 - p) ** 2 * b**2)


def assert_close(found, expected):
    # Entries are differences of terms up to 1/(1-p) <= 10; a zero is a zero up to a few dozen roundings of those.
    rounding = 10 * 64 * np.finfo(float).eps
    assert_allclose(found, expected, rtol=1e-8, atol=1e-8 * np.abs(expected).max() + rounding)


def unseen_scores(X, W):
    return np.where(X == 0, X @ W, 0.0)


def assert_same_order(found, expected):
    """Scores that differ by one positive factor: the same ranking, without a verdict on ties that rounding breaks."""
    factor = np.linalg.norm(found) / max(np.linalg.norm(expected), 1e-300)
    assert_allclose(found, factor * expected, atol=1e-8 * max(np.abs(found).max(), 1e-300))


@PROPERTY
@given(X=TINY, p=P, a=A, b=B)
def test_lemma_3_2_is_the_expectation_over_every_mask(X, p, a, b):
    m, n = X.shape
    keep = np.array(list(product([0.0, 1.0], repeat=m * n))).reshape(-1, m, n)
    probability = np.prod(np.where(keep == 1, 1 - p, p), axis=(1, 2))
    for i in range(n):
        emphasis = np.where(keep[:, :, i] == 1, b, a) ** 2
        shown = keep * X
        expected_H = np.einsum("t,tsk,ts,tsl->kl", probability, shown, emphasis, shown, optimize=True)
        expected_v = np.einsum("t,tsk,ts,s->k", probability, shown, emphasis, X[:, i], optimize=True)
        assert_allclose(H(X, i, p, a, b), expected_H, rtol=1e-10, atol=1e-12)
        assert_allclose(v(X, i, p, a, b), expected_v, rtol=1e-10, atol=1e-12)


@PAPER
@PROPERTY
@given(X=NO_EMPTY_ITEM, p=P, ab=PAIRS)
def test_deql_is_the_solution_of_the_paper(paper, X, p, ab):
    assert_close(weights(X, "deql", p=p, a=ab[0], b=ab[1]), paper(X, p, *ab, lam=0.0))


@PAPER
@PROPERTY
@given(X=BINARY, p=P | st.just(0.0), ab=PAIRS, lam=RIDGE)
def test_deql_l2_is_the_solution_of_the_paper(paper, X, p, ab, lam):
    assert_close(weights(X, "deql-l2", p=p, a=ab[0], b=ab[1], lam=lam), paper(X, p, *ab, lam))


@PROPERTY
@given(X=BINARY, p=P, a=A, b=B | st.just(0.0), lam=RIDGE)
def test_zero_diagonal_is_the_direct_solution(X, p, a, b, lam):
    W = weights(X, "deql-l2-zero-diag", p=p, a=a, b=b, lam=lam)
    assert_close(W, direct(X, p, a, b, lam, zero_diagonal=True))
    assert_allclose(np.diagonal(W), 0, atol=1e-12)


@PROPERTY
@given(X=BINARY, p=P | st.just(0.0), ab=PAIRS, lam=RIDGE)
def test_zero_diagonal_is_the_fast_algorithm(X, p, ab, lam):
    W = weights(X, "deql-l2-zero-diag", p=p, a=ab[0], b=ab[1], lam=lam)
    assert_close(W, miller(X, p, *ab, lam, zero_diagonal=True))


@PAPER
@pytest.mark.parametrize("ab", [(1.0, 0.2), (1.0, 1.0), (0.5, 4.0)], ids=["a > b", "a = b", "b > a"])
@pytest.mark.parametrize("p", [0.0, 0.6])
def test_items_and_users_without_interactions_change_nothing_else(paper, ab, p):
    X = (np.random.default_rng(4).random((20, 8)) < 0.3).astype(float)
    X[:, [2, 5]] = 0
    X[[0, 7]] = 0
    W = weights(X, "deql-l2", p=p, a=ab[0], b=ab[1], lam=3.0)
    assert_close(W, paper(X, p, *ab, 3.0))
    assert_array_equal(W, weights(X[X.any(axis=1)], "deql-l2", p=p, a=ab[0], b=ab[1], lam=3.0))


@PROPERTY
@given(X=BINARY, p=P, lam=RIDGE)
def test_without_emphasis_on_kept_entries_it_is_edlae(X, p, lam):
    assert_close(weights(X, "deql-l2", p=p, b=0.0, lam_prime=lam), weights(X, "edlae", p=p, lam=lam))


@PROPERTY
@given(X=BINARY, p=P, a=A, b=B, lam=RIDGE, method=st.sampled_from(["deql-l2", "deql-l2-zero-diag"]))
def test_lam_prime_is_lam_over_h2(X, p, a, b, lam, method):
    expected = weights(X, method, p=p, a=a, b=b, lam=lam)
    assert_close(weights(X, method, p=p, a=a, b=b, lam_prime=lam / h2(p, a, b)), expected)


@PROPERTY
@given(X=NO_EMPTY_ITEM, p=P, a=A, b=B, lam=RIDGE, factor=st.floats(0.1, 10.0))
def test_a_common_factor_on_the_emphases_changes_nothing(X, p, a, b, lam, factor):
    scaled = {"p": p, "a": a * factor, "b": b * factor}
    assert_close(weights(X, "deql", **scaled), weights(X, "deql", p=p, a=a, b=b))
    expected = weights(X, "deql-l2", p=p, a=a, b=b, lam=lam)
    assert_close(weights(X, "deql-l2", **scaled, lam=lam * factor**2), expected)


@settings(max_examples=30, deadline=None)
@given(X=BINARY, p=P, lam=RIDGE, emphases=st.lists(st.tuples(A, B | st.just(0.0)), min_size=2, max_size=4))
def test_a_shared_fit_equals_separate_fits(X, p, lam, emphases):
    members = [("deql-l2", {"p": p, "a": a, "b": b, "lam_prime": lam}) for a, b in emphases]
    members += [("edlae", {"p": p, "lam": lam}), ("dlae", {"p": p, "lam": lam})]
    for shared, (method, values) in zip(fit(X, *members), members, strict=True):
        assert_array_equal(shared.dense_weights(), weights(X, method, **values))


@settings(max_examples=20, deadline=None)
@given(X=BINARY, data=st.data())
def test_settings_of_equal_identity_rank_equally(X, data):
    # Few values, so that settings of different names and letters often meet in one identity.
    p, lam = data.draw(st.sampled_from([0.0, 0.5])), data.draw(st.sampled_from([1.0, 10.0]))
    pairs = [(1.0, 0.5), (2.0, 1.0), (1.0, 2.0), (2.0, 2.0)] + [(1.0, 0.0), (2.0, 0.0)] * (p > 0)
    members = [(method, {"p": p, "lam": lam}) for method in ("edlae", "dlae")]
    members += [("ease", {"lam": lam}), ("debiased-ease", {"lam": lam / 2, "alpha": 0.5})] * (p == 0)
    for method in ("deql-l2", "deql-l2-zero-diag"):
        for a, b in pairs:
            members.append((method, {"p": p, "a": a, "b": b, "lam_prime": lam}))
            members.append((method, {"p": p, "a": a, "b": b, "lam": lam * h2(p, a, b)}))
    leaders, met = {}, 0
    for method, values in members:
        solver = registered().get(method)
        identity = solver.identity_of(solver.params(**values))
        scores = unseen_scores(X, weights(X, method, **values))
        if identity in leaders:
            assert_same_order(scores, leaders[identity])
            met += 1
        leaders.setdefault(identity, scores)
    assert met >= len(pairs)


@pytest.mark.parametrize("method", ["deql", "deql-l2", "deql-l2-zero-diag"])
def test_an_item_without_interactions_has_a_column_of_zeros(method):
    X = np.array([[1, 1, 0, 0], [0, 1, 0, 1], [1, 0, 0, 1], [1, 1, 0, 0]], float)
    W = weights(X, method)
    assert_array_equal(W[:, 2], 0)
    others = [0, 1, 3]
    assert_close(W[np.ix_(others, others)], weights(X[:, others], method))


@pytest.mark.parametrize("values", [{"lam": 1.0, "lam_prime": 1.0}, {"lam": 10.0, "lam_prime": 3.0}])
def test_lam_and_lam_prime_together_are_refused(values):
    with pytest.raises(ConfigError, match="give lam or lam_prime, not both"):
        DEQLL2(**values)


@pytest.mark.parametrize(
    "params, values, message",
    [
        (DEQL, {"p": 1.0}, "p must lie in"),
        (DEQL, {"p": -0.1}, "p must lie in"),
        (DEQL, {"p": 0.0}, r"p must lie in \(0, 1\)"),
        (DEQL, {"a": 0.0}, "a must lie in"),
        (DEQL, {"b": 0.0}, r"b must lie in \(0"),
        (DEQL, {"b": -1.0}, r"b must lie in \(0"),
        (DEQLL2, {"p": 1.0}, "p must lie in"),
        (DEQLL2, {"p": float("nan")}, "p must lie in"),
        (DEQLL2, {"a": -1.0}, "a must lie in"),
        (DEQLL2, {"b": -0.5}, r"b must lie in \[0"),
        (DEQLL2, {"p": 0.0, "b": 0.0}, "there is no loss"),
        (DEQLL2, {"p": 0.0, "b": 1e-200}, "there is no loss"),  # its square is 0
        (DEQL, {"a": 1e200}, "a must lie in"),  # its square is no number
        (DEQL, {"b": 1e200}, "b must lie in"),
        (DEQLL2, {"lam": 0.0}, "lam must be > 0"),
        (DEQLL2, {"lam_prime": -1.0}, "lam_prime must be > 0"),
        (DEQLL2, {"lam": float("nan")}, "lam must be > 0"),
    ],
)
def test_values_out_of_range_are_refused(params, values, message):
    with pytest.raises(ConfigError, match=message):
        params(**values)
