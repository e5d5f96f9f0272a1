"""The ranking, against loops that score all, mask, sort by (-score, item id) and count pairs."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from rankbench.core.errors import NumericalError
from rankbench.core.threads import pinned
from rankbench.data.splits import Holdout
from rankbench.evaluation.ranking import STRIDE, rank
from rankbench.fitting.recommenders import FactorRecommender, LinearRecommender

PROPERTY = settings(max_examples=30, deadline=None)  # kernels are compiled at their first call
SEEDS = st.integers(0, 2**32 - 1)
BLOCK_USERS, BLOCK_ITEMS = st.integers(1, 60), st.integers(1, 16)
N_USERS, N_ITEMS = 9, 13


def csr(dense):
    return sp.csr_array(dense.astype(np.float32))


def some_holdout(rng):
    """Fewer rows than users, in another order, some without history, some without targets, one that has met everything."""
    users = rng.permutation(N_USERS)[:7].astype(np.int32)
    part = rng.integers(0, 4, (7, N_ITEMS))  # 0 history, 1 target, else a candidate
    part[rng.random(7) < 0.2] = 3
    history, target = part == 0, part == 1
    history[0], target[0] = True, False
    target[0, rng.integers(N_ITEMS)] = True
    return Holdout(users, csr(history & ~target), csr(target))


def whole_numbers(rng, *shape, dtype=np.float32):
    """Small whole numbers: sums are exact in any order, and ties are everywhere."""
    return rng.integers(-2, 3, shape).astype(dtype)


def some_linear(rng, dtype=np.float32):
    half = whole_numbers(rng, N_ITEMS, N_ITEMS, dtype=dtype)
    beta, alpha = whole_numbers(rng, 2, N_ITEMS, dtype=np.float64)
    return LinearRecommender(half + half.T, beta, alpha)


def some_factors(rng, dtype=np.float32):
    return FactorRecommender(whole_numbers(rng, N_USERS, 3, dtype=dtype), whole_numbers(rng, N_ITEMS, 3, dtype=dtype))


def score_one(model, user, seen):
    """The scores of one user for all items, from the definition of each form."""
    if isinstance(model, FactorRecommender):
        return [sum(model.U[user, f] * model.V[j, f] for f in range(model.U.shape[1])) for j in range(N_ITEMS)]
    W = [[model.C[i, j] * model.beta[j] + (model.alpha[j] if i == j else 0) for j in range(N_ITEMS)] for i in range(N_ITEMS)]
    return [sum(W[i][j] for i in seen) for j in range(N_ITEMS)]


def rank_by_loops(model, holdout, k):
    """Rows, lists, areas, and for each target the number of other candidates above it, and of these candidates."""
    rows, lists, areas, above, others = [], [], [], [], []
    for row, user in enumerate(holdout.users):
        seen = set(holdout.history[[row]].indices.tolist())
        targets = set(holdout.target[[row]].indices.tolist())
        if not targets:
            continue
        scores = score_one(model, user, seen)
        candidates = [j for j in range(N_ITEMS) if j not in seen]
        best = sorted(candidates, key=lambda j: (-scores[j], j))[:k]
        rows.append(row)
        lists.append(best + [-1] * (min(k, N_ITEMS) - len(best)))
        pairs = [(scores[t], scores[j]) for t in targets for j in candidates if j not in targets]
        won = sum(1.0 if a > b else 0.5 if a == b else 0.0 for a, b in pairs)
        areas.append(won / len(pairs) if pairs else 0.5)
        rest = [scores[j] for j in candidates if j not in targets]
        above += [sum(1.0 if x > scores[t] else 0.5 if x == scores[t] else 0.0 for x in rest) for t in sorted(targets)]
        others.append(len(rest))
    return tuple(map(np.array, (rows, lists, areas, above, others)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("some_model", [some_linear, some_factors])
@PROPERTY
@given(seed=SEEDS, k=st.integers(1, N_ITEMS + 4), block_users=BLOCK_USERS, block_items=BLOCK_ITEMS)
def test_it_is_the_brute_force_ranking_whatever_the_blocks(some_model, dtype, seed, k, block_users, block_items):
    rng = np.random.default_rng(seed)
    model, holdout = some_model(rng, dtype), some_holdout(rng)
    (found,) = rank([model], holdout, k, auc=True, block_users=block_users, block_items=block_items)
    rows, items, auc, above, others = rank_by_loops(model, holdout, k)
    assert_array_equal(found.rows, rows)
    assert_array_equal(found.users, holdout.users[rows])
    assert_array_equal(found.items, items)
    assert_allclose(found.auc, auc, atol=1e-12)
    assert_array_equal(found.above, above)
    assert_array_equal(found.others, others)


def test_candidates_with_a_score_of_minus_infinity_tie_with_a_target_that_has_it():
    """As of a model that diverged; a seen item is no candidate, whatever its score."""
    scores = np.array([[-np.inf, -np.inf, -np.inf, 1.0, 0.5]])
    model = FactorRecommender(np.ones((1, 1), np.float32), scores.T.astype(np.float32))
    holdout = Holdout(np.array([0], np.int32), csr(np.array([[0, 0, 1, 0, 0]])), csr(np.array([[1, 0, 0, 0, 0]])))
    (found,) = rank([model], holdout, 5, auc=True)
    assert found.above.tolist() == [2.5] and found.others.tolist() == [3]


def test_lists_that_end_between_equal_scores_are_counted():
    scores = np.array([[3, 2, 1, 0, 0], [1, 0, 0, 0, 0], [2, 2, 1, 0, 0], [0, 0, 0, 0, 0]], np.float32)
    history, target = np.zeros((4, 5)), np.zeros((4, 5))
    history[3, :3] = 1  # two candidates are left, which are no full list
    target[:, 4] = 1
    model = FactorRecommender(np.eye(4, dtype=np.float32), scores.T.copy())
    holdout = Holdout(np.arange(4, dtype=np.int32), csr(history), csr(target))
    assert [rank([model], holdout, k)[0].n_tied for k in (1, 2, 3, 5)] == [2, 1, 1, 0]


@PROPERTY
@given(seed=SEEDS, block_users=BLOCK_USERS, block_items=BLOCK_ITEMS)
def test_a_family_shares_its_base_and_nothing_else(seed, block_users, block_items):
    rng = np.random.default_rng(seed)
    holdout, first, factors = some_holdout(rng), some_linear(rng), some_factors(rng)
    siblings = [LinearRecommender(first.C, *whole_numbers(rng, 2, N_ITEMS, dtype=np.float64)) for _ in range(2)]
    # Equal vectors of items with others of users are another family.
    models = [first, factors, siblings[0], some_linear(rng), siblings[1], FactorRecommender(-factors.U, factors.V)]
    together = rank(models, holdout, 5, auc=True, block_users=block_users, block_items=block_items)
    for model, found in zip(models, together, strict=True):
        (alone,) = rank([model], holdout, 5, auc=True)
        assert_array_equal(found.items, alone.items)
        assert_array_equal(found.auc, alone.auc)


@pytest.mark.parametrize("item", [0, 5, N_ITEMS - 1])
def test_a_score_that_is_not_a_number_is_refused(item):
    rng = np.random.default_rng(2)
    model = some_factors(rng)
    model.V[item] = np.nan
    holdout = Holdout(np.arange(2, dtype=np.int32), csr(np.zeros((2, N_ITEMS))), csr(np.eye(2, N_ITEMS)))
    with pytest.raises(NumericalError, match="FactorRecommender: a score is not a number"):
        rank([model], holdout, 3, block_items=4)


def test_progress_counts_every_row_of_every_family():
    rng = np.random.default_rng(3)
    seen, holdout = [], some_holdout(rng)
    rank([some_linear(rng), some_factors(rng)], holdout, 3, progress=lambda *step: seen.append(step), block_users=2)
    n_rows = int((np.diff(holdout.target.indptr) > 0).sum())
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (2 * n_rows, 2 * n_rows)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_wide_catalogue_is_ranked_as_a_stable_sort_would(dtype):
    """Wider than the strides in which scores are compared, with many ties, in blocks that cut strides and not."""
    rng = np.random.default_rng(11)
    n_items = 5 * STRIDE + 7
    model = FactorRecommender(whole_numbers(rng, 9, 3, dtype=dtype), whole_numbers(rng, n_items, 3, dtype=dtype))
    history = csr(rng.random((9, n_items)) < 0.1)
    holdout = Holdout(np.arange(9, dtype=np.int32), history, csr(rng.random((9, n_items)) < 0.05))
    scores = np.where(history.toarray() > 0, -np.inf, model.U @ model.V.T)
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :20]
    for block_items in (n_items, STRIDE, STRIDE + 1, 2 * STRIDE, 50):
        (found,) = rank([model], holdout, 20, block_items=block_items)
        assert_array_equal(found.items, expected[found.rows])
    for threads in (1, 2):
        with pinned(threads):
            assert_array_equal(rank([model], holdout, 20, block_users=2)[0].items, expected[found.rows])
    model.V[3 * STRIDE + 5] = np.nan
    with pytest.raises(NumericalError):
        rank([model], holdout, 20)
