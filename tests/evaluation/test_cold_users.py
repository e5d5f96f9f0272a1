"""Users without a history: who is measured, and what is recommended to them, against loops and other rankings."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from small_data import Columns

from rankbench.data.splits import Holdout
from rankbench.evaluation.cold_users import counts_of_users, means_by_history, rank_all
from rankbench.evaluation.metrics import measure, metric_set
from rankbench.evaluation.ranking import rank
from rankbench.fitting.recommenders import FactorRecommender, LinearRecommender
from rankbench.solvers.tiled.recommender import TiledLinearRecommender

N_USERS, N_ITEMS, K = 12, 9, 4
SEEDS = st.integers(0, 2**32 - 1)
PROPERTY = settings(max_examples=25, deadline=None)  # kernels are compiled at their first call
MODES = st.sampled_from(["drop", "popularity", "keep"])


def some_holdout(rng, mode):
    """A third of the users have no history, and some no targets."""
    part = rng.integers(0, 3, (N_USERS, N_ITEMS))  # 0 history, 1 target
    part[rng.random(N_USERS) < 0.3] += 1
    history, target = part == 0, part == 1
    target[rng.random(N_USERS) < 0.2] = False
    history[0] = target[1] = [True] + [False] * (N_ITEMS - 1)
    target[0] = history[1] = False
    matrices = (sp.csr_array(each.astype(np.float32)) for each in (history, target))
    counts = rng.integers(0, 5, N_ITEMS)
    return Holdout(rng.permutation(N_USERS).astype(np.int32), *matrices, cold_users=mode, item_counts=counts)


def some_linear(rng):
    half = rng.integers(-2, 3, (N_ITEMS, N_ITEMS)).astype(np.float32)
    return LinearRecommender(half + half.T, *rng.integers(1, 3, (2, N_ITEMS)).astype(float))


def some_factors(rng):
    """Vectors of whole numbers; those of some users are zero, as those of users without interactions are."""
    U = rng.integers(-2, 3, (N_USERS, 2)).astype(np.float32)
    U[rng.random(N_USERS) < 0.5] = 0
    return FactorRecommender(U, rng.integers(-2, 3, (N_ITEMS, 2)).astype(np.float32))


def scores_of(model, holdout, row):
    """The scores that decide about a user, from the definition of each way."""
    seen = holdout.history[[row]].indices
    own = model.U[holdout.users[row]] @ model.V.T if isinstance(model, FactorRecommender) else None
    own = model.dense_weights()[seen].sum(axis=0) if own is None else own
    if len(seen) or (holdout.cold_users == "keep" and len(set(own.tolist())) > 1):
        return own, seen
    return holdout.item_counts, seen


def through(models, holdout, auc=True, rows=None):
    return rank_all(lambda warm, some: rank(models, warm, K, auc, rows=some), models, holdout, K, auc, rows)


@PROPERTY
@given(seed=SEEDS, mode=MODES)
def test_each_user_is_ranked_as_the_card_says(seed, mode):
    rng = np.random.default_rng(seed)
    holdout, models = some_holdout(rng, mode), [some_linear(rng), some_factors(rng)]
    sizes, known = np.diff(holdout.target.indptr), np.diff(holdout.history.indptr)
    expected_rows = [row for row in range(N_USERS) if sizes[row] and (known[row] or mode != "drop")]
    for model, ranking in zip(models, through(models, holdout), strict=True):
        assert_array_equal(ranking.rows, expected_rows)
        assert_array_equal(ranking.users, holdout.users[expected_rows])
        above = []
        for position, row in enumerate(expected_rows):
            scores, seen = scores_of(model, holdout, row)
            candidates = [j for j in range(N_ITEMS) if j not in seen]
            best = sorted(candidates, key=lambda j, s=scores: (-s[j], j))[:K]
            assert_array_equal(ranking.items[position][: len(best)], best)
            targets = holdout.target[[row]].indices
            others = [j for j in candidates if j not in targets]
            assert ranking.others[position] == len(others)
            above += [sum((scores[j] > scores[t]) + 0.5 * (scores[j] == scores[t]) for j in others) for t in targets]
        assert_allclose(ranking.above, above)


@PROPERTY
@given(seed=SEEDS, mode=MODES)
def test_a_sample_of_users_is_ranked_as_among_all(seed, mode):
    rng = np.random.default_rng(seed)
    holdout, models = some_holdout(rng, mode), [some_linear(rng), some_factors(rng)]
    rows = np.sort(rng.choice(holdout.rows, rng.integers(1, len(holdout.rows) + 1), replace=False))
    for whole, part in zip(through(models, holdout, auc=False), through(models, holdout, auc=False, rows=rows), strict=True):
        assert_array_equal(part.rows, rows)
        assert_array_equal(part.items, whole.items[np.isin(whole.rows, rows)])


def test_weights_in_files_know_nothing_of_a_user_without_a_history():
    rng = np.random.default_rng(3)
    holdout, linear = some_holdout(rng, "keep"), some_linear(rng)
    tiled = TiledLinearRecommender(Columns(linear.C), linear.beta, linear.alpha)
    by_tiles = rank_all(lambda warm, rows: rank([linear], warm, K, rows=rows), [tiled], holdout, K)[0]
    assert_array_equal(by_tiles.items, through([linear], holdout, auc=False)[0].items)


@pytest.mark.parametrize("mode", ["drop", "popularity", "keep"])
def test_means_of_both_groups_are_those_of_their_users(mode):
    rng = np.random.default_rng(5)
    holdout, model = some_holdout(rng, mode), some_factors(rng)
    wanted = metric_set(["ndcg", "recall", "popularity"], [2, K])
    (ranking,) = through([model], holdout, auc=False)
    per_user = measure(ranking, holdout, wanted)
    (groups,) = means_by_history(holdout, [per_user], wanted)
    # With popularity for everyone without a history, both groups are measured together.
    everyone = replace(holdout, cold_users="popularity" if mode == "drop" else mode)
    (all_ranked,) = through([model], everyone, auc=False)
    values = measure(all_ranked, everyone, wanted).values
    cold = np.diff(holdout.history.indptr)[all_ranked.rows] == 0
    assert 0 < cold.sum() < len(cold)
    for name in wanted.names:
        assert groups["without_history"][name] == pytest.approx(values[name][cold].mean())
        assert groups["with_history"][name] == pytest.approx(values[name][~cold].mean())
    counts = counts_of_users(holdout)
    assert counts["measured"] == len(ranking.rows) == len(cold) - cold.sum() * (mode == "drop")
    assert counts["without_history"] == cold.sum()
    assert counts["without_targets"] == N_USERS - len(cold)
    warm = replace(holdout, history=sp.csr_array(np.ones((N_USERS, N_ITEMS), np.float32)))
    assert "without_history" not in counts_of_users(warm) and means_by_history(warm, [per_user], wanted) == [{}]
