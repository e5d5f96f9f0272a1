r"""MultiVAE, a variational autoencoder with a multinomial likelihood (Liang et al., WWW 2018, section 2).

$$\begin{aligned} \text{encoder:} \quad & h = \tanh(\tilde x Q_1 + q_1), \quad (\mu, \log \sigma^2) = h Q_2 + q_2, \qquad
  \tilde x: \text{dropout of } x_u / \lVert x_u \rVert_2 \\
\text{decoder:} \quad & z = \mu + \sigma \varepsilon, \quad \varepsilon \sim \mathcal{N}(0, I), \qquad
  f = \tanh(z P_1 + p_1) P_2 + p_2 \\
\text{loss:} \quad & \operatorname*{mean}_u \Bigl[-\sum_i x_{ui} \log \operatorname{softmax}(f_u)_i
  + \frac{\beta}{2} \sum (\sigma^2 + \mu^2 - 1 - \log \sigma^2)\Bigr] + \lambda \sum \lVert W \rVert^2 \end{aligned}$$

The likelihood is that of the whole history $x_u$, also where dropout left items out, and a user with more items has more
weight. λ acts on the matrices and not on $q_1, q_2, p_1, p_2$. Scores are f with z = μ and without dropout, so that a user who
was not fitted is scored like one who was.

β rises from 0 to its cap `beta`, linearly within the first `anneal_epochs` epochs. The authors' program, with which the paper's
numbers were made, uses β = min(beta, step / 200,000), whatever the number of users: `anneal_steps=200000` does the same. These
steps are meant for ML-20M; on a dataset with a quarter of its users, β is still below 0.06 after 200 epochs.

Initial values are those of the authors' program: Xavier's uniform distribution for the matrices, and a normal distribution with
standard deviation 0.001, cut off at two deviations, for $q_1, q_2, p_1$ and $p_2$. Users without interactions take part in no
step.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.sparse as sp
import torch
from scipy.special import ndtr, ndtri
from threadpoolctl import threadpool_limits

from rankbench.core.devices import compiled
from rankbench.core.params import Choice, Fixed, Range, param
from rankbench.core.rng import stream
from rankbench.fitting.checkpoints import State
from rankbench.fitting.context import Context
from rankbench.fitting.method import METHODS, Iterative
from rankbench.fitting.recommenders import AutoencoderRecommender
from rankbench.fitting.step import Step, Steps
from rankbench.fitting.stopping import Stopping
from rankbench.training.autoencoders.blocks import BlockNetwork
from rankbench.training.autoencoders.network import Batch, Network, Weights
from rankbench.training.memory import keep_freed
from rankbench.training.schedule import require_finite

_BIAS = 0.001  # standard deviation of the initial q₁, q₂, p₁ and p₂
_SAVE_EVERY = 60.0  # seconds between checkpoints, each of which holds every weight and its two moments


@dataclass(frozen=True)
class MultiVAE(Stopping):
    hidden_dim: int = param(600, "number of hidden units of the encoder and of the decoder", Fixed(600), gt=0)
    latent_dim: int = param(200, "dimension of z", Fixed(200), gt=0)
    dropout: float = param(
        0.5, "share of a user's items that the encoder does not see in a step", Choice(0, 0.2, 0.5), ge=0, lt=1
    )
    beta: float = param(0.2, "largest weight β of the divergence of z from N(0, I)", Range(0, 1), ge=0)
    anneal_epochs: int = param(
        50,
        "epochs in which β rises linearly from 0 to its largest value",
        Range(0, 200),
        used=lambda p: p.anneal_steps == 0 and p.beta > 0,
        ge=0,
    )
    anneal_steps: int = param(
        0,
        "steps in which β would reach 1 if it rose on, as in the authors' program; 0: anneal_epochs counts",
        Choice(0, 200000),
        used=lambda p: p.beta > 0,
        ge=0,
    )
    learning_rate: float = param(0.001, "learning rate of Adam", Range(0.0001, 0.01), gt=0)
    users_per_step: int = param(500, "number of users per gradient step", Range(100, 500), gt=0)
    epochs: int = param(200, "largest number of passes over the users", Range(50, 200), gt=0)
    lam: float = param(0.0, "weight λ of the squared entries of all matrices", Range(0, 0.01, log=True), ge=0)
    precision: Literal["float32", "bfloat16"] = param(
        "float32", "precision of the products with P₂, which take most of the time", Fixed("float32")
    )


@dataclass(frozen=True, kw_only=True)
class Autoencoder(Iterative):
    """A method that trains an autoencoder of users' histories, on the CPU or a PyTorch device."""

    on_device = True
    cost = "autoencoder"


def start_weights(n_items: int, p: MultiVAE, seed: int, dtype: np.dtype) -> Weights:
    """Draw the initial weights of a network. They are drawn in float32, so that they are the same in both precisions."""
    h, d = p.hidden_dim, p.latent_dim
    # Rows of Q₁ and P₂ belong to items, because a step reads and writes only some rows of Q₁, and all of P₂ in blocks of items.
    matrices = {"Q1": (n_items, h), "Q2": (h, 2 * d), "P1": (d, h), "P2": (n_items, h)}
    vectors = {"q1": h, "q2": 2 * d, "p1": h, "p2": n_items}
    weights: Weights = {}
    for name, shape in matrices.items():
        bound = math.sqrt(6 / sum(shape))
        uniform = stream(seed, "multivae", "init", name).random(shape, np.float32)
        weights[name] = ((2 * uniform - 1) * np.float32(bound)).astype(dtype)
    for name, size in vectors.items():
        quantile = ndtr(-2) + (ndtr(2) - ndtr(-2)) * stream(seed, "multivae", "init", name).random(size)
        normal = ndtri(quantile)
        weights[name] = (_BIAS * normal).astype(np.float32).astype(dtype)
    return weights


def divergence_weight(p: MultiVAE, step: int, steps_per_epoch: int) -> float:
    """Return β of a step; the first step of a fit has the number 0."""
    if p.anneal_steps:
        return min(p.beta, step / p.anneal_steps)
    rise = p.anneal_epochs * steps_per_epoch
    return p.beta * min(1.0, step / rise) if rise else p.beta


def batches(X: sp.csr_array, p: MultiVAE, seed: int, epoch: int, dtype: np.dtype) -> Iterator[Batch]:
    """Yield the steps of an epoch: users in random order, with their dropout and ε.

    Every number comes from a stream that the seed, the epoch and the step name, so it depends on no earlier epoch.
    """
    order = stream(seed, "multivae", "order", epoch).permutation(np.flatnonzero(np.diff(X.indptr)))
    starts = range(0, len(order), p.users_per_step)
    for number, start in enumerate(starts):
        rows = X[order[start : start + p.users_per_step]]
        keep = stream(seed, "multivae", "dropout", epoch, number).random(rows.nnz, np.float32) >= p.dropout
        size = (rows.shape[0], p.latent_dim)
        noise = stream(seed, "multivae", "noise", epoch, number).standard_normal(size, np.float32)
        beta = divergence_weight(p, (epoch - 1) * len(starts) + number, len(starts))
        yield Batch.of(rows, keep, 1 - p.dropout, noise.astype(dtype), beta)


def recommender(weights: Weights) -> AutoencoderRecommender:
    """Return the model that scores a history with z = μ."""
    d = len(weights["P1"])
    return AutoencoderRecommender(
        Q1=weights["Q1"],
        q1=weights["q1"],
        Q2=np.ascontiguousarray(weights["Q2"][:, :d]),
        q2=weights["q2"][:d].copy(),
        P1=weights["P1"],
        p1=weights["p1"],
        V=np.column_stack([weights["P2"], weights["p2"]]),
    )


def multivae(X: sp.csr_array, p: MultiVAE, seed: int, dtype: type, context: Context, start: State | None) -> Steps:
    """Fit X (n_users, n_items), 0/1 CSR, one step per epoch. Its loss is that of the formula without λ, per interaction.

    A step of B users costs 6 · B · n_items · hidden_dim floating-point operations, nearly all of them in products with P₂, and
    memory for (B, n_items) numbers. Raises NumericalError if the loss is not finite.
    """
    keep_freed()
    device, number, mean, seconds = torch.device(context.device), 0, math.nan, 0.0
    weights = start_weights(X.shape[1], p, seed, np.dtype(dtype))
    network = BlockNetwork(weights, p.learning_rate, p.lam, p.precision) if compiled(device) else Network(weights, p, device)
    if start:
        network.restore(start.arrays)
        number, mean, seconds = start.number, start.values["loss"], start.values["seconds"]

    def state() -> State:
        return State(number, network.arrays(), {"loss": mean, "seconds": seconds})

    while True:
        yield Step(number, mean, seconds, lambda: recommender(network.weights()), state)
        number += 1
        began, total = time.perf_counter(), 0.0
        with threadpool_limits(1, "blas"):  # `blocks.py` divides the work among threads, so that bits do not depend on them
            for batch in batches(X, p, seed, number, np.dtype(dtype)):
                total += network.step(batch)
        mean = float(total) / max(1, X.nnz)
        seconds += time.perf_counter() - began
        require_finite(mean, number, p.learning_rate, dtype)


METHODS.add(
    "multivae",
    Autoencoder(
        name="multivae",
        params=MultiVAE,
        title="MultiVAE: variational autoencoder with a multinomial likelihood",
        source="Liang et al., WWW 2018",
        families=("autoencoder",),
        steps=multivae,
        seeded=True,
        draws_users=True,
        length="epochs",
        save_every=_SAVE_EVERY,
    ),
    __name__,
)
