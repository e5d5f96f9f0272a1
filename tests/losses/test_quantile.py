from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toy import POSITIVES, C, row_b, tensor

from rankbench.losses.others import OwnItems
from rankbench.losses.quantile import Thresholds
from rankbench.losses.spec import Ragged, Scores, Sizes
from rankbench.losses.talos import Talos
from rankbench.training.user_catalogue import UserCatalogue

OTHERS = [1, 3, 4, 5]


def table(n_users=1, n_items=6, K=2, beta=0.25) -> Thresholds:
    state = Thresholds(Talos(K=K), Sizes(n_users, n_items, embedding_dim=2), torch.Generator()).double()
    with torch.no_grad():
        state.beta.fill_(beta)
    return state


def user_c(sampled) -> Scores:
    """One row of the user of C: all its positives, and the sampled items."""
    return row_b(
        n_items=6,
        n_interactions=tensor([2.0]),
        pos=C[:1],
        neg=C[None, sampled],
        all_positives=Ragged(C[POSITIVES], torch.zeros(2, dtype=torch.int64)),
    )


def test_worked_numbers():
    state = table()
    value = state.own_loss(user_c([1, 3]))
    assert value.item() == pytest.approx(0.1277777778, abs=1e-9)
    value.backward()
    assert state.beta.grad.item() == pytest.approx(-0.3333333333, abs=1e-9)


def test_expects_the_loss_over_the_whole_catalogue():
    whole = table().own_loss(user_c(OTHERS)).item()
    draws = [table().own_loss(user_c(list(pair))).item() for pair in product(OTHERS, OTHERS)]
    assert whole == pytest.approx(0.1638888889, abs=1e-9)
    assert sum(draws) / len(draws) == pytest.approx(whole, abs=1e-12)


@pytest.mark.parametrize("q", [[1 / 6] * 6, [0.3, 0.05, 0.25, 0.2, 0.1, 0.1]], ids=["uniform", "other"])
def test_draws_from_all_items_have_the_same_expectation(q):
    whole, total = table().own_loss(user_c(OTHERS)).item(), 0.0
    slope = 0.0
    for pair in product(range(6), range(6)):
        probability = q[pair[0]] * q[pair[1]]
        logq = tensor([[q[0]]]).log().expand(1, 2) if len(set(q)) == 1 else tensor([[q[j] for j in pair]]).log()
        state = table()
        value = state.own_loss(replace(user_c(list(pair)), logq=logq, own_drawn=True))
        value.backward()
        total, slope = total + probability * value.item(), slope + probability * state.beta.grad.item()
    state = table()
    state.own_loss(user_c(OTHERS)).backward()
    assert total == pytest.approx(whole, abs=1e-12) and slope == pytest.approx(state.beta.grad.item(), abs=1e-12)


def test_items_that_are_never_drawn_are_among_those_below_the_threshold():
    """As items without interactions with sampler=popularity; the last item has the lowest score."""
    q, slope = [0.3, 0.2, 0.2, 0.2, 0.1], 0.0
    for pair in product(range(5), range(5)):
        logq, state = tensor([[q[j] for j in pair]]).log(), table()
        state.own_loss(replace(user_c(list(pair)), logq=logq, own_drawn=True)).backward()
        slope += q[pair[0]] * q[pair[1]] * state.beta.grad.item()
    state = table()
    state.own_loss(user_c(OTHERS)).backward()
    assert slope == pytest.approx(state.beta.grad.item(), abs=1e-12)


@pytest.mark.parametrize("left_out", [False, True])
def test_learns_from_all_items_whether_or_not_the_own_ones_are_among_the_others(left_out):
    """Two rows of a user with the scores C, and one of a user with the opposite ones, whose only item is 4."""
    of, beta = torch.tensor([0, 0, 1]), tensor([0.15, 0.0, 0.25])
    own = OwnItems(tensor([0.7, 0.3, 0.2]), of, of, n_groups=2)
    V = torch.stack([C, -C], dim=1)  # the scores of the users (1, 0) and (0, 1)
    others = UserCatalogue(torch.eye(2).double(), V, of, own, np.array([0, 2, 3]), np.array([0, 2, 4]), left_out)
    s = row_b(n_items=6, users=torch.tensor([2, 2, 0]), pos=own.values, other_items=others, own_items=own)
    state = Thresholds(Talos(K=2, threshold="learned"), Sizes(3, 6, 2), torch.Generator()).double()
    with torch.no_grad():
        state.beta.copy_(beta)
    value = state.own_loss(s)
    value.backward()

    def mean_rho(x):
        return (2 / 3 * x.clamp(min=0) + 1 / 3 * (-x).clamp(min=0)).mean().item()

    assert state.of(s).tolist() == [0.25, 0.25, 0.15]
    assert value.item() == pytest.approx((2 * mean_rho(C - 0.25) + mean_rho(-C - 0.15)) / 3, abs=1e-12)
    # Three scores of the first user are above 0.25, and two of the second above 0.15: one third must be.
    assert state.beta.grad.tolist() == pytest.approx([0, 0, 2 / 3 * (1 / 3 - 3 / 6)], abs=1e-12)


@given(st.floats(-1, 1))
def test_is_smallest_just_between_the_last_score_of_the_list_and_the_next(beta):
    value = table(beta=beta).own_loss(user_c(OTHERS)).item()
    inside = 0.3 <= beta <= 0.5
    assert value >= 0.1555555556 - 1e-9
    assert (value == pytest.approx(0.1555555556, abs=1e-9)) == (inside or min(abs(beta - 0.3), abs(beta - 0.5)) < 1e-8)


def test_rows_are_averaged_and_each_moves_its_own_user():
    """Rows of two users, the lists of positives in no order; a third user stays."""
    state = table(n_users=3)
    both = row_b(
        n_items=6,
        n_interactions=tensor([2.0, 1.0]),
        users=torch.tensor([2, 0]),
        pos=tensor([0.7, 0.4]),
        neg=torch.stack([C[[1, 3]], tensor([0.0, 0.9])]),
        all_positives=Ragged(tensor([0.7, 0.4, 0.3]), torch.tensor([0, 1, 0])),
    )
    # The second row: ρ(0.15) + 2.5 (ρ(−0.25) + ρ(0.65)) with shares 2/3 above and 1/3 below, over 6 items.
    second = (0.1 + 2.5 * (0.25 / 3 + 0.65 * 2 / 3)) / 6
    value = state.own_loss(both)
    assert value.item() == pytest.approx((0.1277777778 + second) / 2, abs=1e-9)
    value.backward()
    assert state.beta.grad[2].item() == pytest.approx(-0.3333333333 / 2, abs=1e-9)
    assert state.beta.grad[1].item() == 0


def test_gradient_reaches_the_thresholds_alone():
    state = table()
    neg = C[None, [1, 3]].clone().requires_grad_()
    values = C[POSITIVES].clone().requires_grad_()
    s = row_b(n_items=6, n_interactions=tensor([2.0]), neg=neg, all_positives=Ragged(values, torch.zeros(2, dtype=torch.int64)))
    state.own_loss(s).backward()
    assert neg.grad is None
    assert values.grad is None
    assert state.beta.grad is not None and not state.of(s).requires_grad


def test_a_list_longer_than_the_catalogue_takes_it_whole():
    # Every item belongs to the top K: the threshold is only ever pressed down to the lowest score.
    state = table(K=20, beta=-0.7)
    state.own_loss(user_c(OTHERS)).backward()
    assert state.beta.grad.item() == 0
