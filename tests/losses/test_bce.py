"""BCE: its worked numbers, and torch's own cross-entropy as an oracle."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rows import batches
from torch.nn.functional import binary_cross_entropy_with_logits
from toy import POSITIVES, A, C, whole

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
