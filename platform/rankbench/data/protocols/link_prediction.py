"""Link prediction: pages are both users and items; some links of each source page are hidden (RG×, section 5.1).

Sources and targets share one set of ids. Self-links are dropped, and a source is not a candidate in its own ranking, unless
`self_candidate` is set. Links are directed: the reverse of a hidden link may be in train.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from rankbench.core.rng import stream
from rankbench.data.interactions import Interactions, positions_of
from rankbench.data.protocols.spec import DROPPED, TEST, TRAIN, VALID, SplitSpec, protocol, rounded, shuffled


class LinkPrediction(SplitSpec):
    protocol: Literal["link-prediction"] = "link-prediction"
    valid: float = Field(0.1, gt=0, lt=1, description="share of each source's links")
    test: float = Field(0.1, gt=0, lt=1, description="share of each source's links")
    self_candidate: bool = False


@protocol("link-prediction", LinkPrediction, self_excluded=lambda p: not p.self_candidate)
def link_prediction(data: Interactions, p: LinkPrediction) -> np.ndarray:
    """Random shares of each source's links, rounded half up, test first; at least one link stays in train."""
    labels = np.full(len(data), TRAIN, np.int8)
    if not p.self_candidate:
        labels[positions_of(data.users, data.items)[data.user] == data.item] = DROPPED
    rows = np.flatnonzero(labels == TRAIN)
    order, rank, counts = shuffled(data.user[rows], stream(p.seed, "split", "links"))
    n = counts[data.user[rows[order]]]
    n_test = np.minimum(rounded(p.test, n), n - 1)
    n_valid = np.minimum(rounded(p.valid, n), n - 1 - n_test)
    labels[rows[order[rank < n_test + n_valid]]] = VALID
    labels[rows[order[rank < n_test]]] = TEST
    return labels
