"""Tensors on the CPU that say they are not: they take the path that an accelerator takes, and its numbers can be read."""

from types import SimpleNamespace

import torch


class Elsewhere(torch.Tensor):
    device = SimpleNamespace(type="elsewhere")


def elsewhere(tensor: torch.Tensor, requires_grad: bool = False) -> torch.Tensor:
    """A copy of `tensor`, a leaf of its own."""
    return tensor.detach().clone().as_subclass(Elsewhere).requires_grad_(requires_grad)


def here(tensor: torch.Tensor):
    return tensor.detach().as_subclass(torch.Tensor).numpy()
