"""The ranking with items as the outer loop, to the bit that with users as the outer loop."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from small_data import Columns

from rankbench.core.threads import pinned
from rankbench.data.splits import Holdout
from rankbench.evaluation import ranking
from rankbench.evaluation.columns import rank_by_columns_on
from rankbench.evaluation.ranking import rank
from rankbench.fitting.recommenders import LinearRecommender
from rankbench.solvers.tiled.recommender import TiledLinearRecommender

SEEDS = st.integers(0, 2**32 - 1)


class Backwards:
    """Workers whose answers come last first."""

    def put(self, value):
        return value

    def map(self, function, blocks, *shared):
        for index in reversed(range(len(blocks))):
            yield index, function(blocks[index], *shared)


def csr(dense):
    return sp.csr_array(dense.astype(np.float32))


def some_holdout(rng, n_users, n_items):
    """Rows without history, without targets, with all seen; at times items that are excluded, or a history that is shown."""
    part = rng.integers(0, 5, (n_users, n_items))  # 0 history, 1 target, 2 excluded, else a candidate
    part[rng.random(n_users) < 0.2] = 3
    part[0] = 0
    part[0, rng.integers(n_items)] = 1
    excluded = csr(part == 2) if rng.random() < 0.5 else None
    users = rng.permutation(n_users).astype(np.int32)
    about = {"filter_seen": bool(rng.random() < 0.8), "cold_users": str(rng.choice(["keep", "drop"]))}
    return Holdout(users, csr(part == 0), csr(part == 1), excluded, **about)


def some_pair(rng, n_items, dtype, C=None, ties=False):
    """The same model twice: C in memory as an array, and by columns."""
    if C is None:
        # Whole numbers tie everywhere; others round differently in any other order of summation.
        half = rng.integers(-1, 2, (n_items, n_items)) if ties else rng.standard_normal((n_items, n_items))
        C = Columns((half + half.T).astype(dtype))
    beta, alpha = rng.integers(-2, 3, (2, n_items)) if ties else rng.standard_normal((2, n_items))
    return LinearRecommender(C.C, beta, alpha), TiledLinearRecommender(C, beta, alpha)


def check(found, expected):
    for one, other in zip(found, expected, strict=True):
        for name in ("rows", "users", "items", "scores"):
            assert_array_equal(getattr(one, name), getattr(other, name), strict=True)
        assert (one.auc is None) == (other.auc is None)
        if one.auc is not None:
            assert_array_equal(one.auc, other.auc)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(
    n_users=st.integers(1, 12),
    n_items=st.integers(1, 20),
    k=st.integers(1, 24),
    column_block=st.integers(1, 24),
    ties=st.booleans(),
    auc=st.booleans(),
    seed=SEEDS,
)
def test_it_is_the_ranking_by_users(dtype, n_users, n_items, k, column_block, ties, auc, seed):
    rng = np.random.default_rng(seed)
    holdout = some_holdout(rng, n_users, n_items)
    pairs = [some_pair(rng, n_items, dtype, ties=ties)]
    # A sibling of the first, and another family.
    pairs += [some_pair(rng, n_items, dtype, pairs[0][1].C, ties), some_pair(rng, n_items, dtype, ties=ties)]
    dense, tiled = zip(*pairs, strict=True)
    expected = rank(dense, holdout, k, auc)
    check(rank(tiled, holdout, k, auc, columns=column_block), expected)
    check(rank_by_columns_on(Backwards(), tiled, holdout, k, column_block, auc), expected)


def test_more_users_and_items_than_a_block_of_scores_holds():
    rng = np.random.default_rng(0)
    n_users, n_items = ranking.BLOCK_USERS * 2 + 5, ranking.BLOCK_ITEMS + 300
    parts = (sp.random(n_users, n_items, share, "csr", np.float32, rng, np.ones) for share in (0.01, 0.002))
    holdout = Holdout(np.arange(n_users, dtype=np.int32), *map(sp.csr_array, parts))
    beta, alpha = rng.standard_normal((2, n_items))
    C = Columns(rng.standard_normal((n_items, n_items)).astype(np.float32))
    expected = rank([LinearRecommender(C.C, beta, alpha)], holdout, 20, auc=True)
    for threads, width in ((1, ranking.BLOCK_ITEMS + 3), (2, 10_000)):
        with pinned(threads):
            check(rank([TiledLinearRecommender(C, beta, alpha)], holdout, 20, auc=True, columns=width), expected)


@pytest.mark.parametrize("auc, times", [(False, 1), (True, 2)])
def test_a_family_reads_each_column_once_a_pass_and_progress_rises_to_the_whole(auc, times):
    rng, seen = np.random.default_rng(1), []
    holdout = some_holdout(rng, 9, 13)
    first = some_pair(rng, 13, np.float32)[1]
    models = [first, *(some_pair(rng, 13, np.float32, first.C)[1] for _ in range(2))]
    rank(models, holdout, 5, auc, lambda *step: seen.append(step), columns=4)
    assert first.C.handed == [(0, 4), (4, 8), (8, 12), (12, 13)] * times
    done, totals = zip(*seen, strict=True)
    n_rows = int((np.diff(holdout.target.indptr) > 0).sum())
    assert list(done) == sorted(done)
    assert (done[-1], set(totals)) == (n_rows * 4 * times, {n_rows * 4 * times})
