"""InfoNCE, MINE and MINE+: worked numbers, bounds, shifts and gradients."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rows import TAUS, batches, gradient, shifted
from toy import row_b

from rankbench.losses.infonce import MINEPlus, Temperature, infonce, mine, mine_plus


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
