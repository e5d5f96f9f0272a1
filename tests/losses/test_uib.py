import pytest
import torch
from toy import row_b, state_of, tensor

from rankbench.losses.spec import Sizes
from rankbench.losses.uib import UIB, Boundary, uib


def of(p: UIB, b: float, pos, *neg) -> float:
    """The loss of one row whose user's boundary is b."""
    return uib(row_b(pos=tensor([pos]), neg=tensor([neg])), p, state_of(Boundary, p, value=b)).item()


@pytest.mark.worked("uib")
def test_worked_numbers():
    assert of(UIB(boundary="embedding"), 0.3, 0.6, 0.5, 0.1, -0.3, -0.8) == pytest.approx(0.5423152490, abs=1e-9)
    hinge = UIB(boundary="embedding", phi="hinge", margin=1)
    assert 2 * of(hinge, 0.3, 0.6, 0.5) == pytest.approx(1.9, abs=1e-9)  # a is 1/2: twice that is unweighted
    unequal = UIB(boundary="embedding", phi="hinge", margin=1, a=0.25)
    assert of(unequal, 0.3, 0.6, 0.5) == pytest.approx(0.75 * 0.7 + 0.25 * 1.2, abs=1e-9)


def test_the_linear_boundary_is_a_map_of_the_users_vector():
    p = UIB(boundary="linear")
    state = state_of(Boundary, p, weight=[0.5, -1.0], offset=0.1)
    vectors = tensor([[0.6, 0.1]])  # 0.5 · 0.6 − 0.1 + 0.1 = 0.3
    assert uib(row_b(user_vectors=vectors), p, state).item() == pytest.approx(0.5423152490, abs=1e-9)


def test_the_linear_boundary_is_drawn_from_the_generator():
    first, again, other = (Boundary(UIB(), Sizes(3, 10, 2), torch.Generator().manual_seed(seed)) for seed in (7, 7, 8))
    assert torch.equal(first.weight, again.weight)
    assert not torch.equal(first.weight, other.weight)
