import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toy import C, row_b, tensor, whole

from rankbench.losses.opauc import OPAUC, opauc

logits = st.lists(st.floats(-20, 20), min_size=2, max_size=7)


def of(p: OPAUC, pos, *neg) -> float:
    return opauc(row_b(pos=tensor([pos]), neg=tensor([neg])), p).item()


def pairs(pos, *neg) -> list[float]:
    return sorted((math.log1p(math.exp(x - pos)) for x in neg), reverse=True)


@pytest.mark.worked("opauc")
def test_worked_numbers():
    assert opauc(row_b(), OPAUC(beta=0.5)).item() == pytest.approx(0.5592368221, abs=1e-9)
    assert opauc(row_b(), OPAUC(form="kl", tau=0.2)).item() == pytest.approx(0.4809172078, abs=1e-9)
    assert opauc(whole(C, negatives="other"), OPAUC(beta=0.5)).mean().item() == pytest.approx(0.6079761397, abs=1e-9)


@given(logits, st.integers(1, 6))
def test_is_the_cvar_of_the_pairs_at_any_threshold_between_two_of_them(scores, m):
    each = [*pairs(*scores), 0.0]
    n = len(scores) - 1
    m = min(m, n)
    for eta in (each[m - 1], each[m], (each[m - 1] + each[m]) / 2):
        cvar = eta + sum(max(x - eta, 0) for x in each[:n]) / m
        assert of(OPAUC(beta=m / n), *scores) == pytest.approx(cvar, rel=1e-9, abs=1e-9)


@given(logits)
def test_the_soft_form_goes_from_the_hardest_to_the_mean(scores):
    each = pairs(*scores)
    mean = sum(each) / len(each)
    values = [of(OPAUC(form="kl", tau=tau), *scores) for tau in (1e-4, 0.1, 1, 1e7)]
    assert values[0] == pytest.approx(each[0], abs=1e-3)
    assert values[-1] == pytest.approx(mean, abs=1e-3)
    assert all(mean - 1e-6 <= value <= each[0] + 1e-6 for value in values)
    assert values[1] >= values[2] - 1e-9


@pytest.mark.parametrize(("n", "beta", "count"), [(100, 0.07, 7), (10, 0.3, 3), (10, 0.31, 4), (3, 0.01, 1), (7, 1.0, 7)])
def test_counts_the_share_rounded_up(n, beta, count):
    neg = torch.arange(n, dtype=torch.float64)[None].requires_grad_()
    opauc(row_b(pos=tensor([0.0]), neg=neg), OPAUC(beta=beta)).sum().backward()
    assert (neg.grad != 0)[0].nonzero()[:, 0].tolist() == list(range(n - count, n))
