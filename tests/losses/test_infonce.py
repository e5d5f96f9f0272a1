"""InfoNCE, MINE and MINE+: worked numbers, bounds, shifts and gradients."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rows import TAUS, batches, gradient, has_right_gradient, shifted, three_rows
from toy import row_b

from rankbench.core.errors import ConfigError
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


@given(s=batches(), tau=TAUS)
def test_infonce_lies_between_the_worst_hinge_and_log_n_more(s, tau):
    worst = ((s.neg - s.pos[:, None]) / tau).clamp(min=0).amax(dim=1)
    value = infonce(s, Temperature(tau))
    assert (value > 0).all() and (worst <= value + 1e-12).all()
    assert (value <= worst + math.log(s.neg.shape[1] + 1) + 1e-12).all()


@given(s=batches(), tau=TAUS)
def test_infonce_of_equal_scores_is_the_log_of_how_many_there_are(s, tau):
    equal = replace(s, neg=s.pos[:, None].expand_as(s.neg))
    torch.testing.assert_close(infonce(equal, Temperature(tau)), torch.full_like(s.pos, math.log(s.neg.shape[1] + 1)))


@given(s=batches(), tau=TAUS)
def test_mine_is_at_least_the_worst_and_the_mean_difference(s, tau):
    d, value = (s.neg - s.pos[:, None]) / tau, mine(s, Temperature(tau))
    assert (value >= d.amax(dim=1) - 1e-12).all()
    assert (value >= d.mean(dim=1) + math.log(s.neg.shape[1]) - 1e-12).all()


@given(s=batches(), tau=TAUS)
def test_the_pull_on_mines_positive_never_fades(s, tau):
    (pos,) = gradient(mine, s, Temperature(tau), "pos")
    torch.testing.assert_close(pos, torch.full_like(pos, -1 / tau))


@given(s=batches(), tau=TAUS, c=st.floats(-3, 3))
def test_a_shift_changes_neither_infonce_nor_mine(s, tau, c):
    for function in (infonce, mine):
        torch.testing.assert_close(function(shifted(s, c), Temperature(tau)), function(s, Temperature(tau)))


@given(s=batches(), tau=TAUS, lam=st.floats(0.5, 2), c=st.floats(-3, 3))
def test_a_shift_changes_mine_plus_by_its_surplus_of_negatives(s, tau, lam, c):
    p = MINEPlus(tau=tau, lam=lam)
    torch.testing.assert_close(mine_plus(shifted(s, c), p) - mine_plus(s, p), torch.full_like(s.pos, (lam - 1) * c / tau))
    pos, neg = gradient(mine_plus, s, p, "pos", "neg")
    torch.testing.assert_close(pos + neg.sum(dim=1), torch.full_like(pos, (lam - 1) / tau))


@pytest.mark.parametrize(
    ("function", "p"), [(infonce, Temperature(0.2)), (mine, Temperature(0.2)), (mine_plus, MINEPlus(0.4, 1.2))]
)
def test_gradient_against_finite_differences(function, p):
    assert has_right_gradient(function, three_rows(), p)


@pytest.mark.parametrize(
    ("params", "wrong"), [(Temperature, {"tau": 0.0}), (MINEPlus, {"tau": -1.0}), (MINEPlus, {"lam": 0.0})]
)
def test_bad_parameters_are_refused(params, wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        params(**wrong)
