"""SL: worked numbers, its limits in the temperature, DCG below it, and its gradient."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rows import TAUS, batches, catalogues, gradient
from toy import C, row_b, whole

from rankbench.losses.sl import SL, sl


def ranks(o, s):
    return (o >= s.pos[:, None]).sum(dim=1).double()


def minus_log_dcg(o, s):
    """−log DCG + log n_u, with DCG not divided by the ideal one."""
    return math.log(len(s.pos)) - (1 / (1 + ranks(o, s)).log2()).sum().log().item()


@pytest.mark.worked("sl")
def test_row_b():
    assert sl(row_b(), SL(0.2)).item() == pytest.approx(-0.3557660188, abs=1e-9)
    assert sl(row_b(), SL(0.2, include_positive=True)).item() == pytest.approx(0.5310026144, abs=1e-9)


@pytest.mark.worked("sl")
@pytest.mark.parametrize(("tau", "expected"), [(0.2, 1.4482782253), (0.1, 2.1451866320)])
def test_the_whole_catalogue_c(tau, expected):
    assert sl(whole(C), SL(tau)).mean().item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.worked("sl")
def test_dcg_and_ranks_of_c():
    s = whole(C)
    assert minus_log_dcg(C, s) == pytest.approx(0.2876820725, abs=1e-9)
    assert ranks(C, s).log().mean().item() == pytest.approx(0.5493061443, abs=1e-9)


@given(drawn=catalogues(), tau=TAUS)
def test_over_all_items_it_bounds_dcg_and_log_rank(drawn, tau):
    o, s = drawn
    log_rank = ranks(o, s).log().mean().item()
    assert minus_log_dcg(o, s) <= log_rank + 1e-9
    assert log_rank <= sl(s, SL(tau)).mean().item() + 1e-9


@given(s=batches())
def test_its_limits_are_the_worst_difference_and_the_log_of_n(s):
    d, n = s.neg - s.pos[:, None], s.neg.shape[1]
    sharp = 1e-4 * sl(s, SL(1e-4))
    assert (sharp - d.amax(dim=1)).abs().max() <= 1e-4 * math.log(n) + 1e-12
    assert (sl(s, SL(1e6)) - math.log(n)).abs().max() <= 2e-6 + 1e-12


@given(s=batches(n_negatives=st.just(4)), tau=TAUS, weights=st.lists(st.floats(0.01, 1), min_size=4, max_size=4))
def test_it_is_the_worst_case_over_distributions_near_the_uniform(s, tau, weights):
    d, n = s.neg - s.pos[:, None], 4

    def at(q):
        return (q * d).sum(dim=-1) - tau * (q * (n * q).log()).sum(dim=-1)

    value = tau * sl(s, SL(tau)) - tau * math.log(n)
    other = torch.tensor(weights, dtype=torch.float64)
    assert (at(other / other.sum()) <= value + 1e-9).all()
    torch.testing.assert_close(at(torch.softmax(d / tau, dim=1).clamp(min=1e-300)), value, rtol=1e-7, atol=1e-9)


@given(s=batches(), tau=TAUS)
def test_its_gradient_is_a_softmax_over_negatives(s, tau):
    pos, neg = gradient(sl, s, SL(tau), "pos", "neg")
    torch.testing.assert_close(pos, torch.full_like(pos, -1 / tau))
    torch.testing.assert_close(neg, torch.softmax(s.neg / tau, dim=1) / tau)
