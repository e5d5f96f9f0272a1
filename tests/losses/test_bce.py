"""BCE: its worked numbers, and torch's own cross-entropy as an oracle."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rows import batches, gradient, has_right_gradient, three_rows
from torch.nn.functional import binary_cross_entropy_with_logits
from toy import POSITIVES, A, C, whole

from rankbench.core.config import parameters
from rankbench.core.errors import ConfigError
from rankbench.losses.bce import BCE, bce

LOGITS = batches(-30, 30)
REDUCTIONS = st.sampled_from(["mean", "sum"])


@pytest.mark.worked("bce")
@pytest.mark.parametrize(("scores", "expected"), [(A, 3.3947525350), (C, 3.7116417575)])
def test_the_sum_over_all_pairs(scores, expected):
    # Each of the four negatives goes to one of the two rows, so that the rows' sum has every pair once.
    s = whole(scores, POSITIVES, "other")
    assert bce(replace(s, neg=s.neg[0].reshape(2, 2)), BCE("sum")).sum().item() == pytest.approx(expected, abs=1e-9)


@given(s=LOGITS, reduction=REDUCTIONS)
def test_it_is_binary_cross_entropy(s, reduction):
    misses = binary_cross_entropy_with_logits(s.neg, torch.zeros_like(s.neg), reduction="none")
    hits = binary_cross_entropy_with_logits(s.pos, torch.ones_like(s.pos), reduction="none")
    expected = hits + getattr(misses, reduction)(dim=1)
    torch.testing.assert_close(bce(s, BCE(reduction)), expected)
    assert (expected >= 0).all()


@given(s=LOGITS)
def test_two_log_2_where_all_scores_are_zero(s):
    zero = replace(s, pos=0 * s.pos, neg=0 * s.neg)
    torch.testing.assert_close(bce(zero, BCE()), torch.full_like(s.pos, 2 * math.log(2)))


@given(s=LOGITS, by=st.floats(0, 1), reduction=REDUCTIONS)
def test_it_is_convex(s, by, reduction):
    other, p = replace(s, pos=-2 * s.pos, neg=s.neg.flip(1) - 1), BCE(reduction)
    between = replace(s, pos=by * s.pos + (1 - by) * other.pos, neg=by * s.neg + (1 - by) * other.neg)
    assert (bce(between, p) <= by * bce(s, p) + (1 - by) * bce(other, p) + 1e-9).all()


@given(s=LOGITS)
def test_its_gradient_is_what_the_model_gets_wrong(s):
    pos, neg = gradient(bce, s, BCE(), "pos", "neg")
    torch.testing.assert_close(pos, -torch.sigmoid(-s.pos))
    torch.testing.assert_close(neg, torch.sigmoid(s.neg) / s.neg.shape[1])


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_gradient_against_finite_differences(reduction):
    assert has_right_gradient(bce, three_rows("dot"), BCE(reduction))


def test_an_unknown_reduction_is_refused():
    with pytest.raises(ConfigError, match="neg_reduction"):
        parameters(BCE, {"neg_reduction": "max"}, "bce")
