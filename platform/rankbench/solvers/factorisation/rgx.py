"""RG×, the interactive surrogate (journal version of RG², Eq. 14, 15, 17, 38 and 39), exactly and as its authors update it.

`rgx` is the loss as defined: RG² less Σ_u |I_u|/2N² (Σ_i y_ui)². An item step leaves Σ_i q_i = 0, since the targets of
every user sum to zero: the items' sum h solves (A − N B) h = Σ_i b_i = 0 with A − N B the ridge alone. From the first item step
on the new term is 0 for every user, and so are its part in the user step and its gradient: the iterates are RG²'s. So `rgx` is
RG² under another name, and a sweep runs one of the two.

`rgx-paper` is the update that was published. It puts ‖o_u‖² in the place of (Σ_i o_ui)², which takes a share from the quadratic
term of RG²: β of it, where the printed share 1/N is replaced, "for operability", by a hyperparameter.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace

from rankbench.core.config import param
from rankbench.core.errors import require
from rankbench.solvers.als.fit import Counts, als
from rankbench.solvers.als.params import ALSParams
from rankbench.solvers.als.quadratic_loss import QuadraticLoss
from rankbench.solvers.factorisation.rg2 import RG2, rg2


@dataclass(frozen=True)
class RGx(ALSParams):
    lam: float = param(0.01, "λ of the ridge, ≥ 0", "0 to 1")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.lam >= 0, f"lam must be >= 0, got {self.lam}")


@dataclass(frozen=True)
class RGxPaper(RGx):
    beta: float = param(0.01, "β, the share of the quadratic term that is taken away, 0 ≤ β < 1", "0 to 0.5")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.beta < 1, f"beta must lie in [0, 1), got {self.beta}: the loss has no minimum beyond")


@als(
    "rgx",
    RGx,
    identity=lambda p: ("rg2", dataclasses.astuple(RG2(**dataclasses.asdict(p)))),
    title="RG×, exactly: RG²",
    source="Pu et al., NDCG-consistent softmax approximation, Eq. 17",
    pace=0.6,
)
def rgx(n: Counts, p: RGx) -> QuadraticLoss:
    return rg2(n, RG2(lam=p.lam))


@als("rgx-paper", RGxPaper, title="RG× as published: RG² with less curvature", source="ibid., Eq. 38, 39", pace=0.6)
def rgx_paper(n: Counts, p: RGxPaper) -> QuadraticLoss:
    loss = rgx(n, p)
    return replace(loss, all_weight=(1 - p.beta) * loss.all_weight)
