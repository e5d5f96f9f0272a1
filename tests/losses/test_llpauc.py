import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toy import row_b, state_of, tensor

from rankbench.losses.llpauc import LLPAUC, Saddle, llpauc

ASCENDED = {"g", "s_pos"}


def rows(hits, misses):
    """A row for each hit, all of them against the same misses; both are sigmoids of scores."""
    return row_b(pos=torch.logit(tensor(hits)), neg=torch.logit(tensor(misses)).expand(len(hits), -1))


@pytest.mark.worked("llpauc")
def test_worked_numbers():
    p = LLPAUC(alpha=0.7, beta=0.1)
    state = state_of(Saddle, p)
    assert llpauc(row_b(), p, state).item() == pytest.approx(6.9942341455, abs=1e-9)
    # Only the negatives' mean is divided by β: a second β tells it from the rest, of which the θ make up 1 at the start.
    mean = (llpauc(row_b(), p, state) - llpauc(row_b(), LLPAUC(alpha=0.7, beta=0.2), state)).item() / (1 / 0.1 - 1 / 0.2)
    negative_part = 0.5 + mean / 0.1
    assert negative_part == pytest.approx(7.4553701138, abs=1e-9)
    assert llpauc(row_b(), p, state).item() - 1 - negative_part == pytest.approx(-1.4611359683, abs=1e-9)


def test_a_temperature_divides_the_scores():
    p, cool = LLPAUC(alpha=0.7, beta=0.1), LLPAUC(alpha=0.7, beta=0.1, tau=0.2)
    pos, neg = tensor([0.3]), tensor([[0.1, -0.6]])
    scaled = llpauc(row_b(pos=5 * pos, neg=5 * neg), p, state_of(Saddle, p))
    assert llpauc(row_b(pos=pos, neg=neg), cool, state_of(Saddle, cool)).item() == pytest.approx(scaled.item(), abs=1e-12)
    assert llpauc(row_b(pos=pos, neg=neg), p, state_of(Saddle, p)).item() != pytest.approx(scaled.item(), abs=1e-3)


shares = st.lists(st.floats(0.05, 0.95), min_size=4, max_size=4, unique=True)


@given(shares, shares, st.sampled_from([1, 2, 3, 4]), st.sampled_from([1, 2, 3, 4]))
def test_at_its_saddle_it_is_the_mean_over_the_pairs_of_the_corner(hits, misses, n_hits, n_misses):
    """1 + F equals the truncated mean of (1 − (p − q))², but for the smooth hinges, each at most log 2 / 5 too large."""
    p = LLPAUC(alpha=n_hits / 4, beta=n_misses / 4)
    hits, misses = sorted(hits), sorted(misses)
    # −ℓ⁺ and ℓ⁻ both rise with the score, so the shares that the hinges keep are those of the highest.
    top, hard = hits[-n_hits:], misses[-n_misses:]
    a, b = sum(top) / n_hits, sum(hard) / n_misses
    g = b - a
    gains = sorted((2 * (1 + g) * x - (x - a) ** 2 for x in hits), reverse=True)
    losses = sorted(((x - b) ** 2 + 2 * (1 + g) * x for x in misses), reverse=True)
    state = state_of(Saddle, p, a=a, b=b, g=g, s_pos=gains[n_hits - 1], s_neg=losses[n_misses - 1], theta_a=0, theta_b=0)
    expected = sum((1 - x + y) ** 2 for x in top for y in hard) / (n_hits * n_misses)
    value = 1 + llpauc(rows(hits, misses), p, state).mean().item()
    assert expected - math.log(2) / 5 / p.alpha - 1e-9 <= value <= expected + math.log(2) / 5 / p.beta + 1e-9


def test_gradients_descend_in_all_but_g_and_s_pos():
    p = LLPAUC(alpha=0.5, beta=0.3)
    state = state_of(Saddle, p, a=0.7, b=0.2, g=-0.3, s_pos=0.4, s_neg=0.6, theta_a=0.3, theta_b=0.1)
    llpauc(row_b(), p, state).mean().backward()
    for name, parameter in state.named_parameters():
        ends = []
        for step in (1e-6, -1e-6):
            with torch.no_grad():
                parameter += step
                ends.append(llpauc(row_b(), p, state).item())
                parameter -= step
        slope = (ends[0] - ends[1]) / 2e-6
        assert abs(slope) > 0.01
        assert parameter.grad.item() == pytest.approx(-slope if name in ASCENDED else slope, abs=1e-8), name


def test_the_thresholds_and_g_learn_twice_as_fast():
    state = state_of(Saddle, LLPAUC())
    rate = {id(parameter): group["lr"] for group in state.groups(0.1) for parameter in group["params"]}
    rates = {name: rate[id(parameter)] for name, parameter in state.named_parameters()}
    assert rates == {"a": 0.1, "b": 0.1, "theta_a": 0.1, "theta_b": 0.1, "g": 0.2, "s_pos": 0.2, "s_neg": 0.2}


@pytest.mark.parametrize(
    ("far", "kept"),
    [
        (-9.0, {"a": 0, "b": 0, "g": -1, "s_pos": -1, "s_neg": 0, "theta_a": 0, "theta_b": 0}),
        (9.0, {"a": 1, "b": 1, "g": 1, "s_pos": 4, "s_neg": 5, "theta_a": 9, "theta_b": 9}),
    ],
)
def test_scalars_are_put_back_into_their_range(far, kept):
    state = state_of(Saddle, LLPAUC(), **dict.fromkeys(kept, far))
    state.project()
    assert {name: value.item() for name, value in state.named_parameters()} == kept
