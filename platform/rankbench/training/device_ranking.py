"""The best items of users on a PyTorch device: scores, without those that a user has seen, and the top k."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from rankbench.fitting.pair_recommender import PairRecommender
from rankbench.fitting.recommenders import FactorRecommender

_SCORES = 1 << 26  # scores of a block of users, and elements of a layer of pairs

Scorer = Callable[[Tensor], Tensor]  # from users (m,) int64 to the scores (m, n_items)


@torch.no_grad()
def top_k(
    model: FactorRecommender | PairRecommender, users: np.ndarray, seen: sp.csr_array, k: int, device: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The items (m, k) int32 with the largest scores by the model, and their scores (m, k), best first, for users (m,).

    Equal scores are in the order of the items. Items that are `seen`, (m, n_items) CSR, have the score -inf and the number -1.
    A device does not say which of equal scores it takes at the end of the list: the third array holds the rows where they are
    equal there, and rows with a score that is not a number. Scores can differ in the last digits from those of the CPU.
    """
    scores_of = _network(model, device) if isinstance(model, PairRecommender) else _products(model, device)
    n_items = model.n_items
    k = min(k, n_items)
    items, scores = np.full((len(users), k), -1, np.int32), np.full((len(users), k), -np.inf, model.dtype)
    unclear, size = np.zeros(len(users), bool), max(1, _SCORES // n_items)
    for start in range(0, len(users), size):
        part = slice(start, min(start + size, len(users)))
        table = scores_of(torch.from_numpy(users[part].astype(np.int64)).to(device))
        own = seen[part]
        at = np.repeat(np.arange(own.shape[0]), np.diff(own.indptr)), own.indices.astype(np.int64)
        table[tuple(torch.from_numpy(index).to(device) for index in at)] = -torch.inf
        best, found = (each.cpu().numpy() for each in table.topk(min(k + 1, n_items), dim=1))
        unclear[part] = np.isnan(best).any(axis=1)
        if best.shape[1] > k:
            unclear[part] |= (best[:, k] == best[:, k - 1]) & np.isfinite(best[:, k])
        best, found = best[:, :k], found[:, :k]
        order = np.lexsort((found, -best), axis=1)
        scores[part] = np.take_along_axis(best, order, axis=1)
        items[part] = np.where(np.isfinite(scores[part]), np.take_along_axis(found, order, axis=1), -1)
    return items, scores, np.flatnonzero(unclear)


def _products(model: FactorRecommender, device: str) -> Scorer:
    left, right = (torch.from_numpy(table).to(device) for table in (model.U, model.V))
    return lambda users: left[users] @ right.T


def _network(model: PairRecommender, device: str) -> Scorer:
    """The formula of `PairRecommender`, for as many users at once as the device's memory is asked to hold."""
    arrays = (model.A, model.C, model.U, model.V, model.mix, model.direct)
    A, C, U, V, mix, direct = (torch.from_numpy(array).to(device) for array in arrays)
    layers = [tuple(torch.from_numpy(array).to(device) for array in layer) for layer in model.layers()]
    output, bias = torch.from_numpy(model.output[0]).to(device), model.output[1]
    at_once = max(1, _SCORES // (len(C) * max(model.widths.tolist())))

    def scores_of(users: Tensor) -> Tensor:
        z = A[users][:, None] + C + V @ (U[users][:, :, None] * mix)
        z = z.relu_()
        for W, b in layers:
            z = (z @ W).add_(b).relu_()
        return z @ output + (U[users] * direct) @ V.T + bias

    return lambda users: torch.cat([scores_of(part) for part in users.split(at_once)])
