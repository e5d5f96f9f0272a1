r"""Debiased losses (Jin and Li, arXiv 2023, Eq. 6, 7, 20 to 22; InfoNCE after Chuang et al., NeurIPS 2020).

Among items drawn from the whole catalogue, a fraction $\tau^+$ are positives of the user. Their contribution is subtracted,
estimated by the mean over m positives k of the user:

$$\ell(u, i) = \tau^+ (1 - y_{ui})^2
  + \lambda \Bigl(\frac{1}{n} \sum_j y_{uj}^2 - \frac{\tau^+}{m} \sum_k y_{uk}^2\Bigr)$$ (debiased-mse)

$$
\ell(u, i) = \tau^+ (1 - y_{ui})
  + \lambda \Bigl(\frac{1}{n} \sum_j [y_{uj} - \varepsilon]_+ - \frac{\tau^+}{m} \sum_k [y_{uk} - \varepsilon]_+\Bigr)
$$ (debiased-ccl)

$$
\ell(u, i) = -\frac{y_{ui}}{t} + \log\bigl(e^{y_{ui}/t} + \lambda f\bigr), \qquad
f = \max\biggl(\frac{\frac{1}{n} \sum_j e^{y_{uj}/t} - \frac{\tau^+}{m} \sum_k e^{y_{uk}/t}}{1 - \tau^+},\; e^{-1/t}\biggr)
$$ (debiased-infonce)

paper y → `s.pos` (B,), `s.neg` (B, n) drawn from all items, `s.extra_positives` (B, m), cosines, for MSE dot products;
λ → `lam`; ε → `margin`; t → `tau`; m → `n_positives`; $\tau^+$ → `class_prior(s, p)`.
With positive_weight = one, the first $\tau^+$ is 1. As printed, an interaction counts in proportion to the activity of its
user. MSE and CCL can be negative, and MSE has no minimum for λ > c/(c − 1), $c = N \tau^+/n_u$.
Differs from the paper: its two formulas for $\tau^+$, $(n_u + \text{extra})/N$ and $(1 + a) n_u/N$, are combined and capped at
0.999. The floor of f is the smallest value of $e^{y/t}$, as the text says; Eq. 7 prints the largest, $e^{1/t}$, with which no
negative would count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from rankbench.core.params import Choice, Fixed, Params, Range, param
from rankbench.losses.spec import Scores, loss

PAPER = "Jin and Li, arXiv 2023"
BECAUSE = "it subtracts the part of the user's own items itself"
debiased_loss = partial(
    loss,
    over_catalogue=True,
    sampler="uniform-all",
    only_uniform=BECAUSE,
    needs=("extra_positives",),
    unused=lambda p, objective: ("n_positives",) if objective == "catalogue" else (),
)


@dataclass(frozen=True)
class Debiased(Params):
    lam: float = param(0.5, "weight λ of the negatives", Range(0.1, 1, published=False), ge=0)
    a: float = param(0.0, "unseen positives per known positive, counted by the prior τ⁺", Choice(0, 0.5, 1, 2, 5), ge=0)
    extra: float = param(0.0, "unseen positives per user, counted by the prior τ⁺", Fixed("not published"), ge=0)
    n_positives: int = param(
        10, "number m of the user's positives drawn per row; objective = catalogue takes all", Choice(10, 20, 50), ge=1
    )


@dataclass(frozen=True)
class DebiasedMSE(Debiased):
    positive_weight: Literal["prior", "one"] = param(
        "prior",
        "weight of a positive: τ⁺, as in the formulas, by which active users have most of the loss; or 1",
        Choice("prior", "one"),
    )


@dataclass(frozen=True)
class DebiasedCCL(DebiasedMSE):
    lam: float = param(0.4, "weight λ of the negatives", Range(0.1, 1), ge=0)
    margin: float = param(0.9, "cosine ε above which a negative contributes", Range(0, 0.9), ge=0, lt=1)


@dataclass(frozen=True)
class DebiasedInfoNCE(Debiased):
    lam: float = param(500.0, "weight λ of the negatives; typically about n_negatives", Range(100, 1000), gt=0)
    tau: float = param(0.2, "temperature t that divides the cosine", Range(0.05, 0.5, published=False), gt=0)


def class_prior(s: Scores, p: Debiased) -> Tensor:
    """τ⁺ (B,): the estimated fraction of all items that are positives of the row's user, in [0, 0.999]."""
    expected = (1 + p.a) * s.n_interactions.to(s.pos.dtype) + p.extra
    return (expected / s.n_items).clamp(0, 0.999)


def _positives(prior: Tensor, p: DebiasedMSE) -> Tensor | float:
    return prior if p.positive_weight == "prior" else 1.0


@debiased_loss(
    "debiased-mse",
    DebiasedMSE,
    similarity="dot",
    families=("pointwise", "debiased"),
    title="Debiased MSE: positives subtracted from the negatives",
    source=f"{PAPER}, §3.2",
)
def debiased_mse(s: Scores, p: DebiasedMSE) -> Tensor:
    prior = class_prior(s, p)
    negative = s.others.moments()[1] - prior * s.own.mean_square()
    return _positives(prior, p) * (1 - s.pos).square() + p.lam * negative


@debiased_loss(
    "debiased-ccl",
    DebiasedCCL,
    similarity="cosine",
    only_because="its margin is a cosine",
    families=("pointwise", "debiased"),
    title="Debiased CCL: positives subtracted from the negatives",
    source=f"{PAPER}, Eq. 22",
)
def debiased_ccl(s: Scores, p: DebiasedCCL) -> Tensor:
    prior = class_prior(s, p)
    negative = s.others.mean_relu(p.margin) - prior * s.own.mean_relu(p.margin)
    return _positives(prior, p) * (1 - s.pos) + p.lam * negative


@debiased_loss(
    "debiased-infonce",
    DebiasedInfoNCE,
    similarity="cosine",
    only_because="its floor is the smallest value of a cosine",
    families=("softmax", "debiased"),
    title="Debiased InfoNCE: positives subtracted from the negatives",
    source=f"{PAPER}, Eq. 7; Chuang et al., NeurIPS 2020",
)
def debiased_infonce(s: Scores, p: DebiasedInfoNCE) -> Tensor:
    prior = class_prior(s, p)
    everything = s.others.logsumexp(p.tau) - torch.as_tensor(s.others.n).to(s.pos).log()
    own = s.own.logmeanexp(p.tau)
    top = torch.maximum(everything, own).detach()
    mass = (everything - top).exp() - prior * (own - top).exp()
    # e^(−1/t) underflows float32 at small t, but its logarithm does not; the inner `where` keeps log(0) out of the gradient.
    some = mass > 0
    log_f = torch.where(some, top + (torch.where(some, mass, 1) / (1 - prior)).log(), -1 / p.tau).clamp(min=-1 / p.tau)
    return -logsigmoid(s.pos / p.tau - log_f - math.log(p.lam))
