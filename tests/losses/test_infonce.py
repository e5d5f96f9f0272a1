"""InfoNCE, MINE, MINE+ and the mean difference: worked numbers, bounds, shifts and gradients."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rows import TAUS, batches, gradient, shifted
from toy import row_b, tensor

from rankbench.losses.infonce import MINEPlus, Temperature, infonce, mean_difference, mine, mine_plus
from rankbench.losses.spec import NoParams


@pytest.mark.worked("infonce")
def test_infonce_of_row_b():
    assert infonce(row_b(), Temperature(0.2)).item() == pytest.approx(0.5310026144, abs=1e-9)


@pytest.mark.worked("mine")
@pytest.mark.parametrize(("tau", "expected"), [(1.0, 0.7722054198), (0.2, -0.3557660188)])
def test_mine_of_row_b(tau, expected):
    assert mine(row_b(), Temperature(tau)).item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.worked("mine-plus")
def test_mine_plus_of_row_b():
    assert mine_plus(row_b(), MINEPlus(tau=0.5, lam=1.1)).item() == pytest.approx(0.5000679509, abs=1e-9)


@given(s=batches(), tau=TAUS)
def test_infonce_is_cross_entropy_with_the_positive_first(s, tau):
    logits = torch.cat([s.pos[:, None], s.neg], dim=1) / tau
    expected = torch.nn.functional.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.int64), reduction="none")
    torch.testing.assert_close(infonce(s, Temperature(tau)), expected)


@given(s=batches(), tau=TAUS, lam=st.floats(0.5, 2), c=st.floats(-3, 3))
def test_a_shift_changes_mine_plus_by_its_surplus_of_negatives(s, tau, lam, c):
    p = MINEPlus(tau=tau, lam=lam)
    torch.testing.assert_close(mine_plus(shifted(s, c), p) - mine_plus(s, p), torch.full_like(s.pos, (lam - 1) * c / tau))
    pos, neg = gradient(mine_plus, s, p, "pos", "neg")
    torch.testing.assert_close(pos + neg.sum(dim=1), torch.full_like(pos, (lam - 1) / tau))


@pytest.mark.worked("mean-difference")
def test_the_mean_difference_is_the_mean_of_the_negatives_minus_the_positive():
    s = row_b(pos=tensor([0.5]), neg=tensor([[0.1, -0.3, 0.8]]))
    assert mean_difference(s, NoParams()).item() == pytest.approx(0.2 - 0.5, abs=1e-12)


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=8))
def test_the_mean_difference_bounds_mine_from_below_and_equals_it_for_equal_negatives(scores):
    pos, *neg = scores
    s = row_b(pos=tensor([pos]), neg=tensor([neg]))
    bound = math.log(len(neg)) + mean_difference(s, NoParams()).item()
    assert mine(s, Temperature(tau=1.0)).item() >= bound - 1e-12
    equal = row_b(pos=tensor([pos]), neg=tensor([[neg[0]] * len(neg)]))
    expected = math.log(len(neg)) + mean_difference(equal, NoParams()).item()
    assert mine(equal, Temperature(tau=1.0)).item() == pytest.approx(expected, abs=1e-12)


def test_the_gradient_of_the_mean_difference_is_the_same_for_every_negative():
    pos, neg = tensor([0.6, -0.2]).requires_grad_(), tensor([[0.5, 0.1], [-0.9, 0.4]]).requires_grad_()
    s = row_b(pos=pos, neg=neg)
    mean_difference(s, NoParams()).sum().backward()
    assert torch.equal(pos.grad, tensor([-1.0, -1.0])) and torch.equal(neg.grad, torch.full_like(neg, 0.5))
