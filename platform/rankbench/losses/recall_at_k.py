r"""RS@K, a smooth Recall@K (Patel et al., CVPR 2022), as Zhang et al. (WWW 2026) adapt it to recommendation.

$$\ell(u, i) = 1 - \sigma\Bigl(\frac{K - R_{ui}}{\tau_2}\Bigr), \qquad
R_{ui} = 1 + \sum_{k=1}^{n} \sigma\Bigl(\frac{s_{uj_k} - s_{ui}}{\tau_1}\Bigr)$$ (recall-at-k)

$$
\ell(u, i) = 1 - \sigma\Bigl(\frac{K - R_{ui}}{\tau_2}\Bigr), \qquad
R_{ui} = 1 + \sum_{j \ne i} \sigma\Bigl(\frac{s_{uj} - s_{ui}}{\tau_1}\Bigr) \text{ over the whole catalogue}
$$ (recall-at-k-catalogue)

paper $s_{ui}$ → `s.pos` (B,), $s_{uj}$ → `s.neg` (B, n); $\tau_1, \tau_2$ → `tau1`, `tau2`
Differs from the paper: each row has one positive, there is one K, and R counts only the sampled negatives, although K is a rank
among all N items; `scale_rank` counts each negative (N − 1)/n times, which no paper does. `recall-at-k-catalogue` has the rank
among all items; the sampled loss saturates once no sampled item is above i.
Where the rank is more than some 10 τ₂ away from K, the loss is flat and a positive does not learn. From random vectors, most
ranks are about half of the number of compared items, so τ₂ must be about a twentieth of that number: with τ₂ up to 5, the range
of Zhang et al., the loss hardly trains.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from rankbench.core.params import Choice, Params, Range, param
from rankbench.losses.spec import Scores, loss


@dataclass(frozen=True)
class CatalogueRecallAtK(Params):
    K: int = param(20, "length K of the list", Choice(10, 20, 50), ge=1)
    tau1: float = param(0.1, "temperature τ1 of score differences", Range(0.01, 0.3), gt=0)
    tau2: float = param(500.0, "temperature τ2 of the rank, about a twentieth of the number of items", Range(1, 2000), gt=0)


@dataclass(frozen=True)
class RecallAtK(CatalogueRecallAtK):
    tau2: float = param(5.0, "temperature τ2 of the rank, about a twentieth of n_negatives", Range(1, 200), gt=0)
    scale_rank: bool = param(
        False, "whether to estimate the rank among all items instead of the sampled ones", Choice(True, False)
    )


@loss(
    "recall-at-k",
    RecallAtK,
    similarity="cosine",
    families=("top-k",),
    title="RS@K: smooth Recall@K",
    source="Patel et al., CVPR 2022; Zhang et al., WWW 2026",
    pace=3.0,
)
def recall_at_k(s: Scores, p: RecallAtK) -> Tensor:
    above = s.others.sum_sigmoid(s.pos / p.tau1, p.tau1)
    if p.scale_rank:
        above = above * (s.n_items - 1) / s.others.n
    return _miss(above, p)


@loss(
    "recall-at-k-catalogue",
    CatalogueRecallAtK,
    similarity="cosine",
    sampler=None,
    needs=("catalogue",),
    families=("top-k",),
    title="RS@K: smooth Recall@K with the rank among all items",
    source="Patel et al., CVPR 2022",
    pace=2.0,
)
def recall_at_k_catalogue(s: Scores, p: CatalogueRecallAtK) -> Tensor:
    # The sum includes the positive itself, as σ(0).
    above = s.catalogue.sum_sigmoid(s.pos / p.tau1, p.tau1) - 0.5
    return _miss(above, p)


def _miss(above: Tensor, p: CatalogueRecallAtK) -> Tensor:
    """1 − σ((K − 1 − above) / τ2). The gradient of a sigmoid in float32 is 0 from σ(17) on, which rounds to 1; that of the
    exponential of its logarithm is accurate on both sides.
    """
    return torch.exp(logsigmoid((1 + above - p.K) / p.tau2))
