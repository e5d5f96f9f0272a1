"""Training by gradient steps: each epoch passes over the shuffled interactions in batches.

Every random stream is named by its purpose and epoch, so a fit that continues from a checkpoint draws the same numbers. Users
without interactions keep their initial vectors, apart from the momentum and decay of optimizer=adam. Items without interactions
can be negatives like all others.

Several workers can train one model: each draws the whole batch, computes the rows whose users it owns, and exchanges the
gradients of what is shared (`models/exchange.py`). The steps are those of one worker, up to the rounding of sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from rankbench.core.devices import compiled
from rankbench.core.errors import require
from rankbench.core.rng import stream
from rankbench.fitting.checkpoints import part_of, prefixed
from rankbench.fitting.method import require_interactions
from rankbench.fitting.recommenders import FactorRecommender, Recommender
from rankbench.kernels.rows import squared_lengths
from rankbench.kernels.transfer import on_device
from rankbench.losses.spec import Loss, LossState, Sizes, row_losses
from rankbench.models.exchange import Exchange, owned
from rankbench.models.spec import EmbeddingModel, PairModel
from rankbench.models.spec import registered as encoders
from rankbench.solvers.factorisation.ials import fitted_ials
from rankbench.training.adam import DenseAdam
from rankbench.training.batches import Batch, Rows, touched_items
from rankbench.training.draws import drawn_positives
from rankbench.training.graph_learner import GraphLearner
from rankbench.training.learner import learner
from rankbench.training.memory import keep_freed
from rankbench.training.negatives import Negatives, NegativeSampler, require_other_items
from rankbench.training.params import TrainedParams
from rankbench.training.row_scores import unit
from rankbench.training.schedule import Schedule
from rankbench.training.scoring import OwnItemsThere, catalogue_scores_of, own_items, scores_of
from rankbench.training.subnormals import flushed


class Trainer:
    """One fit of `loss` with parameters `given` on X (n_users, n_items), 0/1 CSR.

    With an `exchange`, this is one of several workers, whose methods are all called together. Raises DataError if X is empty.
    """

    def __init__(
        self,
        X: sp.csr_array,
        given: TrainedParams,
        loss: Loss,
        seed: int,
        dtype: type,
        device: str,
        exchange: Exchange | None = None,
    ):
        require_interactions(X)
        keep_freed()
        self.exchange = exchange or Exchange()
        self.given, self.p = given, given.training
        p = self.p
        loss = replace(loss, similarity=p.similarity_for(loss.similarity))
        self.X, self.loss, self.seed, self.device = X, loss, seed, torch.device(device)
        self.degree = np.diff(X.indptr)
        self.users = np.repeat(np.arange(X.shape[0]), self.degree)
        self.items = X.indices.astype(np.int64)
        self.encoder = self._encoder(np.dtype(dtype)).to(self.device)
        if self.encoder.graph is not None:
            self.encoder.graph.exchange = self.exchange
        self.rate = self._rate_of_a_step()
        self.learner = learner(self.encoder, p, loss.unit_ball, self.exchange)
        if p.precision != "float32" and not p.scores_by_products(loss):
            problem = f"model={p.model} reads rows of 16 bits in float32, with one worker on the CPU, and never in a unit ball"
            reads = isinstance(self.learner, GraphLearner) and np.dtype(dtype) == np.float32
            require(reads, f"precision={p.precision}: {problem}; leave it out")
        self.items_from = p.sampler_for(loss.sampler)
        self.sampler = self._sampler()
        self.state: LossState | None = None
        if loss.state:
            sizes = Sizes(*X.shape, self.encoder.width)
            self.state = loss.state(given.loss, sizes, self._generator("state")).to(self.device, self.encoder.users.dtype)
            self.state_adam = DenseAdam(self.state.groups(p.learning_rate))
        self.n_active = int(np.count_nonzero(self.degree))
        share = len(self.users) / max(1, self.n_active)
        # The weights of interactions have mean 1 and the same sum for each user.
        self.weight = share / np.maximum(self.degree, 1) if p.reduction == "user" else None
        lists = "all_positives" in loss.needs and p.objective == "sampled" and not compiled(self.device)
        self.own_there = OwnItemsThere(X, self.device) if lists else None

    def _encoder(self, dtype: np.dtype) -> EmbeddingModel:
        p = self.p

        def drawn(name: str, n: int) -> np.ndarray:
            scale = math.sqrt(2 / (n + p.embedding_dim)) if p.init == "xavier" else p.init_scale
            return scale * stream(self.seed, "init", name).standard_normal((n, p.embedding_dim), np.float32)

        if p.init == "ials":
            start = fitted_ials(self.X, p.embedding_dim, self.seed)
        else:
            start = drawn("users", self.X.shape[0]), drawn("items", self.X.shape[1])
        tables = [torch.from_numpy(table.astype(dtype)) for table in start]
        if self.loss.unit_ball:
            tables = [_into_ball(table) for table in tables]
        self.noise = self._generator("noise")
        return encoders().get(p.model).build(self.X, self.given.encoder, *tables, self.noise)

    def _rate_of_a_step(self) -> float:
        """The factor of the learning rate that the size of a step gives, where p.reference_batch says what the rate is for.

        The noise of a mean over B interactions falls with √B. Adam divides by the size of the gradient, noise included, so that
        its steps may grow with √B; a scale of the loss does not change them.
        """
        p = self.p
        if not p.reference_batch:
            return 1.0
        active = max(1, np.count_nonzero(self.degree))
        rows = p.users_per_step * len(self.users) / active if p.objective == "catalogue" else p.batch_size
        return math.sqrt(min(rows, len(self.users)) / p.reference_batch)

    def _sampler(self) -> NegativeSampler | None:
        p, kind = self.p, self.items_from
        if p.objective == "catalogue" and kind == "uniform-other":
            require_other_items(self.X)
        if self.loss.sampler is None or p.objective == "catalogue":
            return None
        return NegativeSampler(self.X, kind, p.n_negatives, p.shares_negatives, p.popularity_power, self.device)

    def _generator(self, *purpose: str | int) -> torch.Generator:
        return torch.Generator().manual_seed(int(stream(self.seed, "torch", *purpose).integers(2**62)))

    def epoch(self, number: int, factor: float | Callable[[int, int], float]) -> float:
        """Train for one epoch with `factor` times the learning rate, or with factor(step, steps) in each step.

        Returns the mean loss over interactions.
        """
        self.noise.set_state(self._generator("noise", number).get_state())
        self.encoder.begin_epoch(number)
        if self.state:
            self.state.begin_epoch(number)
        # The sum stays on the device: to read it in each step would wait for the step.
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        parts = [*self._chosen(number)]
        with flushed():
            for count, (chosen, there) in enumerate(zip(parts, self._there(parts), strict=True)):
                batch = self._batch(number, count, self.users[chosen], self.items[chosen], there)
                if batch is not None:
                    own_factor = factor(count, len(parts)) if callable(factor) else factor
                    total += self._step(batch, self.rate * own_factor) * len(chosen)
        self.exchange.sum([total])
        return float(total) / len(self.users)

    def scheduled_epoch(self, number: int, schedule: Schedule) -> float:
        """Train for one epoch with the rates of a schedule. Returns the mean loss over interactions."""
        return self.epoch(number, partial(schedule.factor, number))

    def close(self) -> None:
        """Nothing is left behind by a fit in this process."""

    def _chosen(self, epoch: int) -> Iterator[np.ndarray]:
        """Positions of the interactions of each batch of an epoch."""
        p, random = self.p, stream(self.seed, "order", epoch)
        if p.objective == "sampled":
            order = random.permutation(len(self.users))
            starts = [*range(0, len(order), p.batch_size)]
            if self.sampler and self.sampler.kind == "in-batch" and len(starts) > 1 and len(order) - starts[-1] < 3:
                starts.pop()  # the rows of the batch are its negatives: one or two would have none, or a single one
            yield from np.split(order, starts[1:])
            return
        order = random.permutation(np.flatnonzero(self.degree))
        for start in range(0, len(order), p.users_per_step):
            users = np.sort(order[start : start + p.users_per_step])
            stop, n = self.X.indptr[users + 1], self.degree[users]
            yield np.arange(n.sum()) + np.repeat(stop - n.cumsum(), n)

    def _there(self, parts: list[np.ndarray]) -> Iterable[tuple[Tensor, Tensor] | None]:
        """The users and items of each batch of an epoch, copied to the device at once."""
        if compiled(self.device):
            return [None] * len(parts)
        order, sizes = np.concatenate(parts), [len(part) for part in parts]
        users, items = (on_device(side[order], self.device).split(sizes) for side in (self.users, self.items))
        return zip(users, items, strict=True)

    def _batch(
        self, epoch: int, count: int, users: np.ndarray, items: np.ndarray, there: tuple[Tensor, Tensor] | None = None
    ) -> Batch | None:
        negatives = self.sampler and self.sampler.draw(self.seed, epoch, count, users, items, there and there[0])
        in_batch = self.sampler is not None and self.sampler.kind == "in-batch"
        if in_batch and len(users) < 2:
            return None
        extra = None
        if "extra_positives" in self.loss.needs and self.p.objective == "sampled":
            extra = drawn_positives(self.seed, epoch, count, self.X, users, self.given.loss.n_positives)
        return Batch(users, items, negatives, extra, in_batch, there=there)

    def _step(self, batch: Batch, factor: float) -> Tensor:
        """Make a step. Returns the mean loss of the batch, or this worker's share of it."""
        p, loss = self.p, self.loss
        catalogue = p.objective == "catalogue"
        # Elsewhere a step of all rows costs as much as choosing some, unless the others must not move.
        some = compiled(self.device) or (p.optimizer == "row-adam" and self.encoder.plain)
        whole = catalogue or "catalogue" in loss.needs or not some
        touched = touched_items(batch, self.X.shape[1], whole)
        own = read = by_row = None
        if "all_positives" in loss.needs and not catalogue and self.own_there is None:
            # The items of the whole batch's users, so that workers bring the same items up to date.
            read = np.unique(own_items(self.X, batch.users)[1].numpy())
        part, share = self._own_part(batch)
        users, items, every_item = self.learner.rows(np.unique(part.users), touched, read)
        if catalogue:
            left_out = self.items_from == "uniform-other"
            s = catalogue_scores_of(loss, part, users, items.vectors, self.X, left_out, p.temperature)
        else:
            if read is not None:
                own = own_items(self.X, part.users)
            elif self.own_there is not None:
                own = self.own_there.of(part)
            by_row = self.encoder.row_vectors(*part.on(self.device))
            rows = None if by_row is None else self.encoder.on_direction(unit(by_row, self.loss.similarity))
            pairs = self.encoder if isinstance(self.encoder, PairModel) else None
            s = scores_of(loss, part, users, items, self.X, every_item, own, p.precision, p.temperature, rows, pairs)
        rows = row_losses(loss, s, self.given.loss, self.state)
        if self.weight is not None:
            rows = rows * on_device(self.weight[part.users], self.device).to(rows)
        total = share * rows.mean()
        terms = [(self.state and self.state.own_loss(s), share)]
        if not (self.state and self.state.alone):
            # Every worker computes the encoder's loss of the whole batch, because it may compare rows.
            own_loss = self.encoder.own_loss(*batch.on(self.device))
            terms += [(own_loss, 1 / self.exchange.size), (self._decay(part, users, items, by_row), share)]
        for term, weight in terms:
            total = total if term is None else total + weight * term
        (self._weight_of(batch) * total).backward()
        self.learner.step(factor)
        if self.state:
            self.exchange.sum(self.state_adam.gradients())
            self.state_adam.step(factor / self.rate)  # the size of a batch is for the model's learning rate alone
            self.state.project()
        if loss.unit_ball:
            self._project(part, touched)
        return total.detach().double()

    def _weight_of(self, batch: Batch) -> float:
        """The size of a batch relative to the mean one, if batches consist of users. Without it, an interaction would count
        less in a batch with active users, and so always less if its own user is active.
        """
        if self.p.objective == "sampled":
            return 1.0
        users = min(self.p.users_per_step, self.n_active)
        return len(batch.users) * self.n_active / (len(self.users) * users)

    def _own_part(self, batch: Batch) -> tuple[Batch, float]:
        """This worker's rows of a batch and their share of it. A worker without any has the first row with no share, so that
        it has the gradients that the others have, all 0.
        """
        if self.exchange.size == 1:
            return batch, 1.0
        at = np.flatnonzero(owned(batch.users, self.exchange))
        return (batch.part(at), len(at) / len(batch.users)) if len(at) else (batch.part(np.zeros(1, np.int64)), 0.0)

    def _decay(self, batch: Batch, users: Rows, items: Rows, by_row: Tensor | None) -> Tensor | None:
        """The penalty λ/2 · mean over rows of |u|² + |i|², with the mean of |j|² over the row's negatives j if they decay.
        `by_row`: the vectors u where each row has its own.
        """
        kind = self.p.decay
        if kind == "gradient" or not self.p.weight_decay:
            return None
        if kind == "layer-0" and not self.encoder.plain:
            users, items = self.learner.learned()
        of_users, of_items = batch.on(self.device)
        lengths = squared_lengths(items.vectors)
        if by_row is None or kind == "layer-0":
            own = squared_lengths(users.vectors)[users.positions(of_users)]
        else:
            own = squared_lengths(by_row)
        rows = own + lengths[items.positions(of_items)]
        if kind != "batch" and batch.negatives is not None and not batch.in_batch:
            rows = rows + _mean_of_negatives(lengths, items, batch.negatives, len(rows))
        return self.p.weight_decay / 2 * rows.mean()

    @torch.no_grad()
    def _project(self, batch: Batch, touched: np.ndarray | None) -> None:
        """Project the vectors that moved back into the unit ball."""
        all_rows = self.p.optimizer == "adam" or not self.encoder.plain
        for table, rows in ((self.encoder.users, np.unique(batch.users)), (self.encoder.items, touched)):
            at = slice(None) if all_rows or rows is None else on_device(rows, self.device)
            table[at] = _into_ball(table[at])

    @torch.no_grad()
    def model(self) -> Recommender:
        """The current model, whose scores are the similarity of the loss, dot products by rank_by=dot, or those of pairs."""
        U, V = self.learner.vectors()
        if self.learner.of_users():
            self.exchange.complete([U])
        if isinstance(self.encoder, PairModel):
            return self.encoder.recommender(U, V)
        similarity = self.loss.similarity if self.p.rank_by == "auto" else "dot"
        if similarity == "distance":
            # −‖u − v‖² as a product: (2u, −‖u‖², 1) · (v, 1, −‖v‖²).
            u, v = (table.square().sum(dim=1, keepdim=True) for table in (U, V))
            U = torch.cat([2 * U, -u, torch.ones_like(u)], dim=1)
            V = torch.cat([V, torch.ones_like(v), -v], dim=1)
        U, V = (unit(table, similarity) for table in (U, V))
        own = self.encoder.recommender(U, V)
        return FactorRecommender(*(np.array(table.cpu().numpy()) for table in (U, V))) if own is None else own

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays that the next epoch depends on, for a checkpoint. They are the same for any number of workers."""
        self.exchange.complete(self.learner.of_users())
        if self.state:
            self.exchange.complete(self.state.get_buffer(name) for name in self.state.of_users)
        parts = {"encoder": _numpy(self.encoder), "learner": self.learner.arrays()}
        if self.state:
            parts |= {"state": _numpy(self.state), "state_adam": self.state_adam.arrays()}
        return prefixed(parts)

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        _load(self.encoder, part_of(arrays, "encoder/"))
        self.learner.restore(part_of(arrays, "learner/"))
        if self.state:
            _load(self.state, part_of(arrays, "state/"))
            self.state_adam.restore(part_of(arrays, "state_adam/"))


def _mean_of_negatives(values: Tensor, items: Rows, negatives: Negatives, n_rows: int) -> Tensor:
    """Return the mean over each row's negatives of what `values` (r,) have for the items of `items`."""
    means = values[items.positions(negatives.items)].mean(dim=1)
    if negatives.replaced is None:
        return means
    replaced, drawn = negatives.replaced, negatives.items[0]
    changes = values[items.positions(replaced.items)] - values[items.positions(drawn[replaced.columns])]
    return means.expand(n_rows).index_add(0, on_device(replaced.rows, values.device), changes / len(drawn))


def _into_ball(vectors: Tensor) -> Tensor:
    return vectors / vectors.norm(dim=1, keepdim=True).clamp(min=1)


def _numpy(module: torch.nn.Module) -> dict[str, np.ndarray]:
    return {name: value.detach().cpu().numpy() for name, value in module.state_dict().items()}


def _load(module: torch.nn.Module, arrays: dict[str, np.ndarray]) -> None:
    # The tensors are overwritten in place, because the optimiser refers to the same memory.
    module.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in arrays.items()})
