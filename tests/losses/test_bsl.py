"""BSL: worked numbers, positives put together by user against a loop, and its gradient."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from rows import TAUS, batches, gradient
from toy import row_b, tensor

from rankbench.losses.bsl import BSL, bsl


@pytest.mark.worked("bsl")
def test_row_b():
    assert bsl(row_b(), BSL(0.1, 0.2)).item() == pytest.approx(-0.7115320376, abs=1e-9)


@pytest.mark.worked("bsl")
def test_two_positives_of_one_user():
    s = row_b()
    both = replace(s, pos=tensor([0.6, 0.2]), neg=s.neg.expand(2, -1), users=torch.tensor([3, 3]))
    assert bsl(both, BSL(0.1, 0.2, "multi")).tolist() == pytest.approx([-0.0365347849] * 2, abs=1e-9)


@given(s=batches(), tau1=TAUS, tau2=TAUS)
def test_positives_are_put_together_by_user(s, tau1, tau2):
    value = bsl(s, BSL(tau1, tau2, "multi"))
    for row, user in enumerate(s.users.tolist()):
        own = [x for x, other in zip(s.pos.tolist(), s.users.tolist(), strict=True) if other == user]
        positive = math.log(sum(math.exp(x / tau1) for x in own) / len(own))
        negative = tau2 / tau1 * math.log(sum(math.exp(x / tau2) for x in s.neg[row].tolist()))
        assert value[row].item() == pytest.approx(negative - positive)


def test_many_positives_are_finite_at_the_ends_in_float32():
    s = row_b(pos=torch.tensor([1.0, -1.0]), neg=torch.tensor([[1.0, -1.0]] * 2), users=torch.tensor([1, 1]))
    p = BSL(0.01, 0.01, "multi")
    assert bsl(s, p).isfinite().all()
    assert all(g.isfinite().all() for g in gradient(bsl, s, p, "pos", "neg"))
