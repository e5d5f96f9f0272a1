"""Identities between losses that involve a pairwise or a top-K one."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toy import row_b, state_of, tensor

from rankbench.losses.spec import LOSSES, Scores, registered

registered()
cosines = st.lists(st.floats(-1, 1), min_size=2, max_size=6)
logits = st.lists(st.floats(-20, 20), min_size=2, max_size=6)
temperatures = st.floats(0.05, 1)


def row(scores) -> Scores:
    """The first score is the positive's."""
    return row_b(
        pos=tensor(scores[:1]),
        neg=tensor([scores[1:]]),
        neg_items=torch.arange(1, len(scores))[None],
        rival=lambda k: tensor([-1.0]),
    )


def value(name: str, s: Scores, fill: dict[str, float] | None = None, **parameters) -> float:
    """The loss of the row, every entry of its state's tables `fill` set to one number."""
    loss = LOSSES.get(name)
    p = loss.params(**parameters)
    if loss.state is None:
        return loss.function(s, p).item()
    return loss.function(s, p, state_of(loss.state, p, **(fill or {}))).item()


def near(expected: float, tolerance: float = 1e-9):
    return pytest.approx(expected, rel=tolerance, abs=tolerance)


@given(cosines, temperatures)
def test_talos_far_below_its_threshold_is_sl(scores, tau):
    s = row(scores)
    assert value("talos", s, {"beta": 40.0}, tau=tau) == near(value("sl", s, tau=tau))


@given(cosines, temperatures, st.floats(-1, 1))
def test_sl_at_k_with_a_flat_weight_is_half_of_sl(scores, tau, beta):
    s = row(scores)
    assert value("sl-at-k", s, {"beta": beta}, tau_d=tau, tau_w=1e10) == near(value("sl", s, tau=tau) / 2)


@given(cosines, temperatures, st.floats(-1, 1))
def test_advinfonce_with_a_uniform_adversary_is_infonce(scores, tau, entry):
    s = row(scores)
    assert value("advinfonce", s, {"user": entry, "item": entry}, tau=tau, kappa=1) == near(value("infonce", s, tau=tau))


@given(st.lists(st.floats(-4, 0), min_size=2, max_size=6), st.floats(0.1, 2))
def test_sml_with_equal_margins_and_one_hinge_is_cml(scores, margin):
    s = row(scores)
    expected = value("cml", s, margin=margin, rank_weight=False)
    assert value("sml", s, {"user": margin}, lam=0, gamma=0, margin=2) == near(expected)


@given(st.floats(-1, 1), st.floats(-1, 1), temperatures)
def test_infonce_of_one_negative_is_bpr(pos, neg, tau):
    assert value("infonce", row([pos, neg]), tau=tau) == near(value("bpr", row([pos / tau, neg / tau])))


@given(logits)
def test_uib_around_zero_is_half_of_bce(scores):
    s = row(scores)
    assert value("uib", s, {"value": 0.0}, boundary="embedding", a=0.5) == near(value("bce", s) / 2)


@given(logits)
def test_smooth_recall_of_one_place_and_one_negative_is_a_logistic_step(scores):
    """RS@1 of one negative at τ2 = 1: σ of a sigmoid, so between 1/2 and σ(1)."""
    pos, neg = scores[:2]
    inner = 1 / (1 + math.exp(pos - neg))
    assert value("recall-at-k", row([pos, neg]), K=1, tau1=1, tau2=1) == near(1 / (1 + math.exp(-inner)))


@given(cosines, temperatures)
def test_smoothi_of_one_place_is_a_share_of_infonce(scores, tau):
    """I¹ is the softmax: SmoothI@1 = 1 − exp(−InfoNCE)."""
    s = row(scores)
    assert value("smoothi-at-k", s, K=1, tau=tau) == near(-math.expm1(-value("infonce", s, tau=tau)))


@given(cosines, temperatures, st.floats(-1, 1))
def test_talos_with_its_temperature_inside_is_talos_at_1_on_scaled_scores(scores, tau, beta):
    inside = value("talos", row(scores), {"beta": beta}, tau=tau, ablation="outside")
    scaled = row([(x - beta) / tau for x in scores])
    assert inside == near(value("talos", scaled, {"beta": 0.0}, tau=1))


@given(logits, st.floats(-1, 1))
def test_aatp_is_uib_by_hinges_twice_over(scores, beta):
    s = row(scores)
    uib = value("uib", s, {"value": beta}, boundary="embedding", phi="hinge", margin=1, a=0.5)
    assert value("aatp", s, {"beta": beta}) == near(2 * uib)
