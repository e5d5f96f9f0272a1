import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy import C, row_b, tensor, whole

from rankbench.losses.bpr import bpr
from rankbench.losses.spec import NoParams

logits = st.lists(st.floats(-50, 50), min_size=2, max_size=6)


def of(pos, *neg) -> float:
    return bpr(row_b(pos=tensor([pos]), neg=tensor([neg])), NoParams()).item()


@pytest.mark.worked("bpr")
def test_worked_numbers():
    value = bpr(row_b(), NoParams())
    assert value.shape == (1,)
    assert value.item() == pytest.approx(0.4200112322, abs=1e-9)
    assert 4 * value.item() == pytest.approx(1.6800449289, abs=1e-9)
    assert bpr(whole(C, negatives="other"), NoParams()).mean().item() == pytest.approx(0.4786622183, abs=1e-9)


@given(logits, st.floats(-20, 20))
def test_shifts_with_nothing_and_lies_above_the_hinge_and_the_share_of_wrong_pairs(scores, shift):
    pos, *neg = scores
    value = of(pos, *neg)
    assert of(pos + shift, *(x + shift for x in neg)) == pytest.approx(value, rel=1e-9, abs=1e-9)
    assert value >= sum(max(x - pos, 0) for x in neg) / len(neg) * (1 - 1e-12)
    assert value >= math.log(2) * sum(x >= pos for x in neg) / len(neg) - 1e-12
