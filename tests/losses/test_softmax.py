"""Softmax and sampled softmax: worked numbers, bounds, what the corrections do on average, and gradients."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rows import batches, catalogues, shifted
from toy import A, row_b, tensor, whole

from rankbench.losses.softmax import SampledSoftmax, sampled_softmax, softmax
from rankbench.losses.spec import NoParams

LOGITS = catalogues(-20, 20)
CORRECTIONS = ["nq_N", "expected_count", "both"]
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
        ("both", torch.full((1, 4), -math.log(10), dtype=torch.float64), 1.1520060310),
        ("nq_N", Q, 0.6303500942),
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


@given(drawn=LOGITS)
def test_softmax_is_cross_entropy_and_bounds_the_log_of_the_rank(drawn):
    o, s = drawn
    value = softmax(s, NoParams())
    torch.testing.assert_close(value, torch.nn.functional.cross_entropy(o.expand(len(s.pos), -1), s.items, reduction="none"))
    rank = (o >= s.pos[:, None]).sum(dim=1).double()
    assert (rank.log() <= value + 1e-9).all() and (value >= 0).all()


@given(drawn=LOGITS, c=st.floats(-20, 20))
def test_softmax_forgives_a_shift(drawn, c):
    _, s = drawn
    torch.testing.assert_close(softmax(shifted(s, c), NoParams()), softmax(s, NoParams()), rtol=1e-6, atol=1e-9)


@given(s=batches(-20, 20), c=st.floats(-20, 20), correction=st.sampled_from(CORRECTIONS))
def test_sampled_softmax_forgives_a_shift_and_is_not_negative(s, c, correction):
    p = SampledSoftmax(correction)
    value = sampled_softmax(s, p)
    torch.testing.assert_close(sampled_softmax(shifted(s, c), p), value, rtol=1e-6, atol=1e-9)
    assert (value >= 0).all()


@given(s=batches(-20, 20), c=st.floats(-5, 5))
def test_a_constant_in_all_log_q_changes_nothing_where_both_are_corrected(s, c):
    p = SampledSoftmax("both")
    more = replace(s, logq=s.logq + c, logq_pos=s.logq_pos + c)
    torch.testing.assert_close(sampled_softmax(more, p), sampled_softmax(s, p), rtol=1e-6, atol=1e-9)


def test_the_corrections_differ_by_the_log_of_n_over_n_items():
    s = row_b(n_items=10, logq=Q)
    by_count = sampled_softmax(s, SampledSoftmax("expected_count"))
    moved = replace(s, neg=s.neg + math.log(10 / 4))
    torch.testing.assert_close(sampled_softmax(moved, SampledSoftmax("nq_N")), by_count)


def test_the_expected_count_of_the_whole_catalogue_is_softmax_with_the_positive_twice():
    s = replace(whole(A), logq=torch.full((1, len(A)), -math.log(len(A)), dtype=torch.float64))
    expected = softmax(s, NoParams()) + (s.pos.exp() / A.exp().sum()).log1p()
    torch.testing.assert_close(sampled_softmax(s, SampledSoftmax("expected_count")), expected)
