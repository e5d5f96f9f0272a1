import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toy import row_b, tensor

from rankbench.losses.infonce import Temperature, mine
from rankbench.losses.mean_difference import MeanDifference, mean_difference


@pytest.mark.worked("mean-difference")
def test_it_is_the_mean_of_the_negatives_minus_the_positive():
    s = row_b(pos=tensor([0.5]), neg=tensor([[0.1, -0.3, 0.8]]))
    assert mean_difference(s, MeanDifference()).item() == pytest.approx(0.2 - 0.5, abs=1e-12)


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=8))
def test_it_bounds_mine_from_below_and_equals_it_for_equal_negatives(scores):
    pos, *neg = scores
    s = row_b(pos=tensor([pos]), neg=tensor([neg]))
    bound = math.log(len(neg)) + mean_difference(s, MeanDifference()).item()
    assert mine(s, Temperature(tau=1.0)).item() >= bound - 1e-12
    equal = row_b(pos=tensor([pos]), neg=tensor([[neg[0]] * len(neg)]))
    expected = math.log(len(neg)) + mean_difference(equal, MeanDifference()).item()
    assert mine(equal, Temperature(tau=1.0)).item() == pytest.approx(expected, abs=1e-12)


def test_its_gradient_is_the_same_for_every_negative():
    pos, neg = tensor([0.6, -0.2]).requires_grad_(), tensor([[0.5, 0.1], [-0.9, 0.4]]).requires_grad_()
    s = row_b(pos=pos, neg=neg)
    mean_difference(s, MeanDifference()).sum().backward()
    assert torch.equal(pos.grad, tensor([-1.0, -1.0])) and torch.equal(neg.grad, torch.full_like(neg, 0.5))
