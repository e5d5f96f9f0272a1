"""What every model solved by alternating least squares can be told, beside its own loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rankbench.core.config import param
from rankbench.core.errors import require
from rankbench.fitting.stopping import Stopping


@dataclass(frozen=True)
class ALSParams(Stopping):
    embedding_dim: int = param(64, "length of the vectors of users and items, > 0", "16 to 512")
    iterations: int = param(16, "rounds of an item step and a user step, > 0", "1 to 50")
    solver: Literal["exact", "cg"] = param("exact", "of rows with a system of their own: cg takes a few steps", "exact")
    cg_steps: int = param(3, "steps of conjugate gradients a row, where solver = cg", "3")
    init_scale: float = param(0.1, "items start normal with this deviation over √embedding_dim, > 0", "0.01 to 1")
    tolerance: float = param(0.0, "stop when an iteration lowers the loss by less than this share of it; 0: never", "0")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.embedding_dim > 0, f"embedding_dim must be > 0, got {self.embedding_dim}")
        require(self.iterations > 0, f"iterations must be > 0, got {self.iterations}")
        require(self.cg_steps > 0, f"cg_steps must be > 0, got {self.cg_steps}")
        require(self.init_scale > 0, f"init_scale must be > 0, got {self.init_scale}")
        require(self.tolerance >= 0, f"tolerance must be >= 0, got {self.tolerance}")
