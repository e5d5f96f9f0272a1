"""The polynomial of the graph against dense linear algebra in float64."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose

from rankbench.models.propagation import Graph, propagate

PLACES = arrays(np.int8, st.tuples(st.integers(1, 9), st.integers(1, 12)), elements=st.sampled_from([0, 0, 1]))
WEIGHTS = st.lists(st.floats(-2, 2), min_size=2, max_size=6)


def dense_adjacency(X):
    """Â entry by entry: 1/√(degree · degree) where there is an interaction."""
    n_users, n_items = X.shape
    A = np.zeros((n_users + n_items, n_users + n_items))
    for u, i in np.argwhere(X):
        A[u, n_users + i] = A[n_users + i, u] = 1 / np.sqrt(float(X[u].sum()) * float(X[:, i].sum()))
    return A


def dense_polynomial(X, weights, U, V):
    A, E = dense_adjacency(X), np.vstack([U, V])
    return sum(weight * np.linalg.matrix_power(A, layer) @ E for layer, weight in enumerate(weights))


def random_case(seed, n_users, n_items, width, density=0.1, dtype=torch.float64):
    rng = np.random.default_rng(seed)
    X = (rng.random((n_users, n_items)) < density).astype(np.int8)
    X[n_users // 2] = 0
    X[:, n_items // 3] = 0
    U, V = (torch.tensor(rng.normal(size=(n, width)), dtype=dtype) for n in (n_users, n_items))
    return X, U, V


@given(X=PLACES, weights=WEIGHTS, width=st.integers(1, 19), seed=st.integers(0, 99))
def test_both_ways_are_the_dense_polynomial(X, weights, width, seed):
    rng = np.random.default_rng(seed)
    U, V = (torch.tensor(rng.normal(size=(n, width))) for n in X.shape)
    expected, graph = dense_polynomial(X, weights, U.numpy(), V.numpy()), Graph(sp.csr_array(X))
    for by in (graph.by_rows, graph.by_matrix):
        assert_allclose(torch.cat(by(tuple(weights), U, V)), expected, atol=1e-11)


@pytest.mark.parametrize("width", [7, 64])
def test_single_precision_keeps_its_digits_on_a_larger_graph(width):
    X, U, V = random_case(0, 300, 500, width, dtype=torch.float32)
    found = propagate(Graph(sp.csr_array(X)), U, V, [0.25] * 4)
    assert all(side.dtype == torch.float32 and side.is_contiguous() for side in found)
    assert_allclose(torch.cat(found), dense_polynomial(X, [0.25] * 4, U.numpy(), V.numpy()), atol=2e-6)


@pytest.mark.parametrize("weights", [[0.25] * 4, [0.0, 1.0], [0.0, 0.5, 0.5], [1.0, -2.0, 0.5]])
def test_first_and_second_derivatives_are_those_of_finite_differences(weights):
    X, U, V = random_case(1, 5, 7, 3, density=0.4)
    graph = Graph(sp.csr_array(X))
    inputs = U.requires_grad_(), V.requires_grad_()
    assert torch.autograd.gradcheck(lambda u, v: propagate(graph, u, v, weights), inputs)
    assert torch.autograd.gradgradcheck(lambda u, v: propagate(graph, u, v, weights), inputs)


def test_a_gradient_that_reaches_one_side_in_few_rows_is_the_dense_one():
    X, U, V = random_case(2, 40, 60, 16)
    gradient = torch.zeros_like(V)
    gradient[[3, 41]] = 1.5
    U.requires_grad_()
    _, items = propagate(Graph(sp.csr_array(X)), U, V, [0.25] * 4)
    (found,) = torch.autograd.grad(items, U, gradient)
    assert_allclose(found, dense_polynomial(X, [0.25] * 4, np.zeros(U.shape), gradient.numpy())[:40], atol=1e-12)


def test_vectors_that_lie_across_memory_are_read_as_they_are():
    X, U, V = random_case(4, 20, 30, 8)
    graph = Graph(sp.csr_array(X))
    across = propagate(graph, U.T.contiguous().T, V[:, ::2].repeat_interleave(2, dim=1), [1.0, 1.0])
    plain = propagate(graph, U, V[:, ::2].repeat_interleave(2, dim=1).contiguous(), [1.0, 1.0])
    assert torch.equal(torch.cat(across), torch.cat(plain))


def test_nodes_without_interactions_keep_their_own_vector_alone():
    X = np.zeros((4, 5), np.int8)
    X[1, 2] = 1
    U, V = torch.ones(4, 3, dtype=torch.float64), torch.full((5, 3), 2.0, dtype=torch.float64)
    users, items = propagate(Graph(sp.csr_array(X)), U, V, [0.5, 0.25, 0.125])
    assert torch.equal(users[[0, 2, 3]], 0.5 * U[[0, 2, 3]])
    assert torch.equal(items[[0, 1, 3, 4]], 0.5 * V[[0, 1, 3, 4]])
    assert torch.equal(users[1], 0.5 * U[1] + 0.25 * V[2] + 0.125 * U[1])


def test_a_number_that_is_none_comes_out_where_it_has_reached():
    X = np.eye(3, dtype=np.int8)
    U, V = torch.ones(3, 20), torch.ones(3, 20)
    V[1, 4] = torch.nan
    users, _ = propagate(Graph(sp.csr_array(X)), U, V, [0.5, 0.5])
    assert torch.equal(users.isnan().nonzero(), torch.tensor([[1, 4]]))
