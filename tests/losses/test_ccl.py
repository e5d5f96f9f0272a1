"""CCL: worked numbers, what its margin leaves out, and its gradient."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rows import batches, gradient, has_right_gradient, three_rows
from toy import row_b

from rankbench.core.errors import ConfigError
from rankbench.losses.ccl import CCL, ccl

WEIGHTS, MARGINS = st.floats(0, 1000), st.floats(0, 0.95)


@pytest.mark.worked("ccl")
@pytest.mark.parametrize(("margin", "expected"), [(0.0, 0.625), (0.4, 0.4375)])
def test_row_b(margin, expected):
    assert ccl(row_b(), CCL(1.5, margin)).item() == pytest.approx(expected, abs=1e-9)


@given(s=batches(), w=WEIGHTS, margin=MARGINS)
def test_gradient_is_the_same_for_all_negatives_above_the_margin_and_zero_below(s, w, margin):
    pos, neg = gradient(ccl, s, CCL(w, margin), "pos", "neg")
    assert (pos == -1).all()
    torch.testing.assert_close(neg, torch.where(s.neg > margin, w / s.neg.shape[1], 0.0).to(neg.dtype))


@given(s=batches(), w=WEIGHTS, margin=MARGINS)
def test_it_is_zero_for_a_perfect_positive_and_negatives_within_the_margin(s, w, margin):
    near = replace(s, pos=torch.ones_like(s.pos), neg=s.neg.clamp(max=margin))
    assert (ccl(near, CCL(w, margin)) == 0).all()
    assert (ccl(s, CCL(w, margin)) >= 0).all()


@given(s=batches(), w=WEIGHTS, margin=MARGINS, by=st.floats(0, 3))
def test_its_negative_part_is_linear_in_w(s, w, margin, by):
    part = ccl(s, CCL(w, margin)) - ccl(s, CCL(0.0, margin))
    torch.testing.assert_close(ccl(s, CCL(by * w, margin)) - ccl(s, CCL(0.0, margin)), by * part)


def test_gradient_against_finite_differences():
    assert has_right_gradient(ccl, three_rows(), CCL(1.5, 0.2))


@pytest.mark.parametrize("wrong", [{"w": -0.1}, {"margin": 1.0}, {"margin": -0.1}])
def test_bad_parameters_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        CCL(**wrong)
