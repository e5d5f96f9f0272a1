"""SGL: thinned graphs, and the contrast of a node with all nodes of its kind."""

from itertools import combinations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from graphs import U, V
from numpy.testing import assert_allclose
from torch.autograd import gradcheck
from torch.nn.functional import cross_entropy, normalize

from rankbench.models.contrast import contrast
from rankbench.models.propagation import Graph, propagate
from rankbench.models.sgl import SGL, SGLModel

FIRST = torch.tensor([[1, 0], [0.6, 0.8], [0, 1]], dtype=torch.float64)
SECOND = torch.tensor([[0.8, 0.6], [0, 2], [-1, 1]], dtype=torch.float64)


def encoder(X, dtype=np.float64, seed=0, **values):
    rng = np.random.default_rng(seed)
    users, items = (torch.from_numpy(rng.normal(size=(n, 4)).astype(dtype)) for n in X.shape)
    return SGLModel(X, SGL(**values), users, items, torch.Generator().manual_seed(seed))


def interactions(seed=0, shape=(40, 25)):
    return sp.csr_array(np.random.default_rng(seed).random(shape) < 0.3, dtype=np.float32)


def test_the_worked_contrast():
    losses = contrast(FIRST, SECOND, torch.arange(3), 0.2)
    assert_allclose(losses, [0.01867397, 1.18255114, 1.77674566], atol=1e-8)
    assert contrast(FIRST, SECOND, torch.tensor([0, 2]), 0.2).sum().item() == pytest.approx(1.79541963, abs=1e-8)


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "PyTorch"])
@pytest.mark.parametrize("tau", [0.05, 0.2, 1.0])
def test_a_contrast_is_cross_entropy_with_all_products(tau, compiled, monkeypatch):
    monkeypatch.setattr("rankbench.kernels.catalogue_sum.compiled", lambda device: compiled)
    monkeypatch.setattr("rankbench.kernels.catalogue_sum.PART", 1500)  # several parts
    rng = np.random.default_rng(1)
    views = [torch.from_numpy(rng.normal(size=(150, 3))).requires_grad_() for _ in range(2)]
    ids = torch.from_numpy(rng.choice(150, 40, replace=False))
    weights = torch.from_numpy(rng.normal(size=40))
    found = contrast(*views, ids, tau)
    z, y = (normalize(view, dim=1) for view in views)
    expected = cross_entropy(z[ids] @ y.T / tau, ids, reduction="none")
    assert_allclose(found.detach(), expected.detach(), rtol=1e-10, atol=1e-12)
    for mine, theirs in zip(*(torch.autograd.grad((each * weights).sum(), views) for each in (found, expected)), strict=True):
        assert_allclose(mine, theirs, rtol=1e-9, atol=1e-12)


def test_the_view_of_a_thinned_graph_is_propagated_over_what_is_left():
    """User 0 without item 1: degrees are those of the graph that is left (worked numbers)."""
    X = sp.csr_array(np.array([[1, 0, 0], [0, 1, 1]], np.float64))
    view = torch.cat(propagate(Graph(X), U, V, [0.5, 0.5]))
    expected = [[0.5, 0.5], [0.25, 0.03033009], [0.5, 0.5], [0.67677670, 0.14644661], [-0.32322330, -0.10355339]]
    assert_allclose(view, expected, atol=1e-8)


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5])
def test_a_thinned_graph_has_the_stated_number_of_interactions(rate):
    X = interactions()
    made = encoder(X, edge_dropout=rate)
    parts = [made.thinned() for _ in range(2)]
    for part in parts:
        assert part.nnz == int((1 - rate) * X.nnz) and not (part.toarray() > X.toarray()).any()
    assert rate == 0 or (parts[0] != parts[1]).nnz


def test_the_graphs_of_an_epoch_depend_on_the_generator_alone():
    X = interactions()
    made = encoder(X)
    state = made.generator.get_state()
    made.begin_epoch(3)
    first = [part.indices for part in made.parts]
    made.begin_epoch(4)
    assert any(not np.array_equal(one, part.indices) for one, part in zip(first, made.parts, strict=True))
    made.generator.set_state(state)
    made.begin_epoch(3)
    assert all(np.array_equal(one, part.indices) for one, part in zip(first, made.parts, strict=True))


def test_the_own_loss_counts_every_row_of_the_batch():
    X = interactions()
    made = encoder(X, ssl_weight=0.7, ssl_tau=0.3).train()
    made.begin_epoch(1)
    made()
    users, items = torch.tensor([3, 3, 5]), torch.tensor([2, 4, 4])
    views = list(made.views)
    found = made.own_loss(users, items)
    total = 0.0
    for side, ids in enumerate((users, items)):
        z, y = (normalize(view[side], dim=1) for view in views)
        total = total + cross_entropy(z[ids] @ y.T / 0.3, ids)
    assert found.item() == pytest.approx(0.7 * total.item(), rel=1e-10)
    assert not made.views
    made.eval()
    assert_allclose(made()[0].detach(), propagate(made.graph, made.users, made.items, made.weights)[0].detach())


@pytest.mark.parametrize("n_drawn", [1, 3])
def test_sums_over_drawn_nodes_are_those_over_all_on_average(n_drawn):
    n, tau, draw = 6, 0.4, torch.Generator().manual_seed(3)
    first, second = (torch.randn(n, 4, dtype=torch.float64, generator=draw) for _ in range(2))
    ids = torch.tensor([4, 0])
    cosine = normalize(first, dim=1) @ normalize(second, dim=1).T / tau

    def sums(losses):
        return (losses + cosine[ids, ids]).exp()

    samples = [torch.tensor(sample) for sample in combinations(range(n), n_drawn)]
    for row, v in enumerate(ids.tolist()):
        # A node that is drawn itself is compared with one node less: its samples have an expectation of their own.
        for drawn in (True, False):
            own = [sample for sample in samples if (v in sample.tolist()) == drawn and (n_drawn > 1 or not drawn)]
            found = [sums(contrast(first, second, ids, tau, sample))[row] for sample in own]
            assert not found or torch.stack(found).mean().item() == pytest.approx(cosine[v].exp().sum().item(), rel=1e-12)


def test_the_gradient_with_drawn_nodes_is_that_of_finite_differences():
    draw = torch.Generator().manual_seed(3)
    views = [torch.randn(6, 4, dtype=torch.float64, generator=draw, requires_grad=True) for _ in range(2)]
    ids, among = torch.tensor([4, 0]), torch.tensor([1, 4, 5])
    assert gradcheck(lambda z, y: contrast(z, y, ids, 0.4, among), views)


def test_nodes_are_drawn_anew_in_each_step():
    made = encoder(interactions(), contrast_nodes=3)
    samples = [made.sample(8) for _ in range(5)]
    assert all(len(set(sample.tolist())) == 3 and sample.diff().gt(0).all() for sample in samples)
    assert len({tuple(sample.tolist()) for sample in samples}) > 1
    assert made.sample(3) is None and encoder(interactions()).sample(8) is None
