"""An encoder with its optimiser: it provides the vectors of a batch, and applies the gradients that the batch computes.

`RowLearner` is for encoders whose scored vectors are their parameters: a step reads and writes only the rows of the batch, also
where optimizer=adam moves all other rows. What else such an encoder learns has an Adam of its own. `GraphLearner`, in its own
file, is for polynomials of the graph. `DenseLearner` is for any encoder and device: a step updates every row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from rankbench.core.devices import compiled
from rankbench.fitting.checkpoints import part_of, prefixed
from rankbench.kernels.transfer import on_device
from rankbench.models.exchange import Exchange
from rankbench.models.spec import EmbeddingModel, vectors_of
from rankbench.training.adam import DenseAdam, RowAdam
from rankbench.training.batches import Rows
from rankbench.training.graph_learner import GraphLearner
from rankbench.training.params import TrainingParams
from rankbench.training.table_adam import TableAdam


class Learner(Protocol):
    def rows(self, users: np.ndarray, items: np.ndarray | None, read: np.ndarray | None = None) -> tuple[Rows, Rows, Tensor]:
        """Vectors of `users` and of `items` (sorted and unique; None: all), and the whole item table without gradient.

        In that table, the rows of `items` and those with unique indices `read` are up to date.
        """

    def learned(self) -> tuple[Rows, Rows]:
        """The learned vectors, before any layer, of the rows last asked for. Their gradients count in the next step."""

    def step(self, factor: float) -> None:
        """Update the parameters after the backward pass, with `factor` times the learning rate."""

    def of_users(self) -> list[Tensor]:
        """The tables (n_users, ...) whose rows only the worker that owns the user has; they may be overwritten."""

    def vectors(self) -> tuple[Tensor, Tensor]:
        """The vectors of all users and items that are scored in evaluation. The learner stays as it is."""

    def arrays(self) -> dict[str, np.ndarray]: ...

    def restore(self, arrays: dict[str, np.ndarray]) -> None: ...


def learner(encoder: EmbeddingModel, p: TrainingParams, unit_ball: bool, exchange: Exchange) -> Learner:
    """The learner that suits the encoder and the optimiser of `p`. With `unit_ball`, vectors are projected after each step."""
    decay = p.weight_decay if p.decay == "gradient" else 0.0
    if encoder.plain and p.optimizer == "row-adam":
        optimizers = [RowAdam(table, decay, p.adam_eps) for table in _tables(encoder)]
        return RowLearner(encoder, p.learning_rate, decay, exchange, optimizers)
    # The penalty and the projection act on idle rows in every step, so that these steps cannot be applied at once.
    if encoder.plain and compiled(encoder.users.device) and not decay and not unit_ball:
        optimizers = [TableAdam(table, p.adam_eps) for table in _tables(encoder)]
        return RowLearner(encoder, p.learning_rate, decay, exchange, optimizers)
    # Workers share the gradients of whole tables, and the projection changes tables behind the learner's back.
    if encoder.polynomial is not None and compiled(encoder.users.device) and exchange.size == 1 and not unit_ball:
        return GraphLearner(encoder, p.learning_rate, decay, p.adam_eps, p.precision)
    return DenseLearner(encoder, p.learning_rate, decay, exchange, p.adam_eps)


def _tables(encoder: EmbeddingModel) -> list[Tensor]:
    return [encoder.users.detach(), encoder.items.detach()]


class RowLearner:
    """`optimizers` are those of the encoder's users and items; `decay` acts on the gradient of its other parameters."""

    def __init__(
        self, encoder: EmbeddingModel, learning_rate: float, decay: float, exchange: Exchange, optimizers: Sequence[RowAdam]
    ):
        self.tables, self.optimizers, self.learning_rate = _tables(encoder), optimizers, learning_rate
        self.exchange = exchange
        self.touched: list[tuple[Rows, np.ndarray | None]] = []
        self.batch_items: np.ndarray | None = None
        others = [each for name, each in encoder.named_parameters() if name not in ("users", "items")]
        group = {"params": others, "lr": learning_rate, "weight_decay": decay}
        self.others = DenseAdam([group], optimizers[0].eps) if others else None

    def rows(self, users: np.ndarray, items: np.ndarray | None, read: np.ndarray | None = None) -> tuple[Rows, Rows, Tensor]:
        self.touched, self.batch_items = [], items
        for table, optimizer, ids in zip(self.tables, self.optimizers, (users, items), strict=True):
            if optimizer.moves_idle_rows and ids is not None and 2 * len(ids) > len(table):
                ids = None  # a step of all rows costs less than choosing most of them
            optimizer.read(ids)
            rows = Rows.of(table, ids)
            self.touched.append((Rows(rows.vectors.detach().requires_grad_(), rows.ids), ids))
        if read is not None:
            self.optimizers[1].read(read)
        return *self.learned(), self.tables[1]

    def learned(self) -> tuple[Rows, Rows]:
        (user_rows, _), (item_rows, _) = self.touched
        return user_rows, item_rows

    def step(self, factor: float) -> None:
        self._sum_shared()
        for optimizer, (rows, ids) in zip(self.optimizers, self.touched, strict=True):
            grad = rows.vectors.grad
            if grad is None:
                continue
            ids = on_device(np.arange(len(optimizer.table)) if ids is None else ids, grad.device)
            if len(grad) != len(ids):
                grad = grad.index_select(0, ids)
            optimizer.step(ids, grad, self.learning_rate * factor)
        if self.others:
            self.others.step(factor)

    def _sum_shared(self) -> None:
        """Sum the gradients of the items of the batch, and of what else is shared, over the workers."""
        if self.exchange.size == 1:
            return
        rows, _ = self.touched[1]
        grad = rows.vectors.grad
        if grad is not None and self.batch_items is not None and len(grad) > len(self.batch_items):
            # The other rows have gradient 0 at every worker.
            ids = on_device(self.batch_items, grad.device)
            part = grad.index_select(0, ids)
            self.exchange.sum([part])
            grad.index_copy_(0, ids, part)
        elif grad is not None:
            self.exchange.sum([grad])
        if self.others:
            self.exchange.sum(self.others.gradients())

    def of_users(self) -> list[Tensor]:
        optimizer = self.optimizers[0]
        tables = [optimizer.table.detach(), optimizer.first, optimizer.second]
        return tables + ([torch.from_numpy(optimizer.last)] if isinstance(optimizer, TableAdam) else [])

    def vectors(self) -> tuple[Tensor, Tensor]:
        users, items = (optimizer.settled() for optimizer in self.optimizers)
        return users, items

    def arrays(self) -> dict[str, np.ndarray]:
        return prefixed({part: each.arrays() for part, each in self._parts().items()}, ".")

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        for part, optimizer in self._parts().items():
            optimizer.restore(part_of(arrays, f"{part}."))

    def _parts(self) -> dict[str, RowAdam | DenseAdam]:
        users, items = self.optimizers
        return {"users": users, "items": items} | ({"others": self.others} if self.others else {})


class DenseLearner(DenseAdam):
    def __init__(self, encoder: EmbeddingModel, learning_rate: float, decay: float, exchange: Exchange, eps: float):
        super().__init__([{"params": list(encoder.parameters()), "lr": learning_rate, "weight_decay": decay}], eps)
        self.encoder, self.exchange = encoder, exchange

    def rows(self, users: np.ndarray, items: np.ndarray | None, read: np.ndarray | None = None) -> tuple[Rows, Rows, Tensor]:
        self.encoder.train()
        self.ids = users, items
        if items is not None and read is None:
            some = self.encoder.rows(np.concatenate([users, len(self.encoder.users) + items]))
            if some is not None:
                of_users, of_items = some.split([len(users), len(items)])
                return Rows(of_users, users), Rows(of_items, items), of_items.detach()
        U, V = vectors_of(self.encoder)
        if not compiled(U.device):
            return Rows(U, None), Rows(V, None), V.detach()  # a step moves all rows, and choosing some costs as much
        return Rows.of(U, users), Rows.of(V, items), V.detach()

    def learned(self) -> tuple[Rows, Rows]:
        U, V = self.encoder.users, self.encoder.items
        if not compiled(U.device):
            return Rows(U, None), Rows(V, None)
        return Rows.of(U, self.ids[0]), Rows.of(V, self.ids[1])

    def step(self, factor: float) -> None:
        own = self.encoder.users if self.encoder.plain else None
        self.exchange.sum(self.gradients(own))
        super().step(factor)

    def of_users(self) -> list[Tensor]:
        if not self.encoder.plain:
            return []
        state = self.optimizer.state.get(self.encoder.users, {})
        moments = [state[name] for name in ("exp_avg", "exp_avg_sq") if name in state]
        return [self.encoder.users.detach(), *moments]

    def vectors(self) -> tuple[Tensor, Tensor]:
        self.encoder.eval()
        return vectors_of(self.encoder)
