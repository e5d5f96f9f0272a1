import pytest
import torch
from toy import row_b, state_of, tensor

from rankbench.losses.sml import SML, Margins, sml


def rows(to_pos, to_neg, between):
    """Rows of distances: user to item (B,), user to negatives (B, n), item to negatives (B, n)."""
    to_pos, to_neg, between = tensor(to_pos), tensor(to_neg), tensor(between)
    n_rows = len(to_pos)
    return row_b(
        pos=-to_pos,
        neg=-to_neg,
        users=torch.arange(n_rows),
        items=torch.arange(n_rows),
        n_interactions=torch.ones(n_rows),
        rival=lambda k: -between.gather(1, k[:, None])[:, 0],
    )


@pytest.mark.worked("sml")
def test_worked_number():
    p = SML(lam=0.01, gamma=0, margin=1)
    state = state_of(Margins, p, user=0.8, item=0.9)
    assert sml(rows([0.08], [[0.50]], [[0.58]]), p, state).item() == pytest.approx(0.384, abs=1e-9)


def test_both_hinges_take_the_negative_nearest_to_the_user():
    p = SML(lam=1, gamma=0, margin=1)
    value = sml(rows([0.08], [[2.0, 0.50, 0.7]], [[0.01, 0.58, 0.02]]), p, state_of(Margins, p, user=0.8, item=0.9))
    assert value.item() == pytest.approx(0.38 + 0.40)


def test_margins_of_all_users_and_items_are_rewarded():
    p = SML(lam=0, gamma=0.5, margin=1)
    state = state_of(Margins, p, user=[0.0, 0.0, 0.6], item=0.3)  # user 2 has no row
    assert sml(rows([0.08], [[3.0]], [[3.0]]), p, state).item() == pytest.approx(-0.5 * (0.2 + 0.3))


def test_margins_start_at_the_largest_and_stay_within():
    state = state_of(Margins, SML(margin=1.5))
    assert (state.user == 1.5).all()
    assert (state.item == 1.5).all()
    with torch.no_grad():
        state.user.copy_(tensor([-1.0, 0.7, 9.0]))
        state.item.fill_(-2)
    state.project()
    assert state.user.tolist() == [0.0, 0.7, 1.5]
    assert state.item.tolist() == [0.0] * 10
