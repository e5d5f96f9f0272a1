"""Sparsemax: worked numbers, the loss by the definition of its support, and scores at which a search for it may fail."""

import pytest
import torch
from hypothesis import given
from rows import catalogues
from toy import A, whole

from rankbench.losses.sparsemax import sparsemax, sparsemax_of
from rankbench.losses.spec import NoParams

LOGITS = catalogues(-3, 3)


def loss_of(o, positives):
    return sparsemax(whole(o, positives), NoParams())


@pytest.mark.worked("sparsemax")
@pytest.mark.parametrize(
    ("scale", "expected", "size", "theta"),
    [(1.0, [0.0, 1.5], 1, 1.0), (0.3, [0.1358333333, 0.5858333333], 3, 0.0166666667)],
)
def test_sparsemax_of_a(scale, expected, size, theta):
    o = scale * A
    assert loss_of(o, [0, 2]).tolist() == pytest.approx(expected, abs=1e-9)
    best = sparsemax_of(o[None])[0]
    assert int((best > 0).sum()) == size
    assert (o[0] - best[0]).item() == pytest.approx(theta, abs=1e-9)


def test_an_item_at_the_threshold_itself_ends_the_search():
    """Rounding puts it on this side or that: the first of these went on for ever."""
    rng = torch.Generator().manual_seed(0)
    for row in ([0.0, -1 / 3, 0.0, -2 / 15, -0.2, -0.5], [-1 / 3, 0.0, -1 / 3, -5 / 9], [-0.2, 0.0, -11 / 30, -0.47 / 0.9]):
        z = torch.tensor([row], dtype=torch.float64)
        assert sparsemax_of(z).sum().item() == pytest.approx(1, abs=1e-12)
    for _ in range(3000):
        inside = torch.randint(-9, 1, (1, 5), generator=rng).double() / 30
        theta = (inside.sum() - 1) / 5
        z = torch.cat([inside, inside.new_full((1, 2), theta.item())], dim=1)
        best = sparsemax_of(z)
        if theta < inside.min():
            assert best.sum().item() == pytest.approx(1, abs=1e-12)
            assert best[0, 5:].max() < 1e-12


@given(drawn=LOGITS)
def test_the_loss_by_its_support(drawn):
    o, s = drawn
    # The support by its definition: the largest k for which the k-th score stays above the threshold of the first k.
    ordered = sorted(o.tolist(), reverse=True)
    k = max(k for k in range(1, len(ordered) + 1) if 1 + k * ordered[k - 1] > sum(ordered[:k]))
    theta = (sum(ordered[:k]) - 1) / k
    expected = -s.pos + 0.5 * sum(x * x - theta * theta for x in ordered[:k]) + 0.5
    torch.testing.assert_close(sparsemax(s, NoParams()), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("low", [-50.0, 50.0, 0.0])
def test_many_equal_items_in_float32(low):
    o = torch.full((30_000,), low, requires_grad=True)
    value = loss_of(o, [7])
    value.sum().backward()
    # The best p is 1/N for every item.
    assert value.item() == pytest.approx(0.5 - 0.5 / 30_000, abs=1e-5)
    assert o.grad.sum().item() == pytest.approx(0, abs=1e-3)
