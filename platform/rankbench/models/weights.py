"""Starting values of the weights that an encoder learns beside its vectors."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def xavier(inputs: int, outputs: int, generator: torch.Generator, like: Tensor, copies: int = 1) -> nn.Parameter:
    """A parameter (inputs, copies · outputs) of the dtype of `like`: uniform on ±√(6/(inputs + outputs)).

    (Glorot and Bengio, AISTATS 2010, Eq. 16.) `generator` draws in double precision, so that fits in float32 and float64 start
    from the same numbers.
    """
    bound = math.sqrt(6 / (inputs + outputs))
    drawn = torch.rand(inputs, copies * outputs, generator=generator, dtype=torch.float64)
    return nn.Parameter(((2 * drawn - 1) * bound).to(like.dtype))
