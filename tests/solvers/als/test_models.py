"""Every ALS model against its printed loss over dense matrices: coefficients, half steps, whole fits, redundancies."""

from functools import partial

import dense
import numpy as np
import pytest
import reference
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from rankbench.core.threads import pinned
from rankbench.experiment.execution import Execution
from rankbench.experiment.fit import fit as fit_configs
from rankbench.experiment.job import configure
from rankbench.experiment.methods import registered
from rankbench.fitting.executors import ThreadMap
from rankbench.fitting.method import Iterative
from rankbench.solvers.als.fit import Counts
from rankbench.solvers.als.half_step import HalfStep, objective, of_items, of_users
from rankbench.solvers.factorisation import ials

ALS = [each.name for each in registered() if isinstance(each, Iterative) and each.quadratic_loss]
HERE = ThreadMap(1)

# Models, with parameters off their defaults and both values of every choice.
CASES = [
    ("wrmf", {"lam": 0.7, "alpha": 3.0}),
    ("wrmf", {"lam": 0.7, "alpha": 0.0}),
    ("ials", {"lam": 0.02, "alpha0": 0.3, "nu": 1.0}),
    ("ials", {"lam": 0.2, "alpha0": 0.05, "nu": 0.4}),
    ("debiased-ials", {"lam": 0.02, "alpha0": 0.3, "a": 0.5, "extra": 2.0}),
    ("rg2", {"lam": 0.05}),
    ("rg2", {"lam": 2.0, "regulariser": "product"}),
    ("rg2", {"lam": 0.3, "regulariser": "unweighted"}),
    ("rgx-paper", {"lam": 0.05, "beta": 0.3}),
    ("rg2-sampled", {"lam": 0.05, "n_negatives": 2}),
    ("rg2-sampled", {"lam": 0.05, "n_negatives": 4, "weights": "expected"}),
    ("rg-authors", {"lam": 0.05, "alpha": 0.2, "beta": 0.0, "reg": "authors"}),
    ("rg-authors", {"lam": 0.05, "alpha": 0.2, "beta": 0.25}),
]
EVERY_CASE = pytest.mark.parametrize(("method", "values"), CASES)


def matrix(seed=0, n_users=24, n_items=11, density=0.3):
    """0/1 interactions of users and items that differ in activity; one user and one item without any."""
    rng = np.random.default_rng(seed)
    R = rng.random((n_users, n_items)) < np.outer(rng.random(n_users) + 0.5, np.geomspace(1.5, 0.4, n_items)) * density
    R[3], R[:, 5] = False, False
    R[0, 0] = True
    return R.astype(np.float64)


def fit(R, method, values, iterations=6, dim=3, seed=1, dtype="float64", tell=lambda step: None):
    chosen = configure(method, {"embedding_dim": dim, "iterations": iterations, "init_scale": 1.0} | values)
    X = sp.csr_array(R.astype(np.float32))
    (model,) = fit_configs((chosen,), X, dtype, seed, Execution(executor=HERE), observe=lambda step: tell(step) or {}).models
    return model


def loss_of(R, method, values):
    chosen = configure(method, values)
    return chosen.spec.quadratic_loss(Counts(R.sum(1), R.sum(0), sp.csr_array(R)), chosen.params)


def half_steps(R, loss, dim):
    X = sp.csr_array(R.astype(np.float32))
    by_item = sp.csr_array(X.T)
    by_item.sort_indices()
    both = (X, of_users(loss)), (by_item, of_items(loss))
    return tuple(HalfStep(rows, on, dim, np.float64, "exact", HERE) for rows, on in both)


def oracle(R, method, values):
    return dense.MODELS[method](R, configure(method, values).params)


def test_every_method_of_this_kind_has_a_case():
    assert {method for method, _ in CASES} | {"rgx"} == set(ALS)


@EVERY_CASE
def test_the_objective_is_the_printed_loss(method, values):
    R, rng = matrix(), np.random.default_rng(2)
    model, stated = oracle(R, method, values), loss_of(R, method, values)
    users, _ = half_steps(R, stated, 3)
    P, Q = rng.normal(size=(len(R), 3)), rng.normal(size=(R.shape[1], 3))
    found = objective(stated, users.blocks, HERE, P, Q) - stated.constant
    assert_allclose(found, dense.value(model, P, Q), rtol=1e-10)
    W, WS, _, _ = model
    if method in ("wrmf", "rg2-sampled") and values.get("weights") != "expected":
        assert_allclose(stated.constant, np.divide(WS**2, W, out=np.zeros_like(W), where=W > 0).sum())


@EVERY_CASE
@pytest.mark.parametrize("dim", [2, 5, 16, 19])
def test_a_half_step_is_the_dense_solution(method, values, dim):
    R, rng = matrix(), np.random.default_rng(3)
    model = oracle(R, method, values)
    loss, X = loss_of(R, method, values), sp.csr_array(R)
    users, items = half_steps(R, loss, dim)
    P, Q = rng.normal(size=(len(R), dim)), rng.normal(size=(R.shape[1], dim))
    reference_P = reference.half_step(X, of_users(loss), Q)
    reference_Q = reference.half_step(sp.csr_array(X.T), of_items(loss), P)
    if values.get("regulariser") == "product" and dim > R.shape[1]:
        # Vectors that the loss does not determine: any of its solutions has the scores of the least.
        for P in (users.solve(Q), reference_P):
            assert_allclose(P @ Q.T, dense.solve_users(model, Q) @ Q.T, atol=1e-6)
        return
    assert_allclose(reference_P, dense.solve_users(model, Q), rtol=1e-8, atol=1e-9)
    assert_allclose(reference_Q, dense.solve_items(model, P), rtol=1e-8, atol=1e-9)
    assert_allclose(users.solve(Q), dense.solve_users(model, Q), rtol=1e-8, atol=1e-9)
    assert_allclose(items.solve(P), dense.solve_items(model, P), rtol=1e-8, atol=1e-9)


@settings(max_examples=30)
@given(
    case=st.sampled_from([*CASES, ("rgx", {"lam": 0.05})]),
    seed=st.integers(0, 10**6),
    shape=st.tuples(st.integers(1, 40), st.integers(6, 20)),
    density=st.floats(0.02, 0.9),
    dim=st.sampled_from([1, 4, 17]),
    dtype=st.sampled_from(["float64", "float32"]),
)
def test_the_loss_never_rises(case, seed, shape, density, dim, dtype):
    rng = np.random.default_rng(seed)
    R = (rng.random(shape) < density).astype(np.float64)
    R[0, 0] = 1
    losses = []
    fit(R, *case, iterations=5, dim=dim, seed=seed, dtype=dtype, tell=lambda step: losses.append(step.loss))
    slack = (1e-9 if dtype == "float64" else 1e-4) * (1 + np.abs(losses).max())
    assert len(losses) == 5 and (np.diff(losses) <= slack).all(), losses


def test_the_authors_item_step_is_the_one_that_raises_the_loss():
    R = matrix()
    values = {"lam": 0.01, "alpha": 0.0, "item_rhs_sign": 1}
    assert loss_of(R, "rg-authors", values).item_all_target is not None
    assert all(loss_of(R, *case).item_all_target is None for case in CASES)
    losses = []
    fit(R, "rg-authors", values, tell=lambda step: losses.append(step.loss))
    assert max(np.diff(losses)) > 1e-3


def test_exact_rgx_is_rg2():
    """RG×'s own loss, the coupled term and all, minimised over all items at once, gives RG²'s vectors."""
    R, rng = matrix(n_users=14, n_items=7), np.random.default_rng(0)
    n, N, lam, dim = R.sum(1), R.shape[1], 0.05, 2
    W, WS, users, items = dense.MODELS["rg2"](R, configure("rg2", {"lam": lam}).params)
    P = rng.normal(size=(len(R), dim))

    def value(flat):
        Q = flat.reshape(N, dim)
        Y = P @ Q.T
        return (W * Y * Y - 2 * WS * Y).sum() + items @ (Q * Q).sum(1) - (n / (2 * N**2)) @ Y.sum(1) ** 2

    zero, unit = np.zeros(N * dim), np.eye(N * dim)
    base = value(zero)
    one, minus = (np.array([value(sign * e) for e in unit]) for sign in (1, -1))
    H = np.array([[value(a + b) - value(a) - value(b) + base for a in unit] for b in unit])
    Q = np.linalg.solve(H, -(one - minus) / 2).reshape(N, dim)
    assert_allclose(Q.sum(0), 0, atol=1e-8)
    assert_allclose(Q, dense.solve_items((W, WS, users, items), P), atol=1e-7)
    for dtype in ("float64", "float32"):
        one, other = (fit(R, method, {"lam": lam}, dtype=dtype) for method in ("rg2", "rgx"))
        assert np.array_equal(one.V, other.V) and np.array_equal(one.U, other.U)
    settings = [configure(method, {"lam": lam}) for method in ("rg2", "rgx")]
    assert settings[0].identity == settings[1].identity


@pytest.mark.parametrize("method", ["rg2", "rgx", "rgx-paper"])
def test_without_weights_on_interactions_settings_of_the_solver_are_one_fit_and_a_plan_says_so(method):
    R, ways = matrix(), [{}, {"solver": "cg", "cg_steps": 1}, {"solver": "subspace", "subspace_dim": 32}]
    models, settings = ([make(values) for values in ways] for make in (partial(fit, R, method), partial(configure, method)))
    assert all(np.array_equal(model.U, models[0].U) for model in models)
    assert len({each.identity for each in settings}) == 1
    assert {"solver", "cg_steps", "subspace_dim"} == set(settings[0].spec.redundant) and settings[0].spec.reason
    # With weights the solver counts, but no parameter of another solver.
    assert len({configure("ials", values).identity for values in (*ways, {"cg_steps": 9})}) == len(ways)


def test_the_start_of_a_training_by_gradient_steps_uses_all_threads(monkeypatch):
    X, workers, whole = sp.csr_array(matrix().astype(np.float32)), [], ials.alternate
    monkeypatch.setattr(ials, "alternate", lambda *given: workers.append(given[-1].executor.workers) or whole(*given))
    found = []
    for threads in (1, 2):
        with pinned(threads):
            found.append(ials.fitted_ials(X, 4, 0))
    assert workers == [1, 2]
    assert all(np.array_equal(*tables) for tables in zip(*found, strict=True))


@EVERY_CASE
def test_a_fit_is_the_same_iterations_over_dense_matrices_and_folding_in_the_user_step(method, values):
    R, strangers = matrix(), matrix(seed=9)
    model, start = oracle(R, method, values), fit(R, method, values, iterations=1)
    P, Q = start.U, start.V
    assert_allclose(P, dense.solve_users(model, Q), rtol=1e-7, atol=1e-8)
    for _ in range(5):
        Q = dense.solve_items(model, P)
        P = dense.solve_users(model, Q)
    found = fit(R, method, values, iterations=6)
    assert_allclose(found.U, P, rtol=1e-6, atol=1e-6)
    assert_allclose(found.V, Q, rtol=1e-6, atol=1e-6)
    assert not found.U[3].any()  # without interactions
    histories = sp.csr_array(np.vstack([R, strangers]).astype(np.float32))
    got = found.fold(np.arange(histories.shape[0]), histories)
    assert_allclose(got.U[len(R) :], dense.solve_users(oracle(strangers, method, values), found.V), rtol=1e-6, atol=1e-8)
    assert np.array_equal(got.U[: len(R)], found.U)
    # One user alone has the same vector, and those of others are not copied.
    alone = found.fold(np.array([len(R)]), sp.csr_array(histories[[len(R)]]))
    assert_allclose(alone.U[len(R)], got.U[len(R)], rtol=1e-12)
    assert alone.U[len(R)].any() and not alone.U[: len(R)].any()


def test_an_item_that_nobody_met_comes_to_the_target_of_rg2():
    R = matrix()
    rg2 = fit(R, "rg2", {"lam": 1e-6}, dim=11)  # room for every score and next to no ridge
    assert_allclose((rg2.U @ rg2.V.T)[R.sum(1) > 0, 5], -1, atol=0.05)


def test_more_negatives_than_other_items_are_all_of_them():
    few, many = (fit(matrix(), "rg2-sampled", {"n_negatives": n}) for n in (10, 1000))  # of eleven items
    assert_array_equal(few.V, many.V)
    assert (fit(matrix(), "rg2-sampled", {"n_negatives": 9}).V != many.V).any()


@EVERY_CASE
def test_users_without_interactions_change_no_other_vector(method, values):
    """With held-out users, the rows of those users are empty, and the model must not depend on how many there are."""
    R = matrix()
    few, many = (fit(np.vstack([R, np.zeros((n, R.shape[1]))]), method, values) for n in (0, 12))
    assert_allclose(many.V, few.V, rtol=1e-9, atol=1e-12)
    assert_allclose(many.U[: len(R)], few.U, rtol=1e-9, atol=1e-12)
