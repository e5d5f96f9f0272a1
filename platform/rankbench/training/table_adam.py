"""Adam on a whole table at the cost of the rows that a batch uses: a row's idle steps are applied at once when it is next read.

A row without gradient still moves under torch.optim.Adam, because its momentum fades slowly. If a row has moments m and v after
step a, its j-th idle step has moments β1ʲ m and β2ʲ v and subtracts

    w_{a+j} rʲ m / (√v + ξ_j),    r = β1/√β2,    ξ_j = ε √(1 − β2^(a+j)) β2^(−j/2),    w_s = rate_s √(1 − β2ˢ) / (1 − β1ˢ)

The sum over j is a mean of 1/(√v + ξ) under weights that are the same for all numbers of all rows with the same a. It is
computed by the Gaussian rule of two nodes that has the same four moments of ξ, which backward recurrences give for every a:

    M_k(a) = r β2^(−k/2) (w_{a+1} e_{a+1}ᵏ + M_k(a+1)),    e_s = ε √(1 − β2ˢ),    M_k(now) = 0

In the first steps ξ varies too much for this rule, and the sum is computed term by term. Terms beyond `_WINDOW` are below 1e-13
of the first. The tests compare tables with those of torch.optim.Adam.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from rankbench.core.compiler import numba
from rankbench.kernels.parallel import in_parallel
from rankbench.training.adam import BETAS, EPS, RowAdam

_WINDOW = 300  # idle steps after which a row no longer moves: r^300 is 2e-14
_EARLY = 128  # steps from which on the rule of two nodes replaces the sum


class TableAdam(RowAdam):
    """The optimiser of one table (n, d) on the CPU. Rows must be `read` before they are used, and stepped after that.

    Rows that were not read since other rows were stepped are behind: `settled` gives the table as torch.optim.Adam has it.
    """

    moves_idle_rows = True

    def __init__(self, table: Tensor, eps: float = EPS):
        super().__init__(table, eps=eps)
        self.last = np.zeros(len(table), np.int64)  # step of each row's moments; 0: never used, so it does not move
        self.rates = np.zeros(0)  # learning rate of each step
        self.nodes = np.zeros((1, 4))  # for each step a: two nodes and their weights, for the idle steps from a until now

    def read(self, rows: np.ndarray | None) -> None:
        """Bring rows with unique indices `rows` (r,) int64 up to date; None: all rows."""
        self._advance(self.table.detach().numpy(), self.first.numpy(), self.second.numpy(), self.last, rows)

    def settled(self) -> Tensor:
        """A copy of the table, (n, d), with all rows up to date. This object stays as it is."""
        table, first, second = (tensor.detach().numpy().copy() for tensor in (self.table, self.first, self.second))
        self._advance(table, first, second, self.last.copy(), None)
        return torch.from_numpy(table)

    def step(self, rows: Tensor, grad: Tensor, learning_rate: float) -> None:
        """Update the rows with indices `rows` (r,) int64, which were read, by their gradients `grad` (r, d)."""
        super().step(rows, grad, learning_rate)
        self.last[rows.numpy()] = self.steps
        if self.steps > len(self.rates):
            self._reserve(2 * self.steps + 1000)
        self.rates[self.steps - 1] = learning_rate
        _update_nodes(self.nodes, self.rates, self.steps, *BETAS, self.eps)

    def arrays(self) -> dict[str, np.ndarray]:
        return super().arrays() | {"last": self.last, "rates": self.rates[: self.steps]}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        super().restore(arrays)
        self.last[:] = arrays["last"]
        self.rates, self.nodes = np.zeros(0), np.zeros((1, 4))
        self._reserve(self.steps + 1000)
        self.rates[: self.steps] = arrays["rates"]
        # The nodes of an old step stay as they were when it left the window.
        for step in range(1, self.steps + 1):
            _update_nodes(self.nodes, self.rates, step, *BETAS, self.eps)

    def _reserve(self, steps: int) -> None:
        rates, nodes = np.zeros(steps), np.zeros((steps + 1, 4))
        rates[: len(self.rates)], nodes[: len(self.nodes)] = self.rates, self.nodes
        self.rates, self.nodes = rates, nodes

    def _advance(self, table, first, second, last, rows) -> None:
        rows = np.arange(len(table)) if rows is None else rows
        arrays = table, first, second, last, rows, self.nodes, self.rates, self.steps
        in_parallel(_catch_up, len(rows), len(rows) * table.shape[1], *arrays, *BETAS, self.eps)


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _update_nodes(nodes, rates, now, b1, b2, eps):
    """Nodes and weights of each step of the window before `now`, from the moments of ξ, scaled by ε."""
    r, q = b1 / math.sqrt(b2), 1 / math.sqrt(b2)
    m0 = m1 = m2 = m3 = 0.0
    for a in range(now - 1, max(0, now - _WINDOW - 1), -1):
        s = a + 1
        root = math.sqrt(1 - b2**s)
        w = rates[s - 1] * root / (1 - b1**s)
        m0 = r * (w + m0)
        m1 = r * q * (w * root + m1)
        m2 = r * q * q * (w * root * root + m2)
        m3 = r * q * q * q * (w * root * root * root + m3)
        if m0 <= 0:
            nodes[a, :] = 0
            continue
        mean = m1 / m0
        variance = max(m2 / m0 - mean * mean, 0.0)
        deviation = math.sqrt(variance)
        if deviation <= 1e-7 * mean:
            nodes[a, 0] = nodes[a, 1] = eps * mean
            nodes[a, 2], nodes[a, 3] = m0, 0.0
            continue
        third = m3 / m0 - 3 * mean * variance - mean * mean * mean
        skew = third / (variance * deviation)
        spread = math.sqrt(1 + skew * skew / 4)
        nodes[a, 0] = eps * (mean + deviation * (skew / 2 - spread))
        nodes[a, 1] = eps * (mean + deviation * (skew / 2 + spread))
        nodes[a, 2] = m0 * (0.5 + skew / (4 * spread))
        nodes[a, 3] = m0 * (0.5 - skew / (4 * spread))
    nodes[now, :] = 0


@numba.njit(nogil=True, cache=True, fastmath=True, error_model="numpy")
def _catch_up(table, first, second, last, rows, nodes, rates, now, b1, b2, eps, start, stop):
    one = table[0, 0] * 0 + 1  # so that all arithmetic is in the table's dtype
    for i in range(start, stop):
        row = rows[i]
        a = last[row]
        idle = now - a
        if a == 0 or idle == 0:
            continue
        w, m, v = table[row], first[row], second[row]
        if a < _EARLY:
            r, e = b1 / math.sqrt(b2), eps
            for j in range(1, min(idle, _WINDOW) + 1):
                root = math.sqrt(1 - b2 ** (a + j))
                weight = one * (rates[a + j - 1] * root / (1 - b1 ** (a + j)) * r**j)
                xi = one * (e * root / math.sqrt(b2) ** j)
                for t in range(len(w)):
                    w[t] -= weight * m[t] / (np.sqrt(v[t]) + xi)
        else:
            low, high = one * nodes[a, 0], one * nodes[a, 1]
            weight_low, weight_high = one * nodes[a, 2], one * nodes[a, 3]
            for t in range(len(w)):
                root_v = np.sqrt(v[t])
                w[t] -= m[t] * (weight_low / (root_v + low) + weight_high / (root_v + high))
        fade_first, fade_second = one * b1**idle, one * b2**idle
        for t in range(len(w)):
            m[t] *= fade_first
            v[t] *= fade_second
        last[row] = now
