"""What losses have in common: one is another at a setting, a scale of it, or its limit."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rows import TAUS, batches, catalogues
from toy import A, whole

from rankbench.losses.bsl import BSL, bsl
from rankbench.losses.debiased import DebiasedInfoNCE, DebiasedMSE, debiased_infonce, debiased_mse
from rankbench.losses.infonce import MINEPlus, Temperature, infonce, mine, mine_plus
from rankbench.losses.rg import rg2, rgx
from rankbench.losses.sl import SL, sl
from rankbench.losses.softmax import SampledSoftmax, sampled_softmax, softmax
from rankbench.losses.spec import NoParams

same = torch.testing.assert_close


@given(s=batches(), tau=TAUS)
def test_sl_is_mine_is_mine_plus_is_bsl_with_one_temperature(s, tau):
    value = sl(s, SL(tau))
    same(mine(s, Temperature(tau)), value)
    same(mine_plus(s, MINEPlus(tau=tau, lam=1.0)), value)
    same(bsl(s, BSL(tau, tau)), value)


@given(s=batches(), tau1=TAUS, tau2=TAUS)
def test_bsl_with_one_positive_is_sl_scaled(s, tau1, tau2):
    same(bsl(s, BSL(tau1, tau2)), tau2 / tau1 * sl(s, SL(tau2)))


@given(s=batches(), tau=TAUS)
def test_sl_with_the_positive_is_infonce(s, tau):
    same(sl(s, SL(tau, include_positive=True)), infonce(s, Temperature(tau)))


@given(s=batches(-20, 20), n_items=st.integers(2, 1000), correction=st.sampled_from(["nq_N", "both"]))
def test_infonce_is_sampled_softmax_of_a_uniform_proposal(s, n_items, correction):
    logq = s.pos.new_full((1, s.neg.shape[1]), -math.log(n_items))
    uniform = replace(s, n_items=n_items, logq=logq, logq_pos=torch.full_like(s.pos, -math.log(n_items)))
    same(sampled_softmax(uniform, SampledSoftmax(correction)), infonce(s, Temperature(1.0)), rtol=1e-9, atol=1e-9)


@given(s=batches(), tau=TAUS)
def test_debiased_infonce_without_a_prior_is_infonce(s, tau):
    unbiased = replace(s, n_interactions=torch.zeros_like(s.pos))
    same(debiased_infonce(unbiased, DebiasedInfoNCE(lam=s.neg.shape[1], tau=tau)), infonce(s, Temperature(tau)))


@given(drawn=catalogues(-3, 3), a=st.floats(0, 0.4), extra=st.floats(0, 0.1))
def test_debiased_mse_is_a_squared_error_with_a_higher_target(drawn, a, extra):
    o, s = drawn
    n_items, n_u = len(o), len(s.pos)
    s = replace(s, extra_positives=s.pos.expand(n_u, -1))  # all of the user's, all items: the exact expectations
    r = torch.zeros_like(o)
    r[s.items] = 1
    c = 1 + a + extra / n_u
    expected = (o - c * r).square().mean() + (c - c * c) * n_u / n_items
    same(debiased_mse(s, DebiasedMSE(lam=1.0, a=a, extra=extra)).mean(), expected)


@given(drawn=catalogues(-5, 5))
def test_rgx_is_mean_and_variance_and_rg2_adds_the_squared_mean(drawn):
    o, s = drawn
    value = rgx(s, NoParams())
    same(value, -s.pos + o.mean() + o.var(correction=0) / 2 + 0.5)
    same(rg2(s, NoParams()), value + o.mean().square() / 2)
    assert (value <= rg2(s, NoParams()) + 1e-12).all()


@pytest.mark.parametrize(("h", "expected"), [(0.1, 5.01e-5), (0.01, 5.36e-8)])
def test_the_expansion_of_a(h, expected):
    s = whole(h * A)
    error = (softmax(s, NoParams()) - rgx(s, NoParams()) - math.log(len(A)) + 0.5).abs()
    assert error.tolist() == pytest.approx([expected] * 2, rel=2e-3)
