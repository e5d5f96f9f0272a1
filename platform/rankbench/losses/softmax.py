r"""Softmax and sampled softmax (Pu et al., ICML 2024, Eq. 1 to 3; Pu et al., arXiv 2025, Eq. 8 to 10).

$$\ell(u, i) = -o_{ui} + \log \sum_{j=1}^{N} e^{o_{uj}}$$ (softmax)

$$\ell(u, i) = -o_{ui} + \log\Bigl(e^{o_{ui}} + \sum_{k=1}^{n} e^{o_{uj_k} - \log(N q_k)}\Bigr)$$ (sampled-softmax)

paper o → `s.pos` (B,), `s.neg` (B, n), dot products; the sum over all N items → `s.catalogue`; log q → `s.logq`, `s.logq_pos`.
A user's other positives stay in both sums, as in the paper.
Differs from the paper: `correction` offers three variants that are in use. `nq_N` is the paper's: on average the n terms sum to
n/N of the full sum. `expected_count`, log(n q_k), makes that the full sum. `both` subtracts log q from the positive as well,
with neither n nor N. All three are biased, as the paper says of its own: the logarithm of an unbiased estimate is biased.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from rankbench.core.params import Choice, Params, param
from rankbench.losses.spec import NoParams, Scores, loss


@dataclass(frozen=True)
class SampledSoftmax(Params):
    correction: Literal["nq_N", "expected_count", "both"] = param(
        "nq_N", "correction of the scores for the proposal distribution q", Choice("nq_N", "expected_count", "both")
    )


@loss(
    "softmax",
    similarity="dot",
    sampler=None,
    needs=("catalogue",),
    over_catalogue=True,
    among_all="the positive must be one of them",
    by_products=True,
    families=("softmax",),
    title="Softmax over all items",
    source="Pu et al., ICML 2024, Eq. 1",
)
def softmax(s: Scores, p: NoParams) -> Tensor:
    return s.catalogue.logsumexp() - s.pos


@loss(
    "sampled-softmax",
    SampledSoftmax,
    similarity="dot",
    sampler="uniform-all",
    families=("softmax",),
    title="Sampled softmax, corrected for its proposal distribution",
    source="Pu et al., arXiv 2025, Eq. 9",
)
def sampled_softmax(s: Scores, p: SampledSoftmax) -> Tensor:
    pos, neg = s.pos, s.neg - s.logq
    if p.correction == "both":
        pos = pos - s.logq_pos
    else:
        neg = neg - math.log(s.n_items if p.correction == "nq_N" else s.neg.shape[1])
    return torch.logsumexp(torch.cat([pos[:, None], neg], dim=1), dim=1) - pos
