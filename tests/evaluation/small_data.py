"""Small data: sets of items as a matrix or a holdout, lists of items as a ranking, and a matrix that is read by columns."""

import numpy as np
import scipy.sparse as sp

from rankbench.data.splits import Holdout
from rankbench.evaluation.ranking import Ranking


def csr(rows, n_items):
    dense = np.zeros((len(rows), n_items), np.float32)
    for row, items in enumerate(rows):
        dense[row, sorted(items)] = 1
    return sp.csr_array(dense)


def held_out(targets, n_items, histories=None, item_counts=None):
    """The holdout of users with these targets, who know nothing unless it is said."""
    known = csr(histories or [()] * len(targets), n_items)
    return Holdout(np.arange(len(targets), dtype=np.int32), known, csr(targets, n_items), item_counts=item_counts)


def ranking(lists, depth):
    items = np.full((len(lists), depth), -1, np.int32)
    for row, items_of_user in enumerate(lists):
        items[row, : len(items_of_user)] = items_of_user
    rows = np.arange(len(lists))
    return Ranking(rows, rows.astype(np.int32), items, np.zeros(items.shape))


class Columns:
    """A matrix in memory that hands out columns as a TiledMatrix does, and counts them."""

    def __init__(self, C):
        self.C, self.dtype, self.handed = C, C.dtype, []

    def columns(self, start, stop):
        self.handed.append((start, stop))
        return self.C[:, start:stop].copy()
