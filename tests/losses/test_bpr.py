import pytest
from toy import C, row_b, whole

from rankbench.losses.bpr import bpr
from rankbench.losses.spec import NoParams


@pytest.mark.worked("bpr")
def test_worked_numbers():
    value = bpr(row_b(), NoParams())
    assert value.shape == (1,)
    assert value.item() == pytest.approx(0.4200112322, abs=1e-9)
    assert 4 * value.item() == pytest.approx(1.6800449289, abs=1e-9)
    assert bpr(whole(C, negatives="other"), NoParams()).mean().item() == pytest.approx(0.4786622183, abs=1e-9)
