"""InfoNCE, MINE, MINE+ and the mean difference: worked numbers, and torch's own cross-entropy as an oracle of InfoNCE."""

import pytest
import torch
from hypothesis import given
from rows import TAUS, batches
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


@pytest.mark.worked("mean-difference")
def test_the_mean_difference_is_the_mean_of_the_negatives_minus_the_positive():
    s = row_b(pos=tensor([0.5]), neg=tensor([[0.1, -0.3, 0.8]]))
    assert mean_difference(s, NoParams()).item() == pytest.approx(0.2 - 0.5, abs=1e-12)
