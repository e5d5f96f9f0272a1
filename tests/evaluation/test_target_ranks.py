"""Metrics of the ranks of all targets, against loops and a simulation."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankbench.evaluation.target_ranks import OF_RANKS, SAMPLED, TargetRanks

PROPERTY = settings(max_examples=60, deadline=None)


@st.composite
def users(draw):
    """(number of other candidates, [how many of them are above each target]) of each user."""
    one = st.integers(0, 30).flatmap(
        lambda n: st.tuples(st.just(n), st.lists(st.integers(0, 2 * n).map(lambda a: a / 2), min_size=1, max_size=5))
    )
    return draw(st.lists(one, min_size=1, max_size=5))


def ranks_of(case):
    above = np.array([a for _, targets in case for a in targets])
    ptr = np.append(0, np.cumsum([len(targets) for _, targets in case]))
    return TargetRanks(above, ptr, np.array([n for n, _ in case]))


def right_pairs(above, n, k):
    best = min(k, n)
    return max(best - above, 0) / best if best else 0.5


def probability(place, above, n):
    p = above / n if n else 0.0
    return math.comb(SAMPLED, place) * p**place * (1 - p) ** (SAMPLED - place)


@PROPERTY
@given(case=users(), k=st.integers(1, 130))
def test_every_metric_is_its_definition(case, k):
    found = {name: metric(ranks_of(case), k) for name, metric in OF_RANKS.items()}
    for row, (n, targets) in enumerate(case):
        better = sorted(targets)[: math.ceil(len(targets) / 2)]
        places = [[probability(place, above, n) for place in range(min(k, SAMPLED + 1))] for above in targets]
        expected = {
            "opauc": np.mean([right_pairs(above, n, k) for above in targets]),
            "llpauc": np.mean([right_pairs(above, n, k) for above in better]),
            "recall_sampled": np.mean([sum(each) for each in places]),
            "ndcg_sampled": np.mean([sum(p / math.log2(2 + place) for place, p in enumerate(each)) for each in places]),
        }
        assert {name: values[row] for name, values in found.items()} == pytest.approx(expected, abs=1e-9)


def test_the_expectation_is_that_of_samples():
    rng = np.random.default_rng(0)
    above, n, k = 37, 900, 5
    hits = (rng.integers(0, n, (20_000, SAMPLED)) < above).sum(axis=1)
    ranks = TargetRanks(np.array([float(above)]), np.array([0, 1]), np.array([n]))
    assert OF_RANKS["recall_sampled"](ranks, k)[0] == pytest.approx((hits < k).mean(), abs=0.01)
    assert OF_RANKS["ndcg_sampled"](ranks, k)[0] == pytest.approx(np.where(hits < k, 1 / np.log2(2 + hits), 0).mean(), abs=0.01)
