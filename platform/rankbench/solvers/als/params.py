"""Parameters that all methods fitted by alternating least squares share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rankbench.core.params import Fixed, Range, param
from rankbench.fitting.stopping import Stopping


@dataclass(frozen=True)
class ALSParams(Stopping):
    embedding_dim: int = param(64, "dimension of the user and item vectors", Range(16, 512), gt=0)
    iterations: int = param(16, "number of iterations, each of an item step and a user step", Range(1, 50), gt=0)
    solver: Literal["exact", "cg", "subspace"] = param(
        "exact",
        "solver of each row's system: exact, a few steps of conjugate gradients (cg), or one sweep over subspaces as in iALS++",
        Fixed("exact"),
    )
    cg_steps: int = param(
        3, "number of conjugate-gradient steps per row, for solver = cg", Fixed(3), used=lambda p: p.solver == "cg", gt=0
    )
    subspace_dim: Literal[16, 32, 64, 128] = param(
        16, "dimensions that are solved for at a time, for solver = subspace", Fixed(16), used=lambda p: p.solver == "subspace"
    )
    init_scale: float = param(
        0.1, "items start normal with standard deviation init_scale / √embedding_dim", Range(0.01, 1), gt=0
    )
    tolerance: float = param(
        0.0, "stop when an iteration lowers the loss by a smaller fraction than this; 0: never stop early", Fixed(0), ge=0
    )

    @property
    def effort(self) -> int:
        """What `HalfStep.solve` is told: the steps of cg, or the dimension of subspaces."""
        return self.subspace_dim if self.solver == "subspace" else self.cg_steps
