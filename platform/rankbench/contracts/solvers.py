"""What is asked of every solver: fits of a small matrix, by each precision, seed and number of threads."""

from __future__ import annotations

import dataclasses

import numpy as np
import scipy.sparse as sp

from rankbench.contracts.check import Contract, NotCheckedError, expect, expect_equal, expect_finite
from rankbench.contracts.parameters import at_the_ends, check_parameters
from rankbench.contracts.training import expect_resumes, scores
from rankbench.core import threads
from rankbench.core.compiler import numba
from rankbench.data.blocks import csr_from_pairs
from rankbench.data.splits import Holdout
from rankbench.evaluation.metrics import measure, metric_set
from rankbench.evaluation.ranking import rank
from rankbench.experiment.fit import fit as fit_configs
from rankbench.experiment.job import configure
from rankbench.fitting.method import Iterative, Method
from rankbench.fitting.recommenders import AutoencoderRecommender, FactorRecommender, Recommender, score
from rankbench.solvers.als.fold_in import FoldInRecommender

CONTRACT = Contract("method")
check_parameters(CONTRACT, lambda method: method.params)
N_USERS, N_ITEMS = 80, 30
METRICS = metric_set(["recall", "ndcg", "map", "precision"], [5, 10])


def data() -> tuple[sp.csr_array, Holdout]:
    """X and holdout: random interactions of items that differ in popularity, none of them empty."""
    rng = np.random.default_rng(5)
    met = rng.random((N_USERS, N_ITEMS)) < np.geomspace(0.6, 0.1, N_ITEMS)
    target = met & (rng.random(met.shape) < 0.25)
    X, held = (csr_from_pairs(*np.nonzero(part), met.shape) for part in (met & ~target, target))
    assert X.sum(axis=0).all()
    return X, Holdout(np.arange(N_USERS, dtype=np.int32), X, held)


def fit(method: str, X: sp.csr_array, dtype: str = "float32", seed: int = 0, **params: object) -> Recommender:
    """The model of the default parameters, and of those given."""
    (model,) = fit_configs((configure(method, params),), X, dtype, seed).models
    return model


def means(method: str, X: sp.csr_array, holdout: Holdout, dtype: str) -> dict[str, float]:
    """The mean of each metric over users."""
    (ranking,) = rank([fit(method, X, dtype)], holdout, METRICS.k)
    return {name: value.mean() for name, value in measure(ranking, holdout, METRICS).values.items()}


@CONTRACT.check(
    "default parameters give a recommender with finite scores of every user and item",
    "return a recommender of fitting/recommenders.py, whose rows are users and items of X",
)
def scores_are_finite(method: Method) -> None:
    X, _ = data()
    model = fit(method.name, X)
    expect(isinstance(model, Recommender), f"the fit gave a {type(model).__name__}, which is no Recommender")
    expect(model.n_items == N_ITEMS, f"the model has {model.n_items} items instead of {N_ITEMS}")
    whole = scores(model, X)
    expect(whole.shape == (N_USERS, N_ITEMS), f"the scores have the shape {whole.shape} instead of {(N_USERS, N_ITEMS)}")
    expect_finite(whole, "scores")
    some = np.array([7, 3], np.int32)
    expect_equal(score(model, some, X[some], slice(4, 11)), whole[some, 4:11], "scores of two users alone", 1e-6, 1e-7)


@CONTRACT.check("the same seed gives the same bits", "draw random numbers only from rankbench.core.rng.stream(seed, ...)")
def seeds_repeat(method: Method) -> None:
    X, _ = data()
    expect_equal(scores(fit(method.name, X, seed=3), X), scores(fit(method.name, X, seed=3), X), "scores of two fits")


@CONTRACT.check(
    "`seeded` is declared if and only if the seed changes the model",
    "set seeded=True if the seed changes the model, so that sweeps repeat it with each seed, and leave it out otherwise",
)
def seeded_is_declared(method: Method) -> None:
    rng = np.random.default_rng(2)
    met = rng.random((60, 25)) < np.geomspace(0.6, 0.1, 25)
    X = csr_from_pairs(*np.nonzero(met), met.shape)
    # Not to the end: an objective with one optimum is the same for all seeds there.
    names = {field.name for field in method.fields()}
    short = {name: 2 for name in ("iterations", "epochs") if name in names}
    one, two = (scores(fit(method.name, X, "float64", seed, **short), X) for seed in (0, 1))
    # A seed that draws a start vector alone changes the last digits.
    same = np.allclose(one, two, rtol=1e-3, atol=1e-4 * np.abs(one).max())
    expect(same != method.seeded, f"seeded={method.seeded}, and two seeds give {'equal' if same else 'different'} scores")


@CONTRACT.check(
    "the number of threads changes no ranking",
    "add floating-point numbers in a fixed order, whatever thread computes them",
)
def threads_change_nothing(method: Method) -> None:
    if numba.config.NUMBA_NUM_THREADS < 2:  # type: ignore[attr-defined]
        raise NotCheckedError("this process may use only one thread")
    X, holdout = data()
    rankings = []
    for n_threads in (1, 2):
        with threads.pinned(n_threads):
            (ranking,) = rank([fit(method.name, X)], holdout, 10)
            rankings.append(ranking.items)
    expect_equal(*rankings, "items ranked with one and with two threads")


@CONTRACT.check(
    "float32 measures what float64 measures",
    "compute in the type `dtype` of the argument, sums and decompositions that lose digits in float64",
)
def precisions_agree(method: Method) -> None:
    X, holdout = data()
    single, double = (means(method.name, X, holdout, dtype) for dtype in ("float32", "float64"))
    for name, value in double.items():
        expect_equal(single[name], value, name, atol=1e-3)


@CONTRACT.check(
    "settings with equal identities have the same ranking",
    "correct identity=, and used= of the parameters: settings with equal identities are fitted only once",
)
def identities_are_true(method: Method) -> None:
    X, holdout = data()
    (usual, *others), compared = at_the_ends(method.params), 0
    for p in others:
        if method.identity_of(p) != method.identity_of(usual):
            continue
        models = [fit(method.name, X, "float64", **dataclasses.asdict(each)) for each in (usual, p)]
        first, second = (ranking.items for ranking in rank(models, holdout, 10))
        expect_equal(second, first, f"items ranked with {p} and with the default parameters")
        compared += 1
    if not compared:
        raise NotCheckedError("each parameter changes the identity")


@CONTRACT.check("a fit does not change the matrix that it gets", "copy X before you change it")
def input_is_unchanged(method: Method) -> None:
    X, _ = data()
    before = X.copy()
    fit(method.name, X)
    for part in ("indptr", "indices", "data"):
        expect_equal(getattr(X, part), getattr(before, part), f"X.{part} after and before the fit")


@CONTRACT.check(
    "users who were not fitted are scored from their history",
    "declare folds=False if a model cannot score them, as a FactorRecommender with vectors of fitted users",
)
def strangers_are_scored(method: Method) -> None:
    X, _ = data()
    model = fit(method.name, X, "float64")
    if isinstance(model, FoldInRecommender | AutoencoderRecommender):
        strangers = np.arange(N_USERS, 2 * N_USERS, dtype=np.int32)
        expect_equal(
            score(model, strangers, X, slice(0, N_ITEMS)),
            scores(model, X),
            "scores of strangers with users' histories",
            1e-6,
            1e-9,
        )
    elif isinstance(model, FactorRecommender):
        if not method.folds or method.draws_users:
            raise NotCheckedError("folds=False, or draws_users=True, is declared")
        # Without a fold-in, only a model that ignores histories gives a user without one the scores of the others.
        empty = csr_from_pairs(*np.nonzero(np.zeros((1, N_ITEMS))), (1, N_ITEMS))
        whole = sp.csr_array(sp.vstack([X, empty], format="csr"))
        found = scores(fit(method.name, whole, "float64"), whole)
        alone = np.tile(found[-1], (N_USERS, 1))
        expect_equal(alone, found[:-1], "scores of a user without interactions and of others", 1e-6, 1e-9)
    elif not hasattr(model, "dense_weights"):
        raise NotCheckedError("a model of a class of its own has no weights between items to compare with")
    else:
        unseen = sp.csr_array((np.random.default_rng(9).random((N_USERS + 20, N_ITEMS)) < 0.3).astype(np.float32))
        unseen = sp.vstack([unseen, sp.csr_array((1, N_ITEMS), dtype=np.float32)], format="csr")  # the last has no history
        W = model.dense_weights()
        expect_equal(
            scores(model, unseen), unseen @ W, "scores of strangers and history times weights", 1e-4, 1e-5 * np.abs(W).max()
        )


@CONTRACT.check(
    "renaming the users changes nothing but their order",
    "draw random starts for items only and compute the users from them, or declare draws_users=True",
)
def users_have_no_order(method: Method) -> None:
    if method.draws_users:
        raise NotCheckedError("draws_users=True is declared")
    X, _ = data()
    order = np.random.default_rng(0).permutation(N_USERS)
    permuted = sp.csr_array(X[order])
    found, expected = (scores(fit(method.name, of, "float64"), of) for of in (permuted, X))
    expect_equal(found, expected[order], "scores of the renamed users", 1e-5, 1e-6)


@CONTRACT.check(
    "an interrupted and resumed fit ends as an undisturbed one",
    "state() must return everything that the next iteration reads, and `start` must restore it",
)
def fits_resume(method: Method) -> None:
    if not isinstance(method, Iterative):
        raise NotCheckedError("the method has no iterations")
    expect_resumes(configure(method.name, {method.length: 4}), data()[0])
