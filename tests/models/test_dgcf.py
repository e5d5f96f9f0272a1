"""DGCF against worked numbers, and a restatement edge by edge that autograd differentiates."""

import pytest
import torch
from graphs import DIGITS, X, edge_list, random_interactions, random_tensor, tensor
from torch.nn.functional import normalize

from rankbench.core import devices
from rankbench.core.errors import ConfigError
from rankbench.models.dgcf import DGCF, DGCFModel, distance_correlations
from rankbench.models.routing import intent_shares

E = tensor([1, 0, 0.5, 0.5], [0.5, -1, 0, 1], [0, 1, 1, 0], [1, 1, -1, 0.5], [-1, 0.5, 0.5, -0.5])
FIRST_Y = tensor(
    [0.5, 1.20710678, 0.20710678, 0.25],
    [-0.20710678, 0.85355339, -0.14644661, -0.10355339],
    [0.70710678, 0, 0.35355339, 0.35355339],
    [0.75, -0.5, 0.25, 0.75],
    [0.35355339, -0.70710678, 0, 0.70710678],
)
LOGITS = tensor(
    [1.70362125, 1.79551310, 1.44812246, 1.57603351, 1.76159416, 1.63368464, 1.74495258, 1.82589302],
    [1.48586049, 0.86790285, 1.34037077, 0.85439353, 1.86105717, 1.77015295, 1.72251166, 1.76159416],
).T
SHARES = tensor(0.55422608, 0.71659021, 0.52691189, 0.67296805, 0.47515473, 0.46593577, 0.50560999, 0.51606918)
SECOND_Y = tensor(
    [0.64490813, 1.35813557, 0.39330897, 0.16363413],
    [-0.36718784, 0.91562367, -0.25874201, -0.00201859],
    [0.61147139, 0, 0.42419659, 0.42419659],
    [0.65347233, -0.46829026, 0.30835609, 0.85336],
    [0.32791031, -0.65582062, 0, 0.77770351],
)
SCORES = tensor([0.97942718, 0.93055704, -0.17155083], [0.01291883, 0.42608074, 0.01791446])


def built(p, X=X, users=E[:2], items=E[2:], seed=0):
    return DGCFModel(X, p, users.clone(), items.clone(), torch.Generator().manual_seed(seed))


def close(found, expected, atol=DIGITS):
    torch.testing.assert_close(found, expected, rtol=0, atol=atol)


@pytest.mark.parametrize("compiled", [True, False])
def test_worked_iterations(monkeypatch, compiled):
    monkeypatch.setattr(devices, "_COMPILED", compiled)
    encoder = built(DGCF(n_layers=1, n_intents=2))
    assert edge_list(encoder.edges) == [(0, 2), (0, 3), (1, 3), (1, 4), (2, 0), (3, 0), (3, 1), (4, 1)]
    close(encoder.propagated(E, None), FIRST_Y)
    _, logits = built(DGCF(n_layers=1, n_intents=2, n_routings=1)).layer(E, None, last=False)
    close(logits, LOGITS)
    close(intent_shares(encoder.edges, logits)[0][:, 0], SHARES)
    close(encoder.propagated(E, logits), SECOND_Y)
    users, items = encoder()
    close(users @ items.T, SCORES)


def test_worked_independence_of_two_chunks():
    final = torch.cat(built(DGCF(n_layers=1, n_intents=2))())
    (found,) = distance_correlations(final.chunk(2, dim=1))
    close(found, torch.tensor(0.68032176, dtype=torch.float64))
    close(found * 2 / 6, torch.tensor(0.22677392, dtype=torch.float64))


def edge_by_edge(p, edges, vectors):
    """All layers: a loop over edges for each iteration, with the update of S in all of them."""
    K, pairs = p.n_intents, edge_list(edges)
    x, layers = vectors, [vectors]
    S = [torch.ones(K, dtype=x.dtype) for _ in pairs]
    for _ in range(p.n_layers):
        chunks = [row.unflatten(0, (K, -1)) for row in x]
        for _ in range(p.n_routings):
            P = [s.softmax(dim=0) for s in S]
            D = [sum((P[e] for e, (h, _) in enumerate(pairs) if h == node), torch.full((K,), 1e-300)) for node in range(len(x))]
            Y = [torch.zeros_like(chunks[0]) for _ in x]
            for e, (h, t) in enumerate(pairs):
                Y[h] = Y[h] + (P[e] / torch.sqrt(D[h] * D[t]))[:, None] * chunks[t]
            S = [
                S[e] + (normalize(Y[h], dim=1) * torch.tanh(normalize(chunks[t], dim=1))).sum(dim=1)
                for e, (h, t) in enumerate(pairs)
            ]
        x = torch.stack([y.flatten() for y in Y])
        layers.append(x)
    return torch.stack(layers).mean(dim=0)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(("n_layers", "n_intents", "n_routings"), [(1, 1, 1), (1, 4, 2), (2, 2, 2), (3, 4, 1), (2, 8, 3)])
def test_vectors_and_gradients_are_those_of_a_loop_over_edges(monkeypatch, n_layers, n_intents, n_routings, compiled):
    monkeypatch.setattr(devices, "_COMPILED", compiled)
    p, met = DGCF(n_layers, n_intents, n_routings), random_interactions(1, 5, 6, 0.5)
    encoder = built(p, met, random_tensor(2, 5, 8), random_tensor(3, 6, 8))
    found, given = torch.cat(encoder()), random_tensor(4, 11, 8)
    start = torch.cat([encoder.users, encoder.items]).detach().requires_grad_()
    expected = edge_by_edge(p, encoder.edges, start)
    close(found, expected, 1e-12)
    found.backward(given)
    expected.backward(given)
    close(torch.cat([encoder.users.grad, encoder.items.grad]), start.grad, 1e-11)


def correlation_by_definition(x, y):
    """dCor of two samples of rows, by sums over all pairs."""

    def centred(z):
        a = torch.stack([torch.stack([torch.sqrt(((p - q) ** 2).sum() + 1e-8) for q in z]) for p in z])
        return a - a.mean(0, keepdim=True) - a.mean(1, keepdim=True) + a.mean()

    A, B = centred(x), centred(y)
    covariance = [torch.sqrt((one * other).mean() + 1e-8) for one, other in ((A, B), (A, A), (B, B))]
    return covariance[0] / (torch.sqrt(covariance[1] * covariance[2]) + 1e-10)


def test_own_loss_is_the_distance_correlation_of_the_rows_drawn():
    p, met = DGCF(n_layers=1, n_intents=4, cor_weight=0.3), random_interactions(10, 30, 20)
    encoder = built(p, met, random_tensor(11, 30, 8), random_tensor(12, 20, 8), seed=3)
    final, batch = encoder(), torch.zeros(met.nnz // 4, dtype=torch.int64)
    found = encoder.own_loss(batch, batch)
    wanted, generator = -(-30 * len(batch) // met.nnz), torch.Generator().manual_seed(3)
    rows = torch.cat([side[torch.randperm(len(side), generator=generator)[:wanted]] for side in final])
    assert 2 * wanted == len(rows) and 6 <= wanted <= 8
    chunks = rows.chunk(4, dim=1)
    expected = sum(correlation_by_definition(chunks[k], chunks[k + 1]) for k in range(3)) * 0.3 * 2 / 20
    close(found, expected, 1e-10)
    gradients = [torch.autograd.grad(loss, encoder.users, retain_graph=True)[0] for loss in (found, expected)]
    close(*gradients, 1e-9)


def test_there_is_no_own_loss_without_weight_a_second_intent_or_training():
    ids = torch.tensor([0])
    for p in (DGCF(n_intents=2, cor_weight=0.0), DGCF(n_intents=1)):
        encoder = built(p)
        encoder()
        assert encoder.own_loss(ids, ids) is None
    encoder = built(DGCF(n_intents=2)).eval()
    before = encoder.generator.get_state()
    encoder()
    assert encoder.own_loss(ids, ids) is None and torch.equal(before, encoder.generator.get_state())


def test_what_means_nothing_is_refused():
    with pytest.raises(ConfigError, match="embedding_dim = 4 must be a multiple of n_intents = 3"):
        built(DGCF(n_intents=3))
