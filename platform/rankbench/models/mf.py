r"""MF, matrix factorisation: one learned vector per user and per item.

$$y_{ui} = p_u \cdot q_i$$

Differs from the paper: no mean and no biases, as in the papers of the losses.
"""

from __future__ import annotations

from dataclasses import dataclass

import scipy.sparse as sp
import torch
from torch import Tensor

from rankbench.models.spec import EmbeddingModel, model


@dataclass(frozen=True)
class MF:
    pass


class MFModel(EmbeddingModel):
    plain = True

    def forward(self) -> tuple[Tensor, Tensor]:
        return self.users, self.items


@model("mf", MF, title="MF: matrix factorisation", source="Koren et al., Computer 2009")
def mf(X: sp.csr_array, p: MF, users: Tensor, items: Tensor, generator: torch.Generator) -> MFModel:
    return MFModel(users, items)
