"""GAT against worked numbers, a restatement in dense matrices, and torch_geometric."""

import itertools

import numpy as np
import pytest
import torch
from graphs import DIGITS, U, V, X, edge_list, random_interactions, random_tensor, tensor
from torch.nn.functional import elu, leaky_relu

from rankbench.core.errors import ConfigError
from rankbench.models.edges import Edges
from rankbench.models.gat import GAT, GATModel, attention

WEIGHT, A_SRC, A_DST = tensor([1, 0.5], [-0.5, 1]), tensor(0.5, -1), tensor(1, 0.25)
# Rows u0, u1, i0, i1, i2, each with the neighbours and the node itself in the order of nodes.
WORKED = {
    True: [
        [0.61226731, 0.19386634, 0.19386634],
        [0.78750133, 0.09173143, 0.12076724],
        [0.56217650, 0.43782350],
        [0.20504055, 0.71566185, 0.07929759],
        [0.59266660, 0.40733340],
    ],
    False: [[0.5, 0.5], [0.43168002, 0.56831998], [1.0], [0.22270014, 0.77729986], [1.0]],
}
OUTPUT = [
    [0.61226731, 0.79079952],
    [0.68240799, -0.45302885],
    [0.34326475, 0.71891175],
    [0.96035120, -0.31527972],
    [0.08349985, -0.44449995],
]
SCORES = [[0.77868485, 0.33866860, -0.30038612], [-0.09144116, 0.79818215, 0.25835227]]


def built(p, X=X, users=U, items=V, seed=0):
    return GATModel(X, p, users.clone(), items.clone(), torch.Generator().manual_seed(seed))


def worked():
    encoder = built(GAT(attention_layers=1))
    with torch.no_grad():
        encoder.weights[0].copy_(WEIGHT)
        encoder.at_tail[0].copy_(A_SRC[:, None])
        encoder.at_head[0].copy_(A_DST[:, None])
    return encoder


@pytest.mark.parametrize("loops", [True, False])
def test_worked_attention(loops):
    H = torch.cat([U, V]) @ WEIGHT
    alpha = attention(Edges.between(X, loops), (H @ A_DST)[:, None], (H @ A_SRC)[:, None])
    torch.testing.assert_close(alpha[:, 0], tensor(*itertools.chain(*WORKED[loops])), rtol=0, atol=DIGITS)


def test_worked_vectors_and_scores():
    users, items = worked()()
    torch.testing.assert_close(torch.cat([users, items]), tensor(*OUTPUT), rtol=0, atol=DIGITS)
    torch.testing.assert_close(users @ items.T, tensor(*SCORES), rtol=0, atol=2 * DIGITS)


def test_attention_of_large_scores_is_finite():
    edges = Edges.between(X, loops=True)
    t, s = torch.tensor([[3e38], [1.0], [-3e38], [0.0], [1.0]]) / 4, torch.tensor([[1.0], [3e38], [0.0], [-3e38], [1.0]]) / 4
    assert attention(edges, t, s).isfinite().all()


def by_matrices(encoder, p, loops_matrix):
    """All layers with dense attention matrices, head by head."""
    layers = [torch.cat([encoder.users, encoder.items])]
    for number in range(p.attention_layers):
        last, heads = number == p.attention_layers - 1, []
        for k, W in enumerate(encoder.weights[number].chunk(p.n_heads, dim=1)):
            H = layers[-1] @ W
            score = leaky_relu((H @ encoder.at_head[number][:, k])[:, None] + H @ encoder.at_tail[number][:, k], 0.2)
            alpha = torch.where(loops_matrix, score, -torch.inf).softmax(dim=1).nan_to_num()  # a row may have no edge
            heads.append(alpha @ H)
        layers.append(torch.stack(heads).mean(dim=0) if last else elu(torch.cat(heads, dim=1)))
    return layers


@pytest.mark.parametrize("combine", ["last", "mean", "concat"])
@pytest.mark.parametrize(("n_layers", "n_heads", "loops"), [(1, 1, True), (2, 1, True), (3, 2, True), (2, 3, False)])
def test_the_encoder_and_its_gradients_are_those_of_dense_matrices(n_layers, n_heads, loops, combine):
    p = GAT(n_layers, n_heads, loops, combine)
    met, dim = random_interactions(4, 6, 8), 6
    encoder = built(p, met, random_tensor(5, 6, dim), random_tensor(6, 8, dim))
    A = torch.zeros(14, 14, dtype=torch.bool)
    A[:6, 6:] = torch.tensor(met.toarray() > 0)
    A = A | A.T | (torch.eye(14, dtype=torch.bool) if loops else False)
    layers = by_matrices(encoder, p, A)
    expected = {"last": layers[-1], "mean": torch.stack(layers).mean(dim=0), "concat": torch.cat(layers, dim=1)}[combine]
    found = torch.cat(encoder())
    assert found.shape == (14, encoder.width)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    if loops:  # without, PyTorch's gradient of a row of −∞ is NaN
        given, parameters = random_tensor(7, *found.shape), [*encoder.parameters()]
        gradients = [torch.autograd.grad(side, parameters, given, allow_unused=True) for side in (found, expected)]
        torch.testing.assert_close(*gradients, rtol=0, atol=1e-11)


@pytest.mark.parametrize("n_heads", [1, 3])
def test_some_nodes_have_the_vectors_and_gradients_that_they_have_among_all(n_heads):
    encoder = built(GAT(2, n_heads), random_interactions(4, 30, 40), random_tensor(5, 30, 6), random_tensor(6, 40, 6))
    nodes = np.array([0, 3, 15, 29, 30, 51, 69])
    found = [torch.cat(encoder())[nodes], encoder.rows(nodes)]
    torch.testing.assert_close(*found, rtol=0, atol=1e-13)
    parameters, given = [*encoder.parameters()], random_tensor(7, *found[0].shape)
    torch.testing.assert_close(*(torch.autograd.grad(each, parameters, given) for each in found), rtol=0, atol=1e-12)


def test_the_same_vectors_and_gradients_as_torch_geometric():
    reason = "torch_geometric is not installed: pip install rankbench[test]"
    peer = pytest.importorskip("torch_geometric.nn", reason=reason).GATConv(6, 4, heads=3, bias=False, add_self_loops=False)
    met, dim = random_interactions(8, 15, 10), 6
    encoder = built(GAT(1, 3), met, random_tensor(9, 15, dim), random_tensor(10, 10, dim))
    x = torch.cat([encoder.users, encoder.items]).detach()
    peer = peer.double()
    with torch.no_grad():
        encoder.weights[0], encoder.at_head[0], encoder.at_tail[0] = (
            torch.nn.Parameter(random_tensor(seed, *shape)) for seed, shape in ((11, (dim, 12)), (12, (4, 3)), (13, (4, 3)))
        )
        peer.lin.weight.copy_(encoder.weights[0].T)
        peer.att_dst.copy_(encoder.at_head[0].T[None])
        peer.att_src.copy_(encoder.at_tail[0].T[None])
    head, tail = torch.tensor(edge_list(encoder.edges)).T
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    found, expected = encoder.layer(ours, 0).flatten(1), peer(theirs, torch.stack([tail, head]))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
    given = random_tensor(14, *found.shape)
    gradients = [torch.autograd.grad(*each, given)[0] for each in ((found, ours), (expected, theirs))]
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-10)


def test_weights_start_from_the_generator_within_xavier_bounds():
    one, same, other = (built(GAT(2, 2), seed=seed) for seed in (0, 0, 1))
    for a, b, c in zip(one.parameters(), same.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b) and (a is one.users or a is one.items or not torch.equal(a, c))
    assert one.weights[0].shape == (2, 2) and one.weights[1].shape == (2, 4)
    assert one.weights[1].abs().max() <= np.sqrt(6 / 4)


def test_what_means_nothing_is_refused():
    with pytest.raises(ConfigError, match="embedding_dim = 2 must be a multiple of n_heads = 3"):
        built(GAT(n_heads=3))
