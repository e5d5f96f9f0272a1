"""CCL: worked numbers, and what its margin leaves out."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rows import batches
from toy import row_b

from rankbench.losses.ccl import CCL, ccl

WEIGHTS, MARGINS = st.floats(0, 1000), st.floats(0, 0.95)


@pytest.mark.worked("ccl")
@pytest.mark.parametrize(("margin", "expected"), [(0.0, 0.625), (0.4, 0.4375)])
def test_row_b(margin, expected):
    assert ccl(row_b(), CCL(1.5, margin)).item() == pytest.approx(expected, abs=1e-9)


@given(s=batches(), w=WEIGHTS, margin=MARGINS)
def test_it_is_zero_for_a_perfect_positive_and_negatives_within_the_margin(s, w, margin):
    near = replace(s, pos=torch.ones_like(s.pos), neg=s.neg.clamp(max=margin))
    assert (ccl(near, CCL(w, margin)) == 0).all()
    assert (ccl(s, CCL(w, margin)) >= 0).all()
