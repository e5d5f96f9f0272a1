"""Weighted sums and products along edges against loops over the edges, and against finite differences."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from graphs import edge_list, random_interactions, random_tensor

from rankbench.core import devices
from rankbench.models.edges import Edges, edge_products, weighted_sums

ATOL = dict(rtol=0, atol=1e-12)


@pytest.fixture(params=["compiled", "PyTorch"])
def way(request, monkeypatch):
    if request.param == "PyTorch":
        monkeypatch.setattr(devices, "_COMPILED", False)


def one_sided(seed=0, n_nodes=17):
    """Edges whose reverse edges are not among them; some nodes have none."""
    A = sp.random_array((n_nodes, n_nodes), density=0.2, rng=np.random.default_rng(seed), format="csr")
    return Edges(A.indptr, A.indices)


GRAPHS = {
    "both directions": lambda: Edges.between(random_interactions(0, 9, 11)),
    "with loops": lambda: Edges.between(random_interactions(1, 9, 11), loops=True),
    "one direction": one_sided,
    "no edges": lambda: Edges(np.zeros(5, np.int64), np.zeros(0, np.int64)),
}


@pytest.fixture(params=GRAPHS.values(), ids=GRAPHS)
def edges(request):
    return request.param()


def sums_by_loop(edges, weights, x):
    out, chunks = torch.zeros_like(x), weights.shape[1]
    for e, (head, tail) in enumerate(edge_list(edges)):
        for k, (into, of) in enumerate(zip(out[head].chunk(chunks), x[tail].chunk(chunks), strict=True)):
            into += weights[e, k] * of
    return out


def products_by_loop(edges, a, b, chunks):
    out = a.new_zeros(edges.nnz, chunks)
    for e, (head, tail) in enumerate(edge_list(edges)):
        for k, (one, other) in enumerate(zip(a[head].chunk(chunks), b[tail].chunk(chunks), strict=True)):
            out[e, k] = one @ other
    return out


@pytest.mark.parametrize(("chunks", "width"), [(1, 1), (1, 33), (3, 5), (4, 16), (5, 1)])
def test_sums_and_products_are_those_of_a_loop(way, edges, chunks, width):
    weights = random_tensor(1, edges.nnz, chunks)
    a, b = (random_tensor(seed, edges.n_nodes, chunks * width) for seed in (2, 3))
    torch.testing.assert_close(weighted_sums(edges, weights, a), sums_by_loop(edges, weights, a), **ATOL)
    torch.testing.assert_close(edge_products(edges, a, b, chunks), products_by_loop(edges, a, b, chunks), **ATOL)


@pytest.mark.parametrize("graph", ["both directions", "with loops", "one direction"])
def test_derivatives_are_those_of_finite_differences(way, graph):
    edges = GRAPHS[graph]()
    weights = random_tensor(1, edges.nnz, 2).requires_grad_()
    a, b = (random_tensor(seed, edges.n_nodes, 6).requires_grad_() for seed in (2, 3))
    check = torch.autograd.gradcheck
    assert check(lambda w, x: weighted_sums(edges, w, x), (weights, a), fast_mode=True)
    assert check(lambda x: weighted_sums(edges, weights.detach(), x), (a,), fast_mode=True)
    assert check(lambda w: weighted_sums(edges, w, a.detach()), (weights,), fast_mode=True)
    assert check(lambda x, y: edge_products(edges, x, y, 2), (a, b), fast_mode=True)
    assert check(lambda y: edge_products(edges, a.detach(), y, 2), (b,), fast_mode=True)


def all_of(edges, dtype):
    """Values and gradients of everything, for random inputs."""
    weights = random_tensor(1, edges.nnz, 4, dtype=dtype).requires_grad_()
    a, b, given = (random_tensor(seed, edges.n_nodes, 32, dtype=dtype) for seed in (2, 3, 4))
    a.requires_grad_()
    sums, products = weighted_sums(edges, weights, a), edge_products(edges, a, b, 4)
    gradients = torch.autograd.grad([sums, products], [weights, a], [given, weights.detach() + 1])
    return [sums, products, *gradients]


def test_single_precision_keeps_its_digits():
    edges = Edges.between(random_interactions(5, 200, 150))
    for found, expected in zip(all_of(edges, torch.float32), all_of(edges, torch.float64), strict=True):
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-4)


def test_edges_between_users_and_items_are_in_order_and_have_their_reverse():
    X = random_interactions(7, 6, 8)
    edges, n = Edges.between(X, loops=True), sum(X.shape)
    A = np.eye(n, dtype=int)
    A[:6, 6:] = X.toarray()
    A[6:, :6] = X.toarray().T
    assert edge_list(edges) == [tuple(pair) for pair in np.argwhere(A).tolist()]
    order = np.asarray(edge_list(edges))[edges.reverse]
    assert order.tolist() == sorted(order.tolist(), key=lambda pair: pair[::-1])
    assert edges.degree.tolist() == A.sum(axis=1).tolist()


def test_vectors_that_lie_across_memory_are_read_as_they_are():
    edges = one_sided()
    weights, x = random_tensor(1, 2, edges.nnz).T, random_tensor(2, 6, edges.n_nodes).T
    expected = weighted_sums(edges, weights.contiguous(), x.contiguous())
    assert torch.equal(weighted_sums(edges, weights, x), expected)


def test_a_number_that_is_none_comes_out_where_it_has_reached():
    edges = Edges.between(sp.csr_array(np.eye(3)))
    x = torch.ones(6, 20)
    x[4, 7] = torch.nan
    assert torch.equal(weighted_sums(edges, torch.ones(6, 1), x).isnan().nonzero(), torch.tensor([[1, 7]]))
    assert torch.equal(edge_products(edges, torch.ones(6, 20), x, 2).isnan().nonzero(), torch.tensor([[1, 0]]))
