"""Small graphs for the tests of encoders: that of the worked numbers, and random ones with nodes that have no interactions."""

import numpy as np
import scipy.sparse as sp
import torch

# Users 0 and 1, items 0, 1 and 2; as nodes 0 and 1, 2, 3 and 4.
X = sp.csr_array(np.array([[1, 1, 0], [0, 1, 1]]))
U = torch.tensor([[1.0, 0.0], [0.5, -1.0]], dtype=torch.float64)
V = torch.tensor([[0.0, 1.0], [1.0, 1.0], [-1.0, 0.5]], dtype=torch.float64)
DIGITS = 6e-9  # printed numbers have eight digits


def tensor(*rows) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def random_interactions(seed, n_users, n_items, density=0.3):
    """0/1 CSR; a user and an item have no interactions."""
    met = (np.random.default_rng(seed).random((n_users, n_items)) < density).astype(np.int8)
    met[n_users // 2], met[:, n_items // 3] = 0, 0
    return sp.csr_array(met)


def random_tensor(seed, *shape, dtype=torch.float64):
    return torch.tensor(np.random.default_rng(seed).normal(size=shape), dtype=dtype)


def edge_list(edges):
    """(head, tail) of every edge, in the order of the edges."""
    indptr, tail = edges.heads.indptr, edges.heads.ends
    return [(head, int(tail[e])) for head in range(edges.n_nodes) for e in range(indptr[head], indptr[head + 1])]
