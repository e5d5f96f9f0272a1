"""Every closed form of the Gram against its definition, and what configurations share.

DEQL is compared with the paper's equations, themselves held to the expectation over every dropout mask.
"""

import numpy as np
import pytest
import scipy.sparse as sp
from closed_form_oracles import H, debiased_loss, direct, expected_dlae, expected_edlae, masks, ridge_by_item, v
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal

from rankbench.core.errors import ConfigError, NumericalError
from rankbench.data.blocks import gram
from rankbench.experiment.methods import registered
from rankbench.fitting.method import Shift
from rankbench.solvers.inverse.shared import fit_shared, inverse

PROPERTY = settings(max_examples=25)
BINARY = arrays(float, (9, 5), elements=st.sampled_from([0.0, 1.0]))
NO_EMPTY_ITEM = BINARY.filter(lambda X: X.any(axis=0).all())
TINY = arrays(float, (4, 3), elements=st.sampled_from([0.0, 1.0]))
P, RIDGE, ALPHA = st.floats(0.05, 0.9), st.floats(0.1, 1e3), st.floats(0.0, 0.95)
A, B = st.floats(0.3, 3.0), st.floats(0.1, 5.0)  # B reaches beyond A: b > a is allowed
PAIRS = st.tuples(A, B) | A.map(lambda a: (a, a))
CLOSED_FORMS = ("ease", "debiased-ease", "edlae", "dlae", "deql", "deql-l2", "deql-l2-zero-diag")


def members(*named):
    return [(solver := registered().get(method), solver.params(**values)) for method, values in named]


def fit(X, *named):
    """One model for each (method, parameters), all from one inverse."""
    return fit_shared(gram(sp.csr_array(X), np.float64), members(*named))


def weights(X, method, **values):
    (model,) = fit(X, (method, values))
    return model.dense_weights()


def identity(method, **values):
    ((solver, p),) = members((method, values))
    return solver.identity_of(p)


def h2(p, a, b):
    return (1 - p) * ((1 - p) * p * a**2 + (1 - p) ** 2 * b**2)


def assert_close(found, expected):
    # Entries are differences of terms up to 1/(1-p) <= 10; a zero is a zero up to a few dozen roundings of those.
    rounding = 10 * 64 * np.finfo(float).eps
    assert_allclose(found, expected, rtol=1e-8, atol=1e-8 * np.abs(expected).max() + rounding)


# EASE and debiased EASE.


@PROPERTY
@given(X=BINARY, lam=RIDGE, alpha=ALPHA)
def test_ease_is_one_ridge_regression_an_item(X, lam, alpha):
    assert_allclose(weights(X, "ease", lam=lam), ridge_by_item(X, lam), atol=1e-10)
    debiased = weights(X, "debiased-ease", lam=lam, alpha=alpha)
    assert_allclose(debiased, ridge_by_item(X, lam, alpha), atol=1e-9)
    same = {"lam": lam / (1 - alpha)}
    assert_allclose(debiased, weights(X, "ease", **same) / (1 - alpha), atol=1e-9)
    assert identity("debiased-ease", lam=lam, alpha=alpha) == identity("ease", **same)
    (one, p), (other, q) = members(("debiased-ease", {"lam": lam, "alpha": alpha}), ("ease", same))
    assert one.share_key(p) == other.share_key(q)


@pytest.mark.parametrize("c", [1.5, 2.0, 6.0])  # with the α that is printed, c − 1, nothing from 2 on would have a minimum
def test_the_alpha_of_a_weight_c_is_c_minus_1_over_c(c):
    X = (np.random.default_rng(0).random((40, 7)) < 0.4).astype(float)
    lam = 5.0
    W = weights(X, "debiased-ease", lam=lam / c, alpha=(c - 1) / c)
    assert_allclose(W, c * weights(X, "ease", lam=lam), atol=1e-12)
    rng = np.random.default_rng(1)
    for _ in range(20):
        step = rng.standard_normal(W.shape) * 1e-3
        np.fill_diagonal(step, 0)
        at, up, down = (debiased_loss(X, each, c, lam) for each in (W, W + step, W - step))
        assert up > at
        assert up == pytest.approx(down, abs=1e-4 * (up - at))  # a slope would make them differ


# EDLAE and DLAE.


@PROPERTY
@given(X=TINY, p=P, lam=st.floats(0.1, 100.0))
def test_edlae_and_dlae_minimise_their_expected_loss(X, p, lam):
    assert_allclose(weights(X, "edlae", p=p, lam=lam), expected_edlae(X, p, lam), atol=1e-9)
    assert_array_equal(weights(X, "edlae", p=0.0, lam=lam), weights(X, "ease", lam=lam))
    assert_allclose(weights(X, "dlae", p=p, lam=lam) / (1 - p), expected_dlae(X, p, lam), atol=1e-9)


# DEQL.


@PROPERTY
@given(X=TINY, p=P, a=A, b=B)
def test_lemma_3_2_is_the_expectation_over_every_mask(X, p, a, b):
    keep, probability = masks(*X.shape, p)
    for i in range(X.shape[1]):
        emphasis = np.where(keep[:, :, i] == 1, b, a) ** 2
        shown = keep * X
        expected_H = np.einsum("t,tsk,ts,tsl->kl", probability, shown, emphasis, shown, optimize=True)
        expected_v = np.einsum("t,tsk,ts,s->k", probability, shown, emphasis, X[:, i], optimize=True)
        assert_allclose(H(X, i, p, a, b), expected_H, rtol=1e-10, atol=1e-12)
        assert_allclose(v(X, i, p, a, b), expected_v, rtol=1e-10, atol=1e-12)


@PROPERTY
@given(X=NO_EMPTY_ITEM, p=P, ab=PAIRS)
def test_deql_is_the_solution_of_the_direct(X, p, ab):
    assert_close(weights(X, "deql", p=p, a=ab[0], b=ab[1]), direct(X, p, *ab, lam=0.0))


@PROPERTY
@given(X=BINARY, p=P | st.just(0.0), ab=PAIRS, lam=st.floats(0.1, 100.0))
def test_deql_l2_is_the_solution_of_the_direct(X, p, ab, lam):
    values = {"p": p, "a": ab[0], "b": ab[1]}
    expected = weights(X, "deql-l2", **values, lam=lam)
    assert_close(expected, direct(X, p, *ab, lam))
    assert_close(weights(X, "deql-l2", **values, lam_prime=lam / h2(p, *ab)), expected)


@PROPERTY
@given(X=BINARY, p=P, a=A, b=B | st.just(0.0), lam=st.floats(0.1, 100.0))
def test_with_a_zero_diagonal_it_is_the_solution_of_the_direct(X, p, a, b, lam):
    W = weights(X, "deql-l2-zero-diag", p=p, a=a, b=b, lam=lam)
    assert_close(W, direct(X, p, a, b, lam, zero_diagonal=True))
    assert_allclose(np.diagonal(W), 0, atol=1e-12)
    if b:
        assert_close(weights(X, "deql-l2-zero-diag", p=p, a=a, b=b, lam_prime=lam / h2(p, a, b)), W)
        without_dropout = weights(X, "deql-l2-zero-diag", p=0.0, a=a, b=b, lam=lam)
        assert_close(without_dropout, direct(X, 0.0, a, b, lam, zero_diagonal=True))
    # Without emphasis on kept entries the diagonal need not be forbidden: it is EDLAE.
    assert_close(weights(X, "deql-l2", p=p, b=0.0, lam_prime=lam), weights(X, "edlae", p=p, lam=lam))


# What is shared.


@settings(max_examples=10)
@given(X=BINARY, p=P, lam=RIDGE, emphases=st.lists(st.tuples(A, B | st.just(0.0)), min_size=2, max_size=3))
def test_a_shared_fit_equals_separate_fits(X, p, lam, emphases):
    named = [("deql-l2", {"p": p, "a": a, "b": b, "lam_prime": lam}) for a, b in emphases]
    named += [("edlae", {"p": p, "lam": lam}), ("dlae", {"p": p, "lam": lam})]
    for shared, (method, values) in zip(fit(X, *named), named, strict=True):
        assert_array_equal(shared.dense_weights(), weights(X, method, **values))


@settings(max_examples=5)
@given(X=BINARY, p=st.sampled_from([0.0, 0.5]), lam=st.sampled_from([1.0, 10.0]))
def test_settings_of_equal_identity_rank_equally(X, p, lam):
    # Few values, so that settings of different names and letters often meet in one identity.
    pairs = [(1.0, 0.5), (2.0, 1.0), (1.0, 2.0), (2.0, 2.0)] + [(1.0, 0.0), (2.0, 0.0)] * (p > 0)
    named = [(method, {"p": p, "lam": lam}) for method in ("edlae", "dlae")]
    named += [("ease", {"lam": lam}), ("debiased-ease", {"lam": lam / 2, "alpha": 0.5})] * (p == 0)
    for method in ("deql-l2", "deql-l2-zero-diag"):
        for a, b in pairs:
            named += [(method, {"p": p, "a": a, "b": b} | ridge) for ridge in ({"lam_prime": lam}, {"lam": lam * h2(p, a, b)})]
    leaders, met = {}, 0
    for method, values in named:
        scores = np.where(X == 0, X @ weights(X, method, **values), 0.0)
        if (key := identity(method, **values)) in leaders:
            # Scores that differ by one positive factor: the same ranking, without a verdict on ties that rounding breaks.
            factor = np.linalg.norm(scores) / max(np.linalg.norm(leaders[key]), 1e-300)
            assert_allclose(scores, factor * leaders[key], atol=1e-8 * max(np.abs(scores).max(), 1e-300))
            met += 1
        leaders.setdefault(key, scores)
    assert met >= len(pairs)
    # And no more than that: of equal emphases, DLAE; of others, nothing else.
    assert identity("deql", p=0.5, a=3.0, b=3.0) == identity("dlae", p=0.5, lam=0.0)
    assert identity("deql-l2", p=0.5, a=1.0, b=2.0, lam_prime=10.0) != identity("dlae", p=0.5, lam=10.0)


@PROPERTY
@given(X=BINARY, odds=st.floats(0.0, 9.0), ridge=st.floats(0.0, 100.0), empty=st.integers(0, 4))
def test_empty_items_stand_apart_from_the_system_of_the_others(X, odds, ridge, empty):
    X[:, empty] = 0
    met = np.flatnonzero(X.any(axis=0))
    G = X.T @ X
    system = (G + np.diag(odds * np.diagonal(G) + ridge))[np.ix_(met, met)]
    # Equal columns without a ridge are singular: see below.
    assume(len(met) and np.linalg.cond(system) < 1e10)
    C = inverse(gram(sp.csr_array(X), np.float64), Shift(odds, ridge))
    assert_allclose(C[np.ix_(met, met)] @ system, np.eye(len(met)), atol=1e-5)
    assert not C[empty, met].any()


@pytest.mark.parametrize("method", CLOSED_FORMS)
def test_items_have_weights_by_their_interactions_and_not_by_their_place(method):
    X = (np.random.default_rng(5).random((20, 6)) < 0.4).astype(float)
    X[:, 2] = 0
    order = np.array([3, 0, 5, 2, 1, 4])
    W = weights(X, method)
    assert_allclose(weights(X[:, order], method), W[np.ix_(order, order)], atol=1e-10)
    others = [0, 1, 3, 4, 5]
    assert_array_equal(W[:, 2], 0)
    assert_close(W[np.ix_(others, others)], weights(X[:, others], method))


def test_all_members_hold_the_memory_of_the_gram_and_have_one_system():
    XtX = gram(sp.csr_array(np.eye(4)))
    memory = XtX.matrix
    models = fit_shared(XtX, members(("edlae", {"p": 0.0, "lam": 2.0}), ("ease", {"lam": 2.0})))
    assert all(model.C is memory for model in models)
    with pytest.raises(ConfigError, match="taken before"):
        XtX.take()
    with pytest.raises(ConfigError, match="2 different systems"):
        fit(np.eye(4), ("ease", {"lam": 1.0}), ("ease", {"lam": 2.0}))


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_what_cannot_be_inverted_is_a_numerical_error_and_nothing_else_is_said():
    with pytest.raises(NumericalError, match="not positive definite"):
        weights(np.ones((3, 2)), "edlae", p=0.0, lam=0.0)
    # A ridge beyond float32: the inverse is 0, and what the method divides by it is infinite.
    with pytest.raises(NumericalError, match="ease: column 0 is not finite"):
        fit_shared(gram(sp.csr_array(np.eye(2))), members(("ease", {"lam": 1e39})))


NAN = float("nan")
WRONG = [
    ("ease", {"lam": 0.0}, "lam must be > 0"), ("ease", {"lam": NAN}, "lam must"),
    ("debiased-ease", {"alpha": 1.0}, "alpha must"),
    ("edlae", {"p": 1.0}, "p must"), ("dlae", {"p": 0.0, "lam": 0.0}, "identity matrix"),
    ("deql", {"p": 0.0}, r"p must lie in \(0, 1\)"), ("deql", {"b": 0.0}, r"b must lie in \(0"),
    ("deql", {"a": 1e200}, "a must lie in"), ("deql", {"b": 1e200}, "b must lie in"),  # their squares are no numbers
    ("deql-l2", {"b": -0.5}, r"b must lie in \[0"), ("deql-l2", {"p": 0.0, "b": 0.0}, "there is no loss"),
    ("deql-l2", {"p": 0.0, "b": 1e-200}, "there is no loss"),  # its square is 0
    ("deql-l2", {"lam_prime": -1.0}, "lam_prime must be > 0"), ("deql-l2", {"lam": 1.0, "lam_prime": 1.0}, "not both"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "values", "message"), WRONG)
def test_values_out_of_range_are_refused(method, values, message):
    with pytest.raises(ConfigError, match=message):
        members((method, values))
