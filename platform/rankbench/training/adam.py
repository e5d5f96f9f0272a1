"""Adam by PyTorch on whole tables, or only on the rows that a batch uses; other rows then keep their vectors and moments.

Kingma and Ba, ICLR 2015. For the rows of a batch, moments and step are those of torch.optim.Adam; the bias correction uses the
table's number of steps, as in torch.optim.SparseAdam. If a batch uses 2,000 of 40,000 items, a dense step would read and write
twenty times as much. The tests compare both classes with PyTorch's own optimisers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rankbench.core.compiler import numba
from rankbench.core.devices import compiled
from rankbench.kernels.parallel import in_parallel

BETAS = (0.9, 0.999)
EPS = 1e-8


class RowAdam:
    """The optimiser of one table (n, d), updated in place. Weight decay (L2) is added to the gradient of the updated rows."""

    moves_idle_rows = False

    def __init__(self, table: Tensor, weight_decay: float = 0.0, eps: float = EPS):
        self.table, self.weight_decay, self.eps = table, weight_decay, eps
        self.first, self.second = torch.zeros_like(table), torch.zeros_like(table)
        self.steps = 0

    def read(self, rows: np.ndarray | None) -> None:
        """Bring rows with unique indices `rows` (r,) int64 up to date; None: all rows. Here they always are."""

    def settled(self) -> Tensor:
        """The table with all rows up to date."""
        return self.table

    @torch.no_grad()
    def step(self, rows: Tensor, grad: Tensor, learning_rate: float) -> None:
        """Update the rows with indices `rows` (r,) int64, which are unique, by their gradients `grad` (r, d)."""
        self.steps += 1
        b1, b2 = BETAS
        rate = learning_rate * math.sqrt(1 - b2**self.steps) / (1 - b1**self.steps)
        eps = self.eps * math.sqrt(1 - b2**self.steps)
        if compiled(self.table.device):
            tables = [tensor.detach().numpy() for tensor in (self.table, self.first, self.second)]
            number = self.table.numpy().dtype.type
            numbers = [number(x) for x in (1 - b1, 1 - b2, rate, eps, self.weight_decay)]
            in_parallel(_step, len(rows), grad.numel(), *tables, rows.numpy(), grad.contiguous().numpy(), *numbers)
            return
        grad = grad + self.weight_decay * self.table[rows]
        first = self.first[rows].lerp_(grad, 1 - b1)
        second = self.second[rows].mul_(b2).addcmul_(grad, grad, value=1 - b2)
        self.first[rows], self.second[rows] = first, second
        self.table[rows] -= rate * first / (second.sqrt() + eps)

    def arrays(self) -> dict[str, np.ndarray]:
        moments = {"first": self.first.cpu().numpy(), "second": self.second.cpu().numpy()}
        return moments | {"steps": np.array(self.steps)}

    @torch.no_grad()
    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        self.first.copy_(torch.from_numpy(arrays["first"]))
        self.second.copy_(torch.from_numpy(arrays["second"]))
        self.steps = int(arrays["steps"])


class DenseAdam:
    """torch.optim.Adam over parameter groups, with its state as named arrays."""

    def __init__(self, groups: list[dict[str, Any]], eps: float = EPS):
        # One pass over each table, on processors and GPUs: PyTorch's default takes a pass per operation on processors.
        self.optimizer = torch.optim.Adam(groups, betas=BETAS, eps=eps, fused=True)
        self.rates = [group["lr"] for group in self.optimizer.param_groups]

    def gradients(self, without: Tensor | None = None) -> list[Tensor]:
        """The gradients of the parameters that have one, in order, except that of `without`."""
        parameters = [each for group in self.optimizer.param_groups for each in group["params"] if each is not without]
        return [each.grad for each in parameters if each.grad is not None]

    def step(self, factor: float) -> None:
        """Update the parameters with `factor` times each group's own learning rate, and clear the gradients."""
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * factor
        self.optimizer.step()
        self.optimizer.zero_grad()

    def arrays(self) -> dict[str, np.ndarray]:
        state = self.optimizer.state_dict()["state"]
        return {f"{key}.{name}": value.cpu().numpy() for key, values in state.items() for name, value in values.items()}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        state: dict[int, dict[str, Tensor]] = {}
        for label, array in arrays.items():
            key, _, name = label.partition(".")
            # The optimiser writes into its tensors: the arrays stay those of the caller.
            state.setdefault(int(key), {})[name] = torch.from_numpy(np.array(array))
        self.optimizer.load_state_dict(self.optimizer.state_dict() | {"state": state})


# With Python's error model every division is checked for zero, and the loop over a vector is not vectorised.
@numba.njit(nogil=True, cache=True, fastmath=True, error_model="numpy")
def _step(table, first, second, rows, grad, c1, c2, rate, eps, decay, start, stop):
    """c1 and c2 are one minus the two decay rates. All numbers have the table's dtype, so that none is converted to float64."""
    for r in range(start, stop):
        w, m, v, given = table[rows[r]], first[rows[r]], second[rows[r]], grad[r]
        for t in range(len(w)):
            g = given[t] + decay * w[t]
            m[t] += (g - m[t]) * c1
            v[t] += (g * g - v[t]) * c2
            w[t] -= rate * m[t] / (np.sqrt(v[t]) + eps)
