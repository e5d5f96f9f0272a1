"""LightGCN against its message passing, written as loops."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from numpy.testing import assert_allclose

from rankbench.models.lightgcn import LightGCN, LightGCNModel

X = np.array([[1, 1, 0, 0, 1], [0, 1, 0, 0, 0], [0, 0, 0, 0, 0], [1, 1, 1, 0, 1]])  # user 2 and item 3 have met nobody


def message_passing(X, U, V, n_layers):
    """Eq. 3 for each node in turn, then the mean of the layers 0 to n_layers."""
    n_of_user, n_of_item = X.sum(axis=1), X.sum(axis=0)
    layers = [(U, V)]
    for _ in range(n_layers):
        u, v = layers[-1]
        new_u, new_v = np.zeros_like(u), np.zeros_like(v)
        for a in range(X.shape[0]):
            for i in np.flatnonzero(X[a]):
                new_u[a] += v[i] / np.sqrt(n_of_user[a] * n_of_item[i])
                new_v[i] += u[a] / np.sqrt(n_of_user[a] * n_of_item[i])
        layers.append((new_u, new_v))
    return [np.mean(side, axis=0) for side in zip(*layers, strict=True)]


@pytest.mark.parametrize("n_layers", [1, 2, 3, 4])
def test_lightgcn_is_the_mean_of_its_layers(n_layers):
    rng = np.random.default_rng(0)
    U, V = rng.normal(size=(4, 6)), rng.normal(size=(5, 6))
    start = torch.tensor(U), torch.tensor(V)
    encoder = LightGCNModel(sp.csr_array(X), LightGCN(n_layers), *start, torch.Generator())
    for found, expected in zip(encoder(), message_passing(X, U, V, n_layers), strict=True):
        assert_allclose(found.detach(), expected, atol=1e-12)
    assert torch.equal(torch.cat(encoder()), torch.cat(encoder.eval()()))
    assert not encoder.plain and encoder.own_loss(torch.tensor([0]), torch.tensor([1])) is None
