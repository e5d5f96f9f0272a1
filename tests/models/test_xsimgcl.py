"""XSimGCL against a dense matrix, torch's own derivatives and the contrast written as a loop.

The noise has its own test, `kernels/test_orthant_noise.py`.
"""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from rankbench.core.errors import ConfigError
from rankbench.kernels.orthant_noise import with_noise
from rankbench.models.xsimgcl import XSimGCL, XSimGCLModel

N_USERS, N_ITEMS, WIDTH = 6, 9, 5
X = np.random.default_rng(0).integers(0, 2, (N_USERS, N_ITEMS))
X[4], X[:, 7] = 0, 0  # they have met nobody
USERS, ITEMS = torch.tensor([1, 3, 1, 0]), torch.tensor([2, 2, 5, 0])
P = XSimGCL(n_layers=3, noise=0.3, aux_weight=0.7, aux_tau=0.4, contrast_layer=2)


def vectors():
    rng = np.random.default_rng(1)
    return torch.tensor(rng.normal(size=(N_USERS, WIDTH))), torch.tensor(rng.normal(size=(N_ITEMS, WIDTH)))


def build(p, seed=0):
    return XSimGCLModel(sp.csr_array(X), p, *vectors(), torch.Generator().manual_seed(seed))


def dense(p, U, V, seed=None):
    """The final vectors, and those of the contrast layer; noise only with a `seed`."""
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    R = np.zeros(X.shape)
    for u, i in np.argwhere(X):
        R[u, i] = 1 / np.sqrt(X[u].sum() * X[:, i].sum())
    R = torch.tensor(R)
    layers = []
    for _ in range(p.n_layers):
        U, V = R @ V, R.T @ U
        if generator is not None:
            U, V = (with_noise(side, p.noise, generator) for side in (U, V))
        layers.append((U, V))
    final = [torch.stack(side).mean(dim=0) for side in zip(*layers, strict=True)]
    return final, layers[p.contrast_layer - 1]


def contrast_by_loops(p, finals, layers, groups=None):
    """With `groups`, the lists of nodes that are compared with one another, of users and of items."""
    total = 0
    for side, (final, layer, ids) in enumerate(zip(finals, layers, (USERS, ITEMS), strict=True)):
        n_nodes = len(set(ids.tolist()))
        for nodes in groups[side] if groups else [sorted(set(ids.tolist()))]:
            for a in nodes:
                cosines = torch.stack([torch.cosine_similarity(final[a], layer[b], dim=0) for b in nodes])
                own = torch.cosine_similarity(final[a], layer[a], dim=0)
                total = total - torch.log(torch.exp(own / p.aux_tau) / torch.exp(cosines / p.aux_tau).sum()) / n_nodes
    return p.aux_weight * total


@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.parametrize(("n_layers", "contrast_layer"), [(3, 2), (2, 1), (3, 3), (1, 1)])
@pytest.mark.parametrize("width", [5, 16])  # the latter is computed in blocks
def test_vectors_contrast_and_gradients_are_the_dense_ones(monkeypatch, noise, n_layers, contrast_layer, width):
    monkeypatch.setitem(globals(), "WIDTH", width)
    p = dataclasses.replace(P, noise=noise, n_layers=n_layers, contrast_layer=contrast_layer)
    weights = [torch.tensor(np.random.default_rng(2).normal(size=(n, WIDTH))) for n in X.shape]
    encoder = build(p, seed=5)
    found = encoder()
    own = encoder.own_loss(USERS, ITEMS)
    start = [side.requires_grad_() for side in vectors()]
    expected, layers = dense(p, *start, seed=5)
    wanted = contrast_by_loops(p, expected, layers)
    torch.testing.assert_close(list(found), expected)
    torch.testing.assert_close(own, wanted)
    (own + sum((w * side).sum() for w, side in zip(weights, found, strict=True))).backward()
    (wanted + sum((w * side).sum() for w, side in zip(weights, expected, strict=True))).backward()
    torch.testing.assert_close([encoder.users.grad, encoder.items.grad], [side.grad for side in start])
    assert torch.equal(torch.cat(encoder()), torch.cat(found)) == (noise == 0)  # each pass draws its own


def test_some_nodes_have_the_vectors_and_gradients_that_they_have_among_all(monkeypatch):
    monkeypatch.setitem(globals(), "WIDTH", 16)
    nodes, found = np.union1d(USERS, N_USERS + ITEMS), []
    for some in (False, True):
        encoder = build(P, seed=5)
        scored = encoder.rows(nodes) if some else torch.cat(encoder())[nodes]
        weight = torch.tensor(np.random.default_rng(2).normal(size=scored.shape))
        loss = encoder.own_loss(USERS, ITEMS) + (weight * scored).sum()
        found.append([scored, loss, *torch.autograd.grad(loss, [encoder.users, encoder.items])])
    torch.testing.assert_close(*found)


def test_a_contrast_of_groups_compares_the_nodes_of_each_group():
    p = dataclasses.replace(P, contrast_nodes=2)
    encoder = build(p, seed=5)
    finals, layers = dense(P, *vectors(), seed=5)
    encoder()
    groups, split = [], encoder.groups

    def noted(ids):
        parts = split(ids)
        groups.append([part.tolist() for part in parts])
        return parts

    encoder.groups = noted
    torch.testing.assert_close(encoder.own_loss(USERS, ITEMS).detach(), contrast_by_loops(p, finals, layers, groups))
    for ids, parts in zip((USERS, ITEMS), groups, strict=True):
        assert sorted(map(len, parts)) == [1, 2] and sorted(node for part in parts for node in part) == sorted(
            set(ids.tolist())
        )


def test_groups_are_drawn_anew_for_each_batch():
    encoder = build(dataclasses.replace(P, contrast_nodes=2))
    ids = torch.arange(9)
    drawn = {tuple(sorted(tuple(sorted(part.tolist())) for part in encoder.groups(ids))) for _ in range(4)}
    assert len(drawn) > 1
    assert build(dataclasses.replace(P, contrast_nodes=9)).groups(ids) == (ids,)


def test_scoring_has_no_noise_and_draws_none():
    encoder = build(P).eval()
    before = encoder.generator.get_state()
    found = encoder()
    torch.testing.assert_close([side.detach() for side in found], dense(P, *vectors())[0])
    assert torch.equal(encoder.generator.get_state(), before)
    assert not found[0][4].any() and not found[1][7].any()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"contrast_layer": 4}, "contrast_layer must be from 1 to n_layers = 3, got 4"),
        ({"contrast_layer": 0}, "contrast_layer must be from 1 to n_layers = 3, got 0"),
    ],
)
def test_what_means_nothing_is_refused(values, message):
    with pytest.raises(ConfigError, match=message):
        XSimGCL(**values)
