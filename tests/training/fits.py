"""Small fits by gradient steps: data, a trainer, and the batch that it draws."""

import numpy as np
import scipy.sparse as sp
import torch

from rankbench.core.rng import stream
from rankbench.data.blocks import csr_from_pairs
from rankbench.experiment.job import configure
from rankbench.fitting.context import Context
from rankbench.fitting.drive import Fit, Validation, drive
from rankbench.losses.spec import registered
from rankbench.training.negatives import Negatives
from rankbench.training.trainer import Trainer

N_USERS, N_ITEMS, DIM = 12, 20, 4
SMALL = {"embedding_dim": DIM, "epochs": 3, "batch_size": 16, "n_negatives": 5, "patience": 0}


def interactions(empty: bool = False):
    """0/1 CSR of users with 1 to 6 items; with `empty`, user 0 and item 3 have none."""
    rng = np.random.default_rng(5)
    met = np.zeros((N_USERS, N_ITEMS), bool)
    for user in range(N_USERS):
        met[user, rng.permutation(N_ITEMS)[: 1 + user % 6]] = True
    met[rng.integers(6, N_USERS, N_ITEMS), np.arange(N_ITEMS)] = True  # every item has a user
    if empty:
        met[0], met[:, 3] = False, False
    return csr_from_pairs(*np.nonzero(met), met.shape)


def uneven():
    """0/1 CSR of users who differ much in activity; all of them have item 0."""
    rng = np.random.default_rng(5)
    dense = rng.random((40, 30)) < rng.random((40, 1)) * 0.4
    dense[:, 0] = True
    return sp.csr_array(dense.astype(np.float32))


def params(name: str, **values):
    return configure(name, SMALL | values).params


def trainer_of(X, name: str, dtype=np.float64, seed: int = 0, **values) -> Trainer:
    return Trainer(X, params(name, **values), registered().get(name), seed, dtype, "cpu")


def driven(X, name: str, validate=None, tell=lambda step, valid: None, checkpoints=None, dtype=np.float32, **values) -> Fit:
    """The whole fit; `tell(step, valid)` is called after each epoch with the metric on the validation set, or None."""
    config = configure(name, SMALL | values)
    last = []

    def begin(start):
        return config.spec.steps(X, config.params, 0, dtype, Context(), start)

    def observe(step):
        last[:] = [step]
        return {}

    stopping = config.params.training
    validation = Validation(validate, stopping) if validate else None
    rows = drive(begin, config.spec.limit(config.params), validation, observe, checkpoints)
    try:
        while True:
            curve = next(rows)
            tell(last[0], curve[-1].get("valid"))
    except StopIteration as end:
        return end.value


def fitted(X, name: str, dtype=np.float32, **values):
    """The model of the last epoch."""
    return driven(X, name, dtype=dtype, **values).model


def vectors(trainer: Trainer) -> tuple[torch.Tensor, torch.Tensor]:
    """Copies of what is learnt, as leaves."""
    return tuple(table.detach().clone().requires_grad_() for table in (trainer.encoder.users, trainer.encoder.items))


def only_batch(trainer: Trainer, seed: int = 0):
    """(users, items, negatives) of epoch 1, where one batch holds every interaction."""
    chosen = stream(seed, "order", 1).permutation(len(trainer.users))
    users, items = trainer.users[chosen], trainer.items[chosen]
    drawn = trainer.sampler.draw(seed, 1, 0, users, items)
    return users, items, drawn.items if drawn.replaced is None else of_each_row(drawn, len(users))


def of_each_row(drawn: Negatives, n_rows: int) -> np.ndarray:
    """The negatives of each row, (n_rows, n)."""
    table = np.array(np.broadcast_to(drawn.items, (n_rows, drawn.items.shape[1])))
    if drawn.replaced is not None:
        table[drawn.replaced.rows, drawn.replaced.columns] = drawn.replaced.items
    return table


def gradients(trainer: Trainer) -> dict[str, np.ndarray]:
    """Those of the one step that was made: Adam's first moment is then a tenth of the gradient."""
    arrays = trainer.arrays()
    if "learner/users.first" in arrays:
        return {side: 10 * arrays[f"learner/{side}.first"] for side in ("users", "items")}
    return {side: 10 * arrays[f"learner/{place}.exp_avg"] for place, side in enumerate(("users", "items"))}
