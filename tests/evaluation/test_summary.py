"""Bootstrap intervals, against SciPy's and against what is known of a mean."""

from dataclasses import astuple

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from rankbench.evaluation.beyond import Ratio
from rankbench.evaluation.metrics import PerUser
from rankbench.evaluation.summary import CONFIDENCE, Interval, bootstrap_means, percentile_bounds, summarise


def per_user(**values):
    m = len(next(iter(values.values())))
    return PerUser(np.arange(m, dtype=np.int32), values, {"coverage@20": 0.25})


def skewed(m, seed=0):
    return np.random.default_rng(seed).exponential(size=m)


@pytest.mark.parametrize("m", [30, 400])
def test_the_bounds_are_scipys_within_monte_carlo_error(m):
    x, resamples = skewed(m), 4000
    low, high = percentile_bounds(bootstrap_means(x[:, None], 0, resamples))
    expected = stats.bootstrap(
        (x,), np.mean, n_resamples=resamples, method="percentile", confidence_level=CONFIDENCE, random_state=1
    )
    tail = (1 - CONFIDENCE) / 2
    # A quantile of `resamples` draws has standard error sqrt(q(1-q)/resamples) / density; the draws are nearly normal.
    error = np.sqrt(tail * (1 - tail) / resamples) / stats.norm.pdf(stats.norm.ppf(tail)) * x.std() / np.sqrt(m)
    tolerance = 4 * np.sqrt(2) * error
    assert_allclose([low[0], high[0]], list(expected.confidence_interval), rtol=0, atol=tolerance)


def test_many_users_are_drawn_in_several_batches():
    # 1000 resamples of 20,000 users do not fit one batch; the interval must still be that of a mean of 20,000.
    x = skewed(20_000)
    low, high = percentile_bounds(bootstrap_means(x[:, None], 0, 1000))
    half_width = stats.norm.ppf(1 - (1 - CONFIDENCE) / 2) * x.std() / np.sqrt(len(x))
    assert_allclose([low[0], high[0]], [x.mean() - half_width, x.mean() + half_width], rtol=0, atol=0.2 * half_width)


def test_every_metric_rests_on_the_same_draws():
    # An interval must not move because another metric was asked for, or methods could not be compared.
    x = skewed(50)
    alone = summarise(per_user(recall=x), seed=0)
    beside = summarise(per_user(ndcg=skewed(50, seed=1), recall=x, twice=2 * x), seed=0)
    assert_allclose([beside["recall"].low, beside["recall"].high], [alone["recall"].low, alone["recall"].high], rtol=1e-12)
    assert_allclose(
        [beside["twice"].low, beside["twice"].high], [2 * alone["recall"].low, 2 * alone["recall"].high], rtol=1e-12
    )


def test_a_sum_divided_by_a_sum_has_the_interval_of_the_ratio():
    """Pooled metrics: the users who are drawn change both sums."""
    reached, possible = skewed(400, seed=2), 1 + skewed(400, seed=3) ** 3
    values, weights = Ratio(reached, possible).parts()
    found = summarise(PerUser(np.arange(400), {"plain": reached, "pooled": values}, {}, {"pooled": weights}), 5, 4000)
    expected = stats.bootstrap(
        (reached, possible),
        lambda a, b, axis: a.sum(axis=axis) / b.sum(axis=axis),
        n_resamples=4000,
        method="percentile",
        paired=True,
        vectorized=True,
        rng=1,
    ).confidence_interval
    assert found["pooled"].mean == pytest.approx(reached.sum() / possible.sum())
    width = expected.high - expected.low
    assert_allclose((found["pooled"].low, found["pooled"].high), expected, atol=0.06 * width)
    alone = summarise(per_user(plain=reached), 5, 4000)["plain"]
    assert_allclose(astuple(found["plain"]), astuple(alone), rtol=1e-12)


def test_equal_users_have_no_spread_and_metrics_of_whole_lists_no_interval():
    inside, nobody = np.arange(300) % 3 == 0, np.zeros(300)
    light, light_weights = Ratio(np.where(inside, 0.5, 0.0), inside).parts()
    none, none_weights = Ratio(nobody, nobody).parts()
    weights = {"recall_light": light_weights, "nobody": none_weights}
    x = skewed(300)
    values = {"hit": np.full(300, 0.25), "recall_light": light, "nobody": none, "x": x}
    users = PerUser(np.arange(300, dtype=np.int32), values, {"coverage@20": 0.25}, weights)
    found, again, other = (summarise(users, seed) for seed in (7, 7, 8))
    assert found == again and found["x"] != other["x"]
    assert found["coverage@20"] == Interval(0.25, None, None) and found["hit"] == Interval(0.25, 0.25, 0.25)
    assert_allclose(astuple(found["recall_light"]), 0.5)
    assert found["nobody"] == Interval(0.0, 0.0, 0.0)
    assert found["x"].mean == pytest.approx(x.mean()) and found["x"].low < found["x"].mean < found["x"].high
    assert_array_equal(percentile_bounds(bootstrap_means(np.array([[0.3, 0.7]]), 0, 10)), [[0.3, 0.7]] * 2)
    assert percentile_bounds(bootstrap_means(np.eye(4), 0, 1000))[1].min() > 0.5  # each user is drawn, the last one, too
