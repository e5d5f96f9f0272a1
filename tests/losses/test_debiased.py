"""Debiased losses: worked numbers, the prior, their formulas, and the floor of InfoNCE."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rows import TAUS, batches, gradient
from toy import row_b, tensor

from rankbench.losses.debiased import (
    DebiasedCCL,
    DebiasedInfoNCE,
    DebiasedMSE,
    class_prior,
    debiased_ccl,
    debiased_infonce,
    debiased_mse,
)

# One interaction of 10 items: τ⁺ is 0.1.
ROW = row_b(n_interactions=tensor([1.0]), n_items=10, extra_positives=tensor([[0.55, 0.45]]))
LAMS = st.floats(0.01, 2)


def floor_free(s, prior, tau):
    """f of debiased InfoNCE by its formula, floor included, in plain exponentials."""
    inner = ((s.neg / tau).exp().mean(dim=1) - prior * (s.extra_positives / tau).exp().mean(dim=1)) / (1 - prior)
    return inner.clamp(min=math.exp(-1 / tau))


@pytest.mark.worked("debiased-mse")
def test_mse_of_row_b():
    assert debiased_mse(ROW, DebiasedMSE(lam=0.7)).item() == pytest.approx(0.1715750000, abs=1e-9)


@pytest.mark.worked("debiased-ccl")
def test_ccl_of_row_b():
    assert debiased_ccl(ROW, DebiasedCCL(lam=0.7, margin=0.4)).item() == pytest.approx(0.0505000000, abs=1e-9)


@pytest.mark.worked("debiased-infonce")
def test_infonce_of_row_b():
    value = debiased_infonce(ROW, DebiasedInfoNCE(lam=4, tau=0.5))
    assert value.item() == pytest.approx(0.7902678504, abs=1e-9)
    # f, read back from the loss.
    assert (value.exp().item() - 1) * math.exp(0.6 / 0.5) / 4 == pytest.approx(0.9993441427, abs=1e-9)


@given(a=st.floats(0, 5), extra=st.floats(0, 50), n=st.integers(1, 40))
def test_the_prior_joins_both_formulas_and_ends_below_one(a, extra, n):
    s = row_b(n_items=20, n_interactions=torch.tensor([n]))
    share = ((1 + a) * n + extra) / 20
    assert class_prior(s, DebiasedMSE(a=a, extra=extra)).item() == pytest.approx(min(share, 0.999))


@given(s=batches(), lam=LAMS, a=st.floats(0, 2), margin=st.floats(0, 0.9), weight=st.sampled_from(["prior", "one"]))
def test_mse_and_ccl_are_their_formulas(s, lam, a, margin, weight):
    about = {"lam": lam, "a": a, "positive_weight": weight}
    mse, ccl = DebiasedMSE(**about), DebiasedCCL(**about, margin=margin)
    prior = class_prior(s, mse)
    share = prior if weight == "prior" else 1.0
    for function, p, positive, negative in (
        (debiased_mse, mse, (1 - s.pos).square(), torch.square),
        (debiased_ccl, ccl, 1 - s.pos, lambda y: (y - margin).clamp(min=0)),
    ):
        expected = share * positive + lam * (negative(s.neg).mean(dim=1) - prior * negative(s.extra_positives).mean(dim=1))
        torch.testing.assert_close(function(s, p), expected)


@given(s=batches(), lam=st.floats(1, 1000), tau=TAUS, a=st.floats(0, 3))
def test_infonce_is_its_formula(s, lam, tau, a):
    p = DebiasedInfoNCE(lam=lam, tau=tau, a=a)
    f = floor_free(s, class_prior(s, p), tau)
    expected = -s.pos / tau + ((s.pos / tau).exp() + lam * f).log()
    # Where f is a small difference of large exponentials, the digits that both lose are not the same.
    torch.testing.assert_close(debiased_infonce(s, p), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("tau", [0.01, 0.5])
@pytest.mark.parametrize(("neg", "own"), [(1.0, -1.0), (-1.0, 1.0), (1.0, 1.0), (-1.0, -1.0)])
def test_infonce_is_finite_at_the_ends_in_float32(tau, neg, own):
    row = {"neg": torch.full((2, 3), neg), "extra_positives": torch.full((2, 3), own), "pos": torch.tensor([-1.0, 1.0])}
    s = row_b(**row, n_interactions=torch.tensor([1, 10]))
    p = DebiasedInfoNCE(lam=1000.0, tau=tau)
    assert debiased_infonce(s, p).isfinite().all()
    assert all(g.isfinite().all() for g in gradient(debiased_infonce, s, p, *row))


def test_infonce_is_at_its_floor_where_exactly_nothing_is_left_of_the_negatives():
    # Half of all items are known positives, and so is half of the sample.
    s = row_b(neg=tensor([[1.0, -1.0]]), extra_positives=tensor([[1.0]]), n_interactions=tensor([5.0]), n_items=10)
    p = DebiasedInfoNCE(lam=4, tau=0.01)
    assert debiased_infonce(s, p).item() == pytest.approx(4 * math.exp(-1.6 / 0.01), rel=1e-9, abs=0)
    assert all((g == 0).all() for g in gradient(debiased_infonce, s, p, "neg", "extra_positives"))
