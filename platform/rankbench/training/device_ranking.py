"""The best items of users by vectors on a PyTorch device: scores, without those that a user has seen, and the top k."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch

_SCORES = 1 << 26  # scores of a block of users


def top_k(
    U: np.ndarray, V: np.ndarray, users: np.ndarray, seen: sp.csr_array, k: int, device: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The items (m, k) int32 with the largest U[users] · V, and their scores (m, k), best first, for users (m,).

    Equal scores are in the order of the items. Items that are `seen`, (m, n_items) CSR, have the score -inf and the number -1.
    A device does not say which of equal scores it takes at the end of the list: the third array holds the rows where they are
    equal there, and rows with a score that is not a number. Scores can differ in the last digits from those of the CPU.
    """
    left, right = (torch.from_numpy(table).to(device) for table in (U, V))
    k = min(k, len(V))
    items, scores = np.full((len(users), k), -1, np.int32), np.full((len(users), k), -np.inf, V.dtype)
    unclear, size = np.zeros(len(users), bool), max(1, _SCORES // len(V))
    for start in range(0, len(users), size):
        part = slice(start, min(start + size, len(users)))
        table = left[torch.from_numpy(users[part].astype(np.int64)).to(device)] @ right.T
        own = seen[part]
        at = np.repeat(np.arange(own.shape[0]), np.diff(own.indptr)), own.indices.astype(np.int64)
        table[tuple(torch.from_numpy(index).to(device) for index in at)] = -torch.inf
        best, found = (each.cpu().numpy() for each in table.topk(min(k + 1, len(V)), dim=1))
        unclear[part] = np.isnan(best).any(axis=1)
        if best.shape[1] > k:
            unclear[part] |= (best[:, k] == best[:, k - 1]) & np.isfinite(best[:, k])
        best, found = best[:, :k], found[:, :k]
        order = np.lexsort((found, -best), axis=1)
        scores[part] = np.take_along_axis(best, order, axis=1)
        items[part] = np.where(np.isfinite(scores[part]), np.take_along_axis(found, order, axis=1), -1)
    return items, scores, np.flatnonzero(unclear)
