"""NGCF's compiled layer against the same layer in PyTorch, in value and gradient, and its dropout."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from rankbench.models import ngcf_layer as module
from rankbench.models.ngcf_layer import ROWS, ngcf_layer, plain_layer


def given(n, d, dtype=torch.float64, seed=0):
    draw = torch.Generator().manual_seed(seed)
    T, E, share, W, b, V, c = (
        torch.randn(shape, dtype=torch.float64, generator=draw).to(dtype)
        for shape in ((n, d), (n, d), (n,), (d, d), (1, d), (d, d), (1, d))
    )
    return T, E, share.abs(), W, b, V, c


def leaves_of(tensors):
    return [each.clone().requires_grad_(number != 2) for number, each in enumerate(tensors)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("own", "rate"), [(False, 0.0), (True, 0.3)])
@pytest.mark.parametrize("read", ["both", "next layer", "scored"])
@pytest.mark.parametrize(("n", "d"), [(1, 1), (7, 5), (2 * ROWS + 3, 8)])
def test_a_layer_and_its_gradient_are_those_of_pytorch(dtype, own, rate, read, n, d):
    weights = [torch.randn(n, d, generator=torch.Generator().manual_seed(k)).to(dtype) for k in (3, 4)]
    results = []
    for form in (ngcf_layer, plain_layer):
        T, E, share, *parameters = leaves = leaves_of(given(n, d, dtype))
        out, unit = form(T, E, share, own, tuple(parameters), rate, 77)
        # The last layer has no next one, and a layer may be read by the next one alone.
        read_from = {"both": (out, unit), "next layer": (out,), "scored": (unit,)}[read]
        total = sum((side * weight).sum() for side, weight in zip(read_from, weights, strict=False))
        slopes = torch.autograd.grad(total, [leaf for leaf in leaves if leaf.requires_grad])
        results.append([out.detach(), unit.detach(), *slopes])
    exact = {"rtol": 1e-11, "atol": 1e-11} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 2e-3}
    for found, expected in zip(*results, strict=True):
        assert_allclose(found, expected, **exact)


def test_a_slope_is_that_of_finite_differences():
    T, E, share, *weights = leaves_of(given(4, 3))
    assert torch.autograd.gradcheck(lambda T, E, *weights: ngcf_layer(T, E, share, True, weights, 0.4, 5), (T, E, *weights))


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


def test_other_devices_draw_the_same_numbers(monkeypatch):
    T, E, share, *weights = given(50, 4)
    expected = ngcf_layer(T, E, share, True, tuple(weights), 0.5, 9)
    monkeypatch.setattr(module, "compiled", lambda device: False)
    for found, wanted in zip(ngcf_layer(T, E, share, True, tuple(weights), 0.5, 9), expected, strict=True):
        assert_allclose(found, wanted, rtol=1e-12)
    assert np.array_equal(found != 0, wanted != 0)
