"""Softmax and sampled softmax: worked numbers, what the corrections do on average, and torch's own cross-entropy."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from rows import catalogues
from toy import A, row_b, tensor, whole

from rankbench.losses.softmax import SampledSoftmax, sampled_softmax, softmax
from rankbench.losses.spec import NoParams

Q = tensor([[0.4, 0.3, 0.2, 0.1]]).log()


@pytest.mark.worked("softmax")
def test_softmax_of_a():
    rows = softmax(whole(A), NoParams())
    assert rows.tolist() == pytest.approx([0.6196173997, 2.1196173997], abs=1e-9)
    assert rows.mean().item() == pytest.approx(1.3696173997, abs=1e-9)


@pytest.mark.worked("sampled-softmax")
@pytest.mark.parametrize(
    ("correction", "logq", "expected"),
    [
        ("nq_N", torch.full((1, 4), -math.log(10), dtype=torch.float64), 1.1520060310),
        ("nq_N", Q, 0.6303500942),
        ("both", Q, 0.6303500942),  # as with nq_N, because the positive has the log q of a uniform draw
        ("expected_count", Q, 1.1617967958),
    ],
)
def test_sampled_softmax_of_row_b(correction, logq, expected):
    s = row_b(n_items=10, logq=logq, logq_pos=tensor([-math.log(10)]))
    assert sampled_softmax(s, SampledSoftmax(correction)).item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.worked("sampled-softmax")
@pytest.mark.parametrize(("correction", "expected"), [("nq_N", 6.8652346495), ("expected_count", 13.7304692990)])
def test_the_sampled_sum_on_average(correction, expected):
    q = tensor([0.3, 0.2, 0.2, 0.1, 0.1, 0.1])
    mean = 0.0
    for draw in itertools.product(range(len(A)), repeat=3):
        at = torch.tensor(draw)
        s = row_b(pos=A[:1], neg=A[at][None], logq=q[at].log()[None], n_items=len(A))
        value = sampled_softmax(s, SampledSoftmax(correction))
        # ℓ = log(1 + sum / e^pos)
        mean += q[at].prod().item() * (value.exp().item() - 1) * A[0].exp().item()
    assert mean == pytest.approx(expected, abs=1e-9)
    assert A.exp().sum().item() == pytest.approx(13.7304692990, abs=1e-9)


@given(drawn=catalogues(-20, 20))
def test_softmax_is_cross_entropy(drawn):
    o, s = drawn
    expected = torch.nn.functional.cross_entropy(o.expand(len(s.pos), -1), s.items, reduction="none")
    torch.testing.assert_close(softmax(s, NoParams()), expected)
