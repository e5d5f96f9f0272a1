"""Scores of the whole catalogue in chunks against the reference, which holds them all."""

import pytest
import torch
from numpy.testing import assert_allclose

from rankbench.losses.others import ScoreTable
from rankbench.training import catalogue
from rankbench.training.catalogue import ChunkedCatalogue

METHODS = {
    "logsumexp": lambda c: c.logsumexp(),
    "mean": lambda c: c.moments()[0],
    "mean square": lambda c: c.moments()[1],
    "scores": lambda c: c.of_all(torch.Tensor.clone),
}


OF = torch.tensor([3, 0, 0, 4, 3, 3, 1])  # user 2 has no row


def of_each(rows, items):
    return ChunkedCatalogue(rows, items, torch.arange(len(rows)))


def vectors(n_rows=5, n_items=300, d=4):
    draw = torch.Generator().manual_seed(4)
    return [torch.randn(n, d, generator=draw, dtype=torch.float64).requires_grad_() for n in (n_rows, n_items)]


@pytest.fixture(params=[1, 1 << 19], ids=["chunks of 64 items", "one chunk"])
def chunk(request, monkeypatch):
    monkeypatch.setattr(catalogue, "_CHUNK", request.param)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n_items", [1, 64, 65, 300])
def test_every_method_agrees_with_the_reference_forth_and_back(method, n_items, chunk):
    rows, items = vectors(n_items=n_items)
    chunked = METHODS[method](ChunkedCatalogue(rows, items, OF))
    expected = METHODS[method](ScoreTable(rows[OF] @ items.T))
    assert_allclose(chunked.detach(), expected.detach(), rtol=1e-12, atol=1e-12)
    weight = torch.randn(expected.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    gradients = (torch.autograd.grad(value, (rows, items), weight) for value in (chunked, expected))
    for fast, plain in zip(*gradients, strict=True):
        assert_allclose(fast, plain, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("method", ["logsumexp", "scores"])
def test_bfloat16_rounds_the_products(method):
    rows, items = (each.detach().float() for each in vectors())
    exact, rounded = (METHODS[method](ChunkedCatalogue(rows, items, OF, kind)) for kind in ("float32", "bfloat16"))
    assert rounded.dtype == torch.float32 and (rounded != exact).any()
    assert (rounded - exact).abs().max() <= 3 * 2**-8 * rows.norm(dim=1).max() * items.norm(dim=1).max()


@pytest.mark.parametrize("size", [1e4, -1e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_scores_of_ten_thousand_stay_finite(size, dtype, chunk):
    rows, items = torch.ones(3, 1, dtype=dtype), torch.linspace(0.5, 1, 200, dtype=dtype)[:, None] * size
    rows.requires_grad_(), items.requires_grad_()
    found, expected = of_each(rows, items).logsumexp(), torch.logsumexp(rows.double() @ items.double().T, dim=1)
    assert_allclose(found.detach().double(), expected.detach(), rtol=1e-6)
    for mine, theirs in zip(*(torch.autograd.grad(value.sum(), (rows, items)) for value in (found, expected)), strict=True):
        assert torch.isfinite(mine).all()
        assert_allclose(mine.double(), theirs.double(), rtol=5e-3, atol=5e-3)


def test_scores_from_one_end_to_the_other_in_a_row_stay_finite(chunk):
    """The largest comes first, last and in between: what was summed before it is scaled away."""
    items = torch.linspace(-1e4, 1e4, 201, dtype=torch.float64)
    for order in (torch.arange(201), torch.arange(200, -1, -1), torch.roll(torch.arange(201), 77)):
        rows = torch.ones(1, 1, dtype=torch.float64, requires_grad=True)
        found = of_each(rows, items[order][:, None]).logsumexp()
        found.backward()
        assert_allclose(found.detach(), [1e4], rtol=1e-14)
        assert_allclose(rows.grad, [[1e4]], rtol=1e-12)
