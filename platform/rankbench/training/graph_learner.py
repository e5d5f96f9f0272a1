"""Gradient steps on vectors that a polynomial of the graph propagates, as LightGCN's, without a gradient of whole tables.

With the learned vectors E, the scored ones are Σ_l c_l Â^l E (`models/propagation.py`), and a batch scores the rows S of its
users and items. A step has L products with Â for the values and L for the gradients:

    values       h_L = c_L E,  h_l = c_l E + Â h_{l+1};  of h_0, only the rows S
    gradients    g_L = c_L G, which has only the rows S,  g_l = c_l G + Â g_{l+1};  g_0 is the gradient of E

The last product of the values reads the neighbours of S alone, and the first one of the gradients the rows of G alone. The last
one of the gradients gives each row to Adam at once, which also writes its row of c_L E for the next step, so the gradient is
never in memory. Adam moves every row, as torch.optim.Adam does. With precision=bfloat16, the tables h and g have 16 bits; their
sums, E and Adam's moments have 32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import cycle

import numpy as np
import torch
from torch import Tensor

from rankbench.kernels.graph_rows import adam_rows, chosen_rows, few_gradients, first_rows, next_gradients, next_rows
from rankbench.kernels.neighbours import Precision, empty_table
from rankbench.kernels.parallel import even_blocks, over
from rankbench.models.spec import EmbeddingModel
from rankbench.training.adam import BETAS
from rankbench.training.batches import Rows


class GraphLearner:
    """The learner of an encoder with the weights `polynomial` of its graph's layers, for one worker on the CPU.

    `decay` is added to the gradient. `precision` is that of the rows that nodes read from their neighbours.
    """

    def __init__(self, encoder: EmbeddingModel, learning_rate: float, decay: float, eps: float, precision: Precision):
        assert encoder.graph is not None and encoder.polynomial is not None
        self.encoder, self.graph, self.learning_rate = encoder, encoder.graph, learning_rate
        self.decay, self.eps, self.steps = decay, eps, 0
        self.E = [encoder.users.detach().numpy(), encoder.items.detach().numpy()]
        self.moments = [(np.zeros_like(table), np.zeros_like(table)) for table in self.E]
        number, width = self.E[0].dtype, self.E[0].shape[1]
        self.weights = [number.type(weight) for weight in encoder.polynomial]
        self.scale = self.graph.scale.numpy()[:, 0].astype(number)
        self.degree, self.blocks = np.diff(self.graph.indptr), self.graph.blocks(width)
        self.most = self.degree.max(initial=0)
        n = self.graph.n_nodes
        self.start, self.few, *self.spare = (empty_table(n + 1, width, number, precision) for _ in range(4))
        self.started = False  # whether `start` has the rows of the current E
        self.place = np.zeros(n, np.int32)  # of nodes in the batch: the number of their row, from 1 on

    def rows(self, users: np.ndarray, items: np.ndarray | None, read: np.ndarray | None = None) -> tuple[Rows, Rows, Tensor]:
        graph, n_items = self.graph, len(self.E[1])
        if read is not None or items is None or 2 * len(items) > n_items:
            items = None
        self.nodes = np.concatenate([users, graph.n_users + (np.arange(n_items) if items is None else items)])
        E = [(table,) for table in self.E]
        whole = [(*block, 1) for block in self.blocks]
        if not self.started:
            graph.over(whole, first_rows, E, self.scale, self.weights[-1], self.start)
            self.started = True
        given, h = (graph.indptr, graph.indices, self.scale), self.start
        for weight, table in zip(self.weights[-2:0:-1], cycle(self.spare), strict=False):
            graph.over(whole, next_rows, E, *given, weight, h, table)
            h = table
        out = np.empty((len(self.nodes), self.E[0].shape[1]), self.E[0].dtype)
        for side, (begin, end) in enumerate(((0, len(users)), (len(users), len(out)))):
            own = side * graph.n_users, self.E[side]
            over(self._parts(begin, end), chosen_rows, *own, self.nodes, out, *given, self.weights[0], h)
        self.scored = [torch.from_numpy(part).requires_grad_() for part in (out[: len(users)], out[len(users) :])]
        self.read: list[Tensor] = []
        return Rows(self.scored[0], users), Rows(self.scored[1], items), self.scored[1].detach()

    def learned(self) -> tuple[Rows, Rows]:
        users, items = np.split(self.nodes, [len(self.scored[0])])
        items = items - self.graph.n_users
        self.read = [torch.from_numpy(table[ids]).requires_grad_() for table, ids in zip(self.E, (users, items), strict=True)]
        return Rows(self.read[0], users), Rows(self.read[1], items)

    def step(self, factor: float) -> None:
        if all(each.grad is None for each in (*self.scored, *self.read)):
            return  # Adam leaves alone what has no gradient: the model rests while an adversary learns
        graph, G = self.graph, _gradient(self.scored)
        own = self.weights[0] * G
        if self.read:
            own += _gradient(self.read)
        self.place[self.nodes] = np.arange(1, len(G) + 1, dtype=np.int32)
        over(self._parts(0, len(G)), few_gradients, self.nodes, self.scale, self.weights[-1], G, self.few)
        given, h = (graph.indptr, graph.indices, self.scale, self.place, self.most), self.few
        for weight, table in zip(self.weights[-2:0:-1], cycle(self.spare), strict=False):
            over(self.blocks, next_gradients, *given, h is self.few, h, weight, G, table)
            h = table
        self.steps += 1
        correction = math.sqrt(1 - BETAS[1] ** self.steps)
        rate = self.learning_rate * factor * correction / (1 - BETAS[0] ** self.steps)
        adam = tuple(G.dtype.type(x) for x in (1 - BETAS[0], 1 - BETAS[1], rate, self.eps * correction, self.decay))
        sides = [(table, *moments) for table, moments in zip(self.E, self.moments, strict=True)]
        graph.over(self.blocks, adam_rows, sides, *given, h is self.few, h, own, self.weights[-1], adam, self.start)
        self.place[self.nodes] = 0

    def _parts(self, begin: int, end: int) -> list[tuple[int, int]]:
        """Ranges of the batch's nodes from `begin` to `end`, of about equal work."""
        reads = self.E[0].shape[1] * (self.degree[self.nodes[begin:end]] + 2)
        blocks = even_blocks(np.concatenate([[0], np.cumsum(reads)]))
        return [(begin + first, begin + last) for first, last in blocks]

    def of_users(self) -> list[Tensor]:
        return []

    def vectors(self) -> tuple[Tensor, Tensor]:
        self.encoder.eval()
        return self.encoder()

    def arrays(self) -> dict[str, np.ndarray]:
        """Those of `DenseAdam`, by which several workers go on."""
        found = {}
        for number, (first, second) in enumerate(self.moments if self.steps else ()):
            own = {"step": np.array(self.steps, np.float32), "exp_avg": first, "exp_avg_sq": second}
            found |= {f"{number}.{name}": array for name, array in own.items()}
        return found

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        for number, moments in enumerate(self.moments):
            for name, moment in zip(("exp_avg", "exp_avg_sq"), moments, strict=True):
                moment[:] = arrays.get(f"{number}.{name}", 0)
        self.steps, self.started = int(arrays.get("0.step", 0)), False


def _gradient(tensors: Sequence[Tensor]) -> np.ndarray:
    """The gradients of the rows of users and items, one after another; 0 where a loss does not read them."""
    return np.concatenate(
        [np.zeros(each.shape, each.detach().numpy().dtype) if each.grad is None else each.grad.numpy() for each in tensors]
    )
