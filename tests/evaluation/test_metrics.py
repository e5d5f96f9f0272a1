"""Metrics, against loops in plain Python and against ranx."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from small_data import held_out, ranking

from rankbench.core.errors import ConfigError
from rankbench.evaluation.metrics import METRICS, measure, metric_set

PROPERTY = settings(max_examples=60, deadline=None)  # kernels are compiled at their first call
PER_LIST = {
    "precision": lambda hits, T, k: sum(hits) / k,
    "recall": lambda hits, T, k: sum(hits) / T,
    "recall_capped": lambda hits, T, k: sum(hits) / min(k, T),
    "ndcg": lambda hits, T, k: (
        sum(1 / math.log2(r + 1) for r in ranks(hits)) / sum(1 / math.log2(r + 1) for r in range(1, min(k, T) + 1))
    ),
    "mrr": lambda hits, T, k: 1 / ranks(hits)[0] if any(hits) else 0.0,
    "map": lambda hits, T, k: sum(sum(hits[:r]) / r for r in ranks(hits)) / T,
    "map_capped": lambda hits, T, k: sum(sum(hits[:r]) / r for r in ranks(hits)) / min(k, T),
    "hit": lambda hits, T, k: 1.0 if any(hits) else 0.0,
}


def ranks(hits):
    return [r for r, hit in enumerate(hits, start=1) if hit]


@st.composite
def ranked_users(draw):
    """(n_items, [(list, targets), ...]); lists may end early, as where a user has few candidates."""
    n_items = draw(st.integers(1, 12))
    items = st.integers(0, n_items - 1)
    one = st.tuples(st.permutations(range(n_items)), st.integers(0, n_items), st.sets(items, min_size=1))
    return n_items, [(list(order[:length]), targets) for order, length, targets in draw(st.lists(one, min_size=1, max_size=5))]


def test_the_oracle_knows_every_metric():
    assert set(PER_LIST) == set(METRICS.names())


@PROPERTY
@given(case=ranked_users(), cutoffs=st.sets(st.integers(1, 20), min_size=1, max_size=3), seed=st.integers(0, 99))
def test_every_metric_is_its_definition(case, cutoffs, seed):
    n_items, users = case
    item_counts = np.random.default_rng(seed).integers(0, 50, n_items)
    wanted = metric_set([*METRICS.names(), "coverage", "popularity", "mrr_pooled"], sorted(cutoffs))
    depth = min(wanted.k, n_items)
    holdout = held_out([t for _, t in users], n_items, item_counts=item_counts)
    found = measure(ranking([order[:depth] for order, _ in users], depth), holdout, wanted)
    assert set(found.values) | set(found.overall) == set(wanted.names)
    for k in cutoffs:
        for row, (order, targets) in enumerate(users):
            shown = order[: min(k, depth)]
            hits = [item in targets for item in shown]
            for name, metric in PER_LIST.items():
                assert found.values[f"{name}@{k}"][row] == pytest.approx(metric(hits, len(targets), k)), name
            popularity = sum(item_counts[shown]) / len(shown) if shown else 0.0
            assert found.values[f"popularity@{k}"][row] == pytest.approx(popularity)
        pooled = sum(1 / r for order, T in users for r in ranks([item in T for item in order[: min(k, depth)]]))
        assert found.values[f"mrr_pooled@{k}"].mean() == pytest.approx(pooled / sum(len(T) for _, T in users))
        listed = {item for order, _ in users for item in order[: min(k, depth)]}
        assert found.overall[f"coverage@{k}"] == len(listed) / n_items


RANX = {"precision": "precision", "recall": "recall", "ndcg": "ndcg", "mrr": "mrr", "map": "map", "hit": "hit_rate"}


@pytest.mark.slow  # ranx compiles its metrics for more than a minute
@pytest.mark.parametrize("k", [1, 3, 10])
def test_ranx_agrees(k):
    import ranx

    rng = np.random.default_rng(k)
    n_users, n_items = 40, 30
    # Deeper than any cutoff: what lies below must not count.
    lists = [rng.permutation(n_items)[:20].tolist() for _ in range(n_users)]
    targets = [set(rng.permutation(n_items)[: rng.integers(1, 8)].tolist()) for _ in range(n_users)]
    found = measure(ranking(lists, 20), held_out(targets, n_items), metric_set(list(RANX), [k]))
    qrels = ranx.Qrels({f"u{u:02}": {str(i): 1 for i in targets[u]} for u in range(n_users)})
    run = ranx.Run({f"u{u:02}": {str(i): 1 / r for r, i in enumerate(lists[u], start=1)} for u in range(n_users)})
    theirs = ranx.evaluate(qrels, run, [f"{name}@{k}" for name in RANX.values()], return_mean=False)
    for ours, name in RANX.items():
        assert_allclose(found.values[f"{ours}@{k}"], theirs[f"{name}@{k}"], atol=1e-12, err_msg=ours)


def test_names_come_once_and_a_name_may_bring_its_own_cutoff():
    wanted = metric_set(["ndcg@100", "recall", "recall@20", "auc"], [10, 20])
    assert wanted.names == ("ndcg@100", "recall@10", "recall@20", "auc")
    assert (wanted.k, wanted.auc) == (100, True)


HINTS = [("recal", "recall"), ("NDCG", "ndcg"), ("ndgc@20", "ndcg"), ("auc@10", "auc")]
NO_NAMES = ["", "@10", "recall@", "recall@x", "recall@-1", "recall@1.5", "recall@10000000", "recall@20\n"]
REFUSED = [
    *(([word], [10], rf"unknown metric '{word}'; did you mean {hint}\?") for word, hint in HINTS),
    *(([word], [10], "unknown metric") for word in NO_NAMES),
    *((["ndcg"], [k], f"cutoffs: expected whole numbers from 1, got {k!r}") for k in (0, -1, 2.5, True, "5")),
]


@pytest.mark.parametrize(("words", "cutoffs", "message"), REFUSED)
def test_what_is_no_metric_at_a_cutoff_is_refused(words, cutoffs, message):
    with pytest.raises(ConfigError, match=message):
        metric_set(words, cutoffs)
