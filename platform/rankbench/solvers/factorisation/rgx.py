"""RG×, the interactive surrogate (journal version of RG², Eq. 14, 15, 17, 38 and 39), exactly and as its authors update it.

`rgx` is the loss as defined: RG² minus Σ_u |I_u|/2N² (Σ_i y_ui)². After an item step Σ_i q_i = 0, because the targets of every
user sum to zero: the items' sum h solves (A − N B) h = Σ_i b_i = 0, where A − N B is the ridge. From the first item step on the
new term is therefore 0 for every user, and so are its gradient and its part in the user step: the iterates are those of RG².
Thus `rgx` is RG² under another name, and a sweep runs only one of the two.

`rgx-paper` is the published update. It replaces (Σ_i o_ui)² by ‖o_u‖², which removes a fraction β of the quadratic term of RG²;
the printed fraction 1/N is replaced, "for operability", by a hyperparameter.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace

from rankbench.core.params import Range, param
from rankbench.solvers.als.fit import Counts, als
from rankbench.solvers.als.params import ALSParams
from rankbench.solvers.als.quadratic_loss import QuadraticLoss
from rankbench.solvers.factorisation.rg2 import RG2, rg2


@dataclass(frozen=True)
class RGx(ALSParams):
    lam: float = param(0.01, "ridge λ", Range(0, 1, log=True), ge=0)


@dataclass(frozen=True)
class RGxPaper(RGx):
    beta: float = param(0.01, "fraction β of the quadratic term that is removed", Range(0, 0.5), ge=0, lt=1)


@als(
    "rgx",
    RGx,
    identity=lambda p: ("rg2", dataclasses.astuple(RG2(**dataclasses.asdict(p)))),
    families=("als", "rg"),
    title="RG×, exactly as defined: equal to RG²",
    source="Pu et al., NDCG-consistent softmax approximation, Eq. 17",
    pace=0.6,
)
def rgx(n: Counts, p: RGx) -> QuadraticLoss:
    return rg2(n, RG2(lam=p.lam))


@als(
    "rgx-paper",
    RGxPaper,
    families=("als", "rg"),
    title="RG× as published: RG² with a smaller quadratic term",
    source="Pu et al., NDCG-consistent softmax approximation, Eq. 38, 39",
    pace=0.6,
)
def rgx_paper(n: Counts, p: RGxPaper) -> QuadraticLoss:
    loss = rgx(n, p)
    return replace(loss, all_weight=(1 - p.beta) * loss.all_weight)
