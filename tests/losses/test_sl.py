"""SL: worked numbers. Which other losses it equals, `test_identities.py` proves."""

import pytest
from toy import C, row_b, whole

from rankbench.losses.sl import SL, sl


@pytest.mark.worked("sl")
def test_row_b():
    assert sl(row_b(), SL(0.2)).item() == pytest.approx(-0.3557660188, abs=1e-9)
    assert sl(row_b(), SL(0.2, include_positive=True)).item() == pytest.approx(0.5310026144, abs=1e-9)


@pytest.mark.worked("sl")
@pytest.mark.parametrize(("tau", "expected"), [(0.2, 1.4482782253), (0.1, 2.1451866320)])
def test_the_whole_catalogue_c(tau, expected):
    assert sl(whole(C), SL(tau)).mean().item() == pytest.approx(expected, abs=1e-9)
