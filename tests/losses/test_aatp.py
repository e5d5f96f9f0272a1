import pytest
import torch
from toy import C, row_b, state_of, tensor, whole

from rankbench.losses.aatp import AATP, aatp
from rankbench.losses.quantile import Thresholds


def table(beta) -> Thresholds:
    return state_of(Thresholds, AATP(), beta=beta)


def of(beta, pos, *neg) -> float:
    return aatp(row_b(pos=tensor([pos]), neg=tensor([neg])), AATP(), table(beta)).item()


@pytest.mark.worked("aatp")
def test_worked_numbers():
    assert aatp(row_b(), AATP(), table(0.3)).item() == pytest.approx(1.3, abs=1e-9)
    assert aatp(whole(C, negatives="other"), AATP(), table(0.5)).mean().item() == pytest.approx(1.475, abs=1e-9)


def test_hinges_close():
    assert of(-0.9, 0.2, -1.0) == pytest.approx(0.9)  # the positive lies more than 1 above
    assert of(0.9, 1.0, -0.2) == pytest.approx(0.9)  # the negative more than 1 below


def test_the_threshold_belongs_to_the_row_of_its_user():
    s = row_b(pos=tensor([0.6, 0.6]), neg=tensor([[-0.9], [-0.9]]), users=torch.tensor([1, 0]))
    assert aatp(s, AATP(), table([0.0, 0.3, 0.0])).tolist() == pytest.approx([0.7, 0.5])
