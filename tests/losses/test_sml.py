import pytest
import torch
from toy import row_b, tensor

from rankbench.losses.sml import SML, Margins, sml
from rankbench.losses.spec import Sizes

SIZES = Sizes(n_users=3, n_items=5, embedding_dim=2)


def margins(p: SML, user: float | None = None, item: float | None = None) -> Margins:
    """The margins as they start, or all `user` and all `item`."""
    state = Margins(p, SIZES, torch.Generator()).double()
    with torch.no_grad():
        if user is not None:
            state.user.fill_(user)
        if item is not None:
            state.item.fill_(item)
    return state


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
    state = margins(p, user=0.8, item=0.9)
    assert sml(rows([0.08], [[0.50]], [[0.58]]), p, state).item() == pytest.approx(0.384, abs=1e-9)


def test_both_hinges_take_the_negative_nearest_to_the_user():
    p = SML(lam=1, gamma=0, margin=1)
    value = sml(rows([0.08], [[2.0, 0.50, 0.7]], [[0.01, 0.58, 0.02]]), p, margins(p, user=0.8, item=0.9))
    assert value.item() == pytest.approx(0.38 + 0.40)


def test_margins_of_all_users_and_items_are_rewarded():
    p = SML(lam=0, gamma=0.5, margin=1)
    state = margins(p, user=0.0, item=0.3)
    with torch.no_grad():
        state.user[2] = 0.6  # user 2 has no row
    assert sml(rows([0.08], [[3.0]], [[3.0]]), p, state).item() == pytest.approx(-0.5 * (0.2 + 0.3))


def test_margins_start_at_the_largest_and_stay_within():
    p = SML(margin=1.5)
    state = margins(p)
    assert (state.user == 1.5).all()
    assert (state.item == 1.5).all()
    with torch.no_grad():
        state.user.copy_(tensor([-1.0, 0.7, 9.0]))
        state.item.fill_(-2)
    state.project()
    assert state.user.tolist() == [0.0, 0.7, 1.5]
    assert state.item.tolist() == [0.0] * 5
