"""MSE: worked sums over all pairs, and the squared error of a user as an oracle."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rows import catalogues
from toy import A, whole

from rankbench.losses.mse import MSE, mse


@pytest.mark.worked("mse")
@pytest.mark.parametrize(("alpha", "expected"), [(0, 3.5), (1, 4.75)])
def test_the_weighted_sum_over_all_pairs(alpha, expected):
    # 4 negatives for 2 positives; WRMF's weight 1 + α of positives multiplies the loss and divides λ.
    rows = mse(whole(A, negatives="other"), MSE(4 / 2 / (1 + alpha)))
    assert (1 + alpha) * rows.sum().item() == pytest.approx(expected, abs=1e-9)


@given(drawn=catalogues(-3, 3, negatives="other"), alpha=st.floats(0, 8))
def test_a_users_rows_are_the_weighted_squared_error(drawn, alpha):
    o, s = drawn
    r = torch.zeros_like(o)
    r[s.items] = 1
    expected = ((1 + alpha * r) * (o - r).square()).sum()
    n_rows, n = s.neg.shape
    torch.testing.assert_close((1 + alpha) * mse(s, MSE(n / n_rows / (1 + alpha))).sum(), expected)
