"""Distance correlation of samples, as a penalty (Székely, Rizzo and Bakirov, 2007; in the form of DGCF's program).

    a_ij = √(|x_i − x_j|² + ε),    A = a − row means − column means + mean,    dCov(A, B) = √(max(mean(A ∘ B), 0) + ε)
    dCor(x, y) = dCov(A, B) / (√(dCov(A, A) dCov(B, B)) + 1e-10),    ε = 1e-8

ε stands inside the roots, where it keeps their gradients finite: the distance of a row to itself is 1e-4.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_EPS, _LEAST = 1e-8, 1e-10


def distance_correlations(pairs: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """dCor of both samples of each pair, (len(pairs),). A sample (n, c) that is part of several pairs is centred once."""
    samples = {id(sample): sample for pair in pairs for sample in pair}
    centred = {key: _centred(sample) for key, sample in samples.items()}
    own = {key: _covariance(A, A) for key, A in centred.items()}
    return torch.stack(
        [_covariance(centred[id(x)], centred[id(y)]) / ((own[id(x)] * own[id(y)]).sqrt() + _LEAST) for x, y in pairs]
    )


def _centred(x: Tensor) -> Tensor:
    squares = x.square().sum(dim=1)
    distance = ((squares[:, None] - 2 * x @ x.T + squares).clamp(min=0) + _EPS).sqrt()
    return distance - distance.mean(dim=0) - distance.mean(dim=1, keepdim=True) + distance.mean()


def _covariance(A: Tensor, B: Tensor) -> Tensor:
    return ((A * B).mean().clamp(min=0) + _EPS).sqrt()
