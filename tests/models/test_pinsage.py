"""PinSage against worked numbers, a restatement node by node, finite differences and the exact shares of its walks."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from graphs import DIGITS, U, V, X, edge_list, random_interactions, random_tensor, tensor
from torch.nn.functional import normalize

from rankbench.core import devices
from rankbench.models.edges import Edges
from rankbench.models.pinsage import PinSage, PinSageModel, pinsage
from rankbench.models.walks import most_visited, walk

Q, BIAS_Q = tensor([1, -0.5], [0.5, 1]), tensor(0, 0.1)
W, BIAS_W = tensor([1, 0], [0, 1], [0.5, -0.5], [1, 0.5]), tensor(-0.1, 0.2)
# Shares of all visits of an item's walks, the item's own included: ½ T (I − ½T)⁻¹ for double hops T.
ITEM_SHARES = np.array([[0.41666667, 0.5, 0.08333333], [0.25, 0.5, 0.25], [0.08333333, 0.5, 0.41666667]])


def built(p, X=X, users=U, items=V, seed=0):
    return pinsage(X, p, users.clone(), items.clone(), torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("last", "expected"),
    [({}, [2.1875, 1.5625]), ({"relu_last": True, "normalize_last": True}, [0.81373347, 0.58123819])],
)
def test_worked_convolution(last, expected):
    # Item 1 has the neighbours 0 and 2 with three visits and one; no other node has any.
    edges = Edges(np.array([0, 0, 0, 0, 2, 2]), np.array([2, 4]))
    encoder = PinSageModel(edges, np.array([0.75, 0.25]), PinSage(convolutions=1, **last), U, V, torch.Generator())
    with torch.no_grad():
        encoder.messages[0].copy_(Q)
        encoder.message_biases[0].copy_(BIAS_Q)
        encoder.weights[0].copy_(W)
        encoder.biases[0].copy_(BIAS_W)
    torch.testing.assert_close((V @ Q + BIAS_Q).relu(), tensor([0.5, 1.1], [1.5, 0.6], [0, 1.1]))
    torch.testing.assert_close(encoder()[1][1], tensor(*expected), rtol=0, atol=DIGITS)


def visit_shares(edges, node, key, n_walks):
    visits, seen = np.zeros(edges.n_nodes, np.int64), np.empty(edges.n_nodes, np.int32)
    walk(edges.heads.indptr, edges.heads.ends, np.uint64(key), node, n_walks, visits, seen)
    return visits / visits.sum()


@pytest.mark.parametrize("item", [0, 1, 2])
def test_worked_shares_of_visits(item):
    step = np.array([[0.5, 0.5, 0], [0.25, 0.5, 0.25], [0, 0.5, 0.5]])  # item to item, by a user
    np.testing.assert_allclose(step @ np.linalg.inv(np.eye(3) - step / 2) / 2, ITEM_SHARES, atol=1e-8)
    found = visit_shares(Edges.between(X), 2 + item, 7, 100_000)
    assert not found[:2].any()
    np.testing.assert_allclose(found[2:], ITEM_SHARES[item], atol=0.01)


def test_walks_from_users_visit_users():
    met = random_interactions(0, 7, 9, 0.4)
    dense, edges = met.toarray() > 0, Edges.between(met)
    by_user, by_item = (side / np.maximum(side.sum(axis=1, keepdims=True), 1) for side in (dense, dense.T))
    step = by_user @ by_item
    expected = step @ np.linalg.inv(np.eye(7) - step / 2) / 2
    for user in np.flatnonzero(dense.any(axis=1)):
        np.testing.assert_allclose(visit_shares(edges, user, 3, 40_000)[:7], expected[user], atol=0.015)


@pytest.mark.parametrize(("n_walks", "n_kept"), [(1, 3), (20, 3), (50, 100)])
def test_neighbours_are_the_most_visited_others_with_their_shares(n_walks, n_kept):
    edges = Edges.between(random_interactions(1, 20, 15))
    found, shares = most_visited(edges, 11, n_walks, n_kept)
    assert shares.dtype == np.float64 and found.n_nodes == edges.n_nodes
    for node in range(edges.n_nodes):
        visits, seen = np.zeros(edges.n_nodes, np.int64), np.empty(edges.n_nodes, np.int32)
        walk(edges.heads.indptr, edges.heads.ends, np.uint64(11), node, n_walks, visits, seen)
        visits[node] = 0
        best = sorted(np.flatnonzero(visits), key=lambda other: (-visits[other], other))[:n_kept]
        at = slice(*found.heads.indptr[node : node + 2])
        assert found.heads.ends[at].tolist() == best
        np.testing.assert_allclose(shares[at], visits[best] / visits[best].sum())


def test_another_key_gives_other_walks():
    edges = Edges.between(random_interactions(2, 60, 50))
    one, same, other = (most_visited(edges, key, 10, 5)[0].heads.ends for key in (1, 1, 2))
    assert np.array_equal(one, same) and not np.array_equal(one, other)


def node_by_node(encoder, p):
    """Algorithm 1 of the paper for each node in turn."""
    x, pairs, shares = torch.cat([encoder.users, encoder.items]), edge_list(encoder.edges), encoder.shares
    layers = [x]
    for number in range(p.convolutions):
        rows = []
        for node in range(len(x)):
            n = torch.zeros_like(x[node])
            for e, (head, tail) in enumerate(pairs):
                if head == node:
                    n = n + shares[e] * torch.relu(x[tail] @ encoder.messages[number] + encoder.message_biases[number])
            z, last = torch.cat([x[node], n]) @ encoder.weights[number] + encoder.biases[number], number == p.convolutions - 1
            z = torch.relu(z) if p.relu_last or not last else z
            rows.append(normalize(z, dim=0) if p.normalize_last or not last else z)
        x = torch.stack(rows)
        layers.append(x)
    return x if p.combine == "last" else torch.stack(layers).mean(dim=0)


def random_encoder(p, dtype=torch.float64):
    encoder = built(
        p, random_interactions(4, 6, 7, 0.5), random_tensor(5, 6, 5, dtype=dtype), random_tensor(6, 7, 5, dtype=dtype)
    )
    with torch.no_grad():
        for number, bias in enumerate([*encoder.message_biases, *encoder.biases]):
            bias.copy_(random_tensor(7 + number, 5))
    return encoder


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("neighbours", ["walks", "all"])
@pytest.mark.parametrize(
    ("combine", "relu", "normal"), [("last", False, False), ("last", True, True), ("last", False, True), ("mean", False, False)]
)
@pytest.mark.parametrize("n_layers", [1, 2, 3])
def test_vectors_and_gradients_are_those_of_each_node(monkeypatch, n_layers, combine, relu, normal, neighbours, compiled):
    monkeypatch.setattr(devices, "_COMPILED", compiled)
    p = PinSage(n_layers, neighbours, 3, 20, combine, relu_last=relu, normalize_last=normal)
    encoder = random_encoder(p)
    found, expected = torch.cat(encoder()), node_by_node(encoder, p)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    parameters, given = [*encoder.parameters()], random_tensor(20, *found.shape)
    gradients = [torch.autograd.grad(side, parameters, given) for side in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-11)


def test_some_nodes_have_the_vectors_and_gradients_that_they_have_among_all():
    encoder, nodes = random_encoder(PinSage(n_neighbours=3, n_walks=20)), np.array([0, 2, 5, 6, 11])
    found = [torch.cat(encoder())[nodes], encoder.rows(nodes)]
    torch.testing.assert_close(*found, rtol=0, atol=1e-13)
    parameters, given = [*encoder.parameters()], random_tensor(21, *found[0].shape)
    torch.testing.assert_close(*(torch.autograd.grad(each, parameters, given) for each in found), rtol=0, atol=1e-12)


def test_all_neighbours_are_those_of_the_interactions_with_equal_shares():
    met = random_interactions(8, 5, 6)
    encoder = built(PinSage(neighbours="all"), met, random_tensor(9, 5, 4), random_tensor(10, 6, 4))
    dense = np.zeros((11, 11))
    dense[tuple(np.array(edge_list(encoder.edges)).T)] = encoder.shares[:, 0]
    A = sp.block_array([[None, met], [met.T, None]]).toarray() > 0
    np.testing.assert_allclose(dense, A / np.maximum(A.sum(axis=1, keepdims=True), 1))
