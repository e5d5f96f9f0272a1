import math

import pytest
from toy import row_b, tensor

from rankbench.losses.cml import CML, cml


def of(p: CML, pos, *neg) -> float:
    return cml(row_b(pos=-tensor([pos]), neg=-tensor([neg])), p).item()


@pytest.mark.worked("cml")
def test_worked_number():
    assert of(CML(margin=1, rank_weight=False), 0.08, 0.50) == pytest.approx(0.58, abs=1e-9)
    assert of(CML(margin=1), 0.08, 0.50) == pytest.approx(math.log(11) * 0.58, abs=1e-9)  # the one negative violates: rank 10


def test_the_rank_is_the_share_of_violating_negatives_in_the_catalogue():
    # margin 1 from 0.08: 0.5 and 1.0 come within, 1.2 and 3.0 do not; so 5 of 10 items.
    assert of(CML(margin=1), 0.08, 1.2, 1.0, 3.0, 0.5) == pytest.approx(math.log(6) * 0.58)
