import math
from itertools import pairwise

import pytest
import torch
from toy import row_b, state_of, tensor

from rankbench.losses.advinfonce import Adversary, AdvInfoNCE, advinfonce

LOGITS = [0.2, -0.1, 0.0, 0.3]


def adversary(p: AdvInfoNCE, logits=None) -> Adversary:
    """As drawn, or one that gives negatives 1 to 4 the adversarial logits `logits`."""
    if logits is None:
        return state_of(Adversary, p)
    item = torch.zeros(10, 2, dtype=torch.float64)
    item[1:5, 0] = tensor(logits)
    return state_of(Adversary, p, user=[1.0, 0.0], item=item)


def of(p: AdvInfoNCE, scores, logits) -> float:
    pos, *neg = scores
    return advinfonce(row_b(pos=tensor([pos]), neg=tensor([neg])), p, adversary(p, logits)).item()


@pytest.mark.worked("advinfonce")
def test_worked_numbers():
    b = [0.6, 0.5, 0.1, -0.3, -0.8]
    assert of(AdvInfoNCE(tau=0.2, kappa=1), b, LOGITS) == pytest.approx(0.5535529726, abs=1e-9)
    assert of(AdvInfoNCE(tau=0.2, kappa=64), b, LOGITS) == pytest.approx(3.8779080302, abs=1e-9)
    equal = torch.zeros(1, 4, dtype=torch.float64, requires_grad=True)
    s = row_b(neg=equal)
    # Of equal scores, the slopes are in proportion to the weights.
    (slopes,) = torch.autograd.grad(advinfonce(s, AdvInfoNCE(), adversary(AdvInfoNCE(), LOGITS)).sum(), equal)
    p = slopes / slopes.sum()
    assert p[0].tolist() == pytest.approx([0.2728721511, 0.2021486614, 0.2234088217, 0.3015703657], abs=1e-9)
    assert (p * (p.log() + math.log(4))).sum().item() == pytest.approx(0.0123731304, abs=1e-9)


def test_negatives_of_all_rows_or_of_each_row():
    p = AdvInfoNCE(tau=0.2)
    state = adversary(p)
    about = {"pos": tensor([0.6, 0.2]), "neg": tensor([[0.5, 0.1], [-0.3, 0.8]]), "users": torch.tensor([0, 2])}
    shared = advinfonce(row_b(**about, neg_items=torch.tensor([[7, 3]])), p, state)
    own = advinfonce(row_b(**about, neg_items=torch.tensor([[7, 3], [7, 3]])), p, state)
    torch.testing.assert_close(shared, own, rtol=1e-12, atol=0)


def test_every_t_adv_th_epoch_attacks_and_at_most_e_adv_of_them():
    state = adversary(AdvInfoNCE(T_adv=3, E_adv=2))
    attacks = []
    for epoch in range(1, 13):
        state.begin_epoch(epoch)
        attacks += [epoch] if state.alone else []
    assert attacks == [3, 6]


def test_an_epoch_trains_the_model_or_the_adversary():
    p = AdvInfoNCE(tau=0.2, T_adv=2)
    state = adversary(p)
    pos, neg = tensor([0.6]).requires_grad_(), tensor([[0.5, 0.1, -0.3, -0.8]]).requires_grad_()
    state.begin_epoch(1)
    advinfonce(row_b(pos=pos, neg=neg), p, state).sum().backward()
    assert state.user.grad is None
    assert state.item.grad is None
    assert (neg.grad > 0).all()
    assert pos.grad < 0
    pos.grad = neg.grad = None
    state.begin_epoch(2)
    advinfonce(row_b(pos=pos, neg=neg), p, state).sum().backward()
    assert pos.grad is None
    assert neg.grad is None
    assert state.user.grad[0].abs().sum() > 0
    assert state.user.grad[1:].abs().sum() == 0


def test_steps_of_the_adversary_raise_the_loss_and_its_value_is_that_of_a_model_epoch():
    p = AdvInfoNCE(tau=0.2, T_adv=2, adv_lr=1e-2)
    state = adversary(p)
    values = [advinfonce(row_b(), p, state).item()]
    state.begin_epoch(2)
    adam = torch.optim.Adam(state.groups(learning_rate=1.0))
    for _ in range(20):
        value = advinfonce(row_b(), p, state).mean()
        values.append(value.item())
        adam.zero_grad()
        value.backward()
        adam.step()
    assert values[0] == values[1]
    assert all(later > sooner for sooner, later in pairwise(values[1:]))
