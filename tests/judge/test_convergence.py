"""What the last quarter of a curve says, and that a stored curve, which has fewer points, says the same."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbench.judge.convergence import POINTS, TrainingCurve


def curve(values, epochs=None):
    epochs = epochs or range(1, len(values) + 1)
    return TrainingCurve(
        "recall@20", "test", tuple((epoch, 0.5 * epoch, value) for epoch, value in zip(epochs, values, strict=True))
    )


def saturating(rate, n=100):
    return [1 - np.exp(-rate * epoch) for epoch in range(1, n + 1)]


@pytest.mark.parametrize(
    ("values", "kept", "state"),
    [
        ([0.1, 0.15, 0.2, 0.2009], None, "flat"),  # 0.45 % above
        ([0.1, 0.15, 0.2, 0.2011], None, "rising"),  # 0.55 % above
        ([0.1, 0.2, 0.199, 0.1985], None, "flat"),  # 0.75 % below the best
        ([0.1, 0.2, 0.19, 0.1975], None, "past its best"),  # 1.25 % below the best
        ([0.1, 0.2, 0.19, 0.15], 2, "flat"),  # validation kept the model of the best epoch
        ([0.1, 0.2, 0.19, 0.25], 2, "rising"),
        ([0.1, 0.1, 0.1, 0.1, 0.1, 0.15, 0.2, 0.25, 0.22], None, "past its best"),  # although the last quarter is the best
        ([0.1, 0.1, 0.1, 0.1, 0.1, 0.15, 0.2, 0.25, 0.22], 8, "rising"),
        ([0.0, 0.0, 0.0, 0.0], None, "flat"),
        ([0.2], None, "unknown"),
        ([], None, "unknown"),
    ],
)
def test_the_last_quarter_decides(values, kept, state):
    assert curve(values).state(kept) == state


def test_where_no_point_is_nobody_knows():
    assert curve([0.1, 0.2, 0.3], epochs=[76, 90, 100]).state() == "unknown"
    assert curve([0.1, 0.2, 0.2], epochs=[10, 75, 100]).state() == "flat"


def test_a_curve_that_saturates_is_flat_once_its_rest_is_small():
    """1 - exp(-r t) grows in the last quarter by exp(-75 r) - exp(-100 r) of 1 - exp(-75 r)."""
    for rate in np.linspace(0.01, 0.2, 20):
        gain = (np.exp(-75 * rate) - np.exp(-100 * rate)) / (1 - np.exp(-75 * rate))
        assert curve(saturating(rate)).state() == ("rising" if gain > 0.005 else "flat")


@given(st.lists(st.floats(0, 1), max_size=200), st.one_of(st.none(), st.integers(1, 250)))
def test_a_thinned_curve_has_the_same_state(values, kept):
    full = curve(values)
    thin = full.thinned(kept)
    assert thin.state(kept) == full.state(kept)
    assert len(thin.points) <= POINTS + 4 and set(thin.points) <= set(full.points)
    assert thin.points[:1] == full.points[:1] and thin.points[-1:] == full.points[-1:]
