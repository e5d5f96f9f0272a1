"""A layer of NGCF's program: its dropout, NaNs and rows of zeros. Its compiled loops are compared with it in test_ngcf.py."""

import pytest
import torch
from numpy.testing import assert_allclose

from rankbench.models.ngcf_layer import ngcf_layer


def given(n, d):
    draw = torch.Generator().manual_seed(0)
    T, E, share, W, b, V, c = (
        torch.randn(shape, dtype=torch.float64, generator=draw)
        for shape in ((n, d), (n, d), (n,), (d, d), (1, d), (d, d), (1, d))
    )
    return T, E, share.abs(), W, b, V, c


def test_dropout_keeps_the_share_that_it_states_and_follows_its_key():
    T, E, share, *weights = given(3000, 16)
    (out, _), (again, _), (other, _) = (ngcf_layer(T, E, share, False, tuple(weights), 0.3, key) for key in (1, 1, 2))
    whole, _ = ngcf_layer(T, E, share, False, tuple(weights), 0.0, 1)
    kept = out != 0
    assert torch.equal(out, again) and not torch.equal(out, other)
    assert kept.double().mean() == pytest.approx(0.7, abs=0.01)
    assert_allclose(out[kept], whole[kept] / 0.7, rtol=1e-12)


def test_a_nan_is_not_dropped_and_a_row_of_zeros_stays_finite():
    T, E, share, W, b, V, c = given(3, 2)
    T[0] = float("nan")
    out, _ = ngcf_layer(T, E, share, False, (W, b, V, c), 0.0, 0)
    assert torch.isnan(out[0]).all() and torch.isfinite(out[1:]).all()
    zeros = [torch.zeros_like(each).requires_grad_() for each in (T, E, W, b, V, c)]
    _, unit = ngcf_layer(*zeros[:2], share, False, tuple(zeros[2:]), 0.0, 0)
    slopes = torch.autograd.grad(unit.sum(), zeros, allow_unused=True)
    assert not unit.any() and all(torch.isfinite(slope).all() for slope in slopes)
