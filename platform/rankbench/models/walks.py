"""The nodes that random walks visit most, as neighbours with weights (Ying et al., KDD 2018).

A walk starts at a node and takes hops in pairs, to a neighbour and on to one of its neighbours, so that it visits nodes of its
own side: users from a user, items from an item. After each pair it ends with probability ½. A start is not its own neighbour.

Hops are drawn by a key and their position, so neither threads nor their order change a walk.
"""

from __future__ import annotations

import numpy as np

from rankbench.core.compiler import numba
from rankbench.core.splitmix import below, bits
from rankbench.models.edges import Edges


def most_visited(edges: Edges, key: int, n_walks: int, n_kept: int) -> tuple[Edges, np.ndarray]:
    """Walk `n_walks` times from each node along `edges`, whose reverse edges are among them, with `key` in [0, 2^64).

    Returns the edges h ← t from the at most `n_kept` nodes t that the walks of h visited most, ties to the lower id, and their
    shares of these visits, float64 (nnz,). A node whose walks visit no other node has none.
    """
    n_kept = min(n_kept, edges.n_nodes)
    nodes = np.empty((edges.n_nodes, n_kept), np.int32)
    counts, kept = np.empty((edges.n_nodes, n_kept), np.int64), np.empty(edges.n_nodes, np.int64)
    edges.heads.each(_most_visited, edges.heads.indptr, edges.heads.ends, np.uint64(key), n_walks, nodes, counts, kept)
    chosen = np.arange(n_kept) < kept[:, None]
    totals = np.where(chosen, counts, 0).sum(axis=1)
    shares = counts[chosen] / np.repeat(totals, kept)
    return Edges(np.concatenate([[0], np.cumsum(kept)]), nodes[chosen]), shares


@numba.njit(nogil=True, cache=True)
def walk(indptr, ends, key, start, n_walks, visits, seen):
    """Add the visits of all walks from `start` to `visits` (n_nodes,), its own included, and write the nodes in the order of
    their first visits to `seen` (n_nodes,). Returns the number of these.
    """
    n_seen = 0
    if indptr[start] == indptr[start + 1]:
        return n_seen
    own_key, position = bits(key, start), 0
    for _ in range(n_walks):
        node, random = start, np.uint64(0)
        while True:
            for _hop in range(2):
                random = bits(own_key, position)
                position += 1
                node = ends[indptr[node] + below(random, indptr[node + 1] - indptr[node])]
            if visits[node] == 0:
                seen[n_seen] = node
                n_seen += 1
            visits[node] += 1
            if random & np.uint64(1):  # `below` reads the upper 32 bits
                break
    return n_seen


@numba.njit(nogil=True, cache=True)
def _most_visited(begin, end, indptr, ends, key, n_walks, nodes, counts, kept):
    n_nodes = len(indptr) - 1
    visits, seen = np.zeros(n_nodes, np.int64), np.empty(n_nodes, np.int32)
    for start in range(begin, end):
        n_seen = walk(indptr, ends, key, start, n_walks, visits, seen)
        others = seen[:n_seen]
        order = np.empty(n_seen, np.int64)
        n_others = 0
        for node in others:
            if node != start:
                # In ascending order: more visits first, then the lower id.
                order[n_others] = (-visits[node] << 32) + node
                n_others += 1
        order = np.sort(order[:n_others])
        kept[start] = min(n_others, nodes.shape[1])
        for rank in range(kept[start]):
            node = order[rank] & 0xFFFFFFFF
            nodes[start, rank], counts[start, rank] = node, visits[node]
        for node in others:
            visits[node] = 0
