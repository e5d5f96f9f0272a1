"""Estimates of a fit before it runs: rough seconds, and memory that is never too little, because it is reserved.

The constants are from some 2,600 records of this program on two cores of an AMD EPYC: closed forms on 1,000 to 41,000 items,
alternating least squares with 16 to 128 dimensions on 0.5 and 1 million interactions (two runs on 57 million), and training on
40,000 to 0.8 million. Most of these fits took half to twice the estimate, and many shared a core with other work; the peak
memory of each was below its estimate. There are no records of Newton-CG, deep encoders and bfloat16 yet: their estimates are
counts of multiply-adds. Only the speed of matrix products is measured on the machine that runs the program.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from rankbench.core.environment import Environment
from rankbench.data.cards import Card
from rankbench.data.prepare import Dataset, prepared_already
from rankbench.experiment.job import Job, MethodConfig
from rankbench.experiment.watch import pair_work, valid_users
from rankbench.fitting.method import ClosedForm, Iterative
from rankbench.solvers.inverse.gram_cache import kept_bytes

WORKERS_START = 15.0  # seconds until the workers of a fit run
START = 1.0  # seconds of a trial besides its fit: starting the worker, reading the data, writing the record
PRODUCTS = 0.9  # speed of an inverse relative to matrix products
PAIRS = 5e8  # pairs of a user's items that a Gram counts per second
COLUMN_ENTRY = 4e-7  # seconds of coordinate descent per element of the Gram matrix
# Seconds per multiply-add in the linear systems of rows and in sums of gathered vectors, and seconds per element of a row.
ROW_SYSTEM, GATHERED, ROW = 8e-12, 4e-10, 3e-8
# Seconds of training per element of a vector: of a negative, of an item if the whole catalogue is scored, of a further positive
# of the user, and of a row that the optimiser updates.
NEGATIVE, CATALOGUE, POSITIVE, TOUCHED = 7e-10, 1.6e-10, 1.5e-9, 8e-9
# Seconds of training per pair that a network scores: per multiply-add, and per element of a vector.
NETWORK, PAIR = 9e-11, 1.7e-8
USER_CATALOGUE = 4e-11  # seconds per element of an item's vector and user, for objective = catalogue
# Seconds of an autoencoder's step: in all, per score, and per weight of the input and output layers.
STEP, SCORE_PASSES, WEIGHT = 2e-3, 3e-9, 3e-9
SCANNED, SCORED, SUMMED = 1.2e-9, 2.5e-11, 3e-10  # seconds of a ranking: per score, per multiply-add of vectors, of a matrix
MEASURED = 1e-5  # seconds per user
SHARE = 0.05  # of the time of a fit, for evaluations
RATE = 5e10  # products a second of a processor, where an estimate must not depend on the machine
# A fit that stops early on the validation set takes this share of its epochs, and most such fits end by that epoch.
STOPS_AT, STOPS_BY = 0.6, 150

UNEVEN = 3.0  # the mean square of users' numbers of items relative to the square of their mean, where it is not known
BASE = 870 << 20  # bytes of the interpreter, its libraries and what numba compiled
CUDA = 1200 << 20  # bytes that a process on a GPU takes beside its data
GRID = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 12.0, 16.0, 20.0, 24.0, 32.0)  # GB; beyond, multiples of 8


@dataclass(frozen=True)
class Size:
    """Size of a prepared dataset. `interactions` counts those of all parts, `pairs` is Σ_u |I_u|², and `ranked` is the number
    of users that have targets.
    """

    users: int
    items: int
    interactions: int
    pairs: float
    ranked: int

    @classmethod
    def of(cls, dataset: Dataset) -> Size:
        split = dataset.split
        parts = (split.train, split.valid_target, split.test_target, split.valid_history, split.test_history)
        each = sum(np.diff(part.indptr).astype(np.float64) for part in parts)
        targets = (split.valid_target, split.test_target)
        ranked = max(int(np.count_nonzero(np.diff(target.indptr))) for target in targets)
        return cls(split.n_users, split.n_items, sum(part.nnz for part in parts), float(each @ each), ranked)

    @classmethod
    def known(cls, card: Card, environment: Environment) -> Size | None:
        """The size of a dataset that is prepared here, or else roughly by the counts that its card has; None if it has none.
        Nothing is prepared and the network is not used.
        """
        if dataset := prepared_already(card, environment):
            return cls.of(dataset)
        made, expected = card.source.generator, card.expect
        names = ("users", "items", "interactions")
        counts = [getattr(expected.prepared, name) or getattr(expected.raw, name) or 0 for name in names]
        if made is not None:
            counts = [made.users, made.items, round(made.users * made.interactions_per_user)]
        users, items, interactions = counts
        return cls(users, items, interactions, UNEVEN * interactions**2 / users, users) if all(counts) else None


def seconds(job: Job, size: Size, cpus: int, workers: int = 1) -> float:
    """Seconds of one trial with `cpus` processors: start, fit, ranking and measuring, within a factor of two or three."""
    first = job.configs[0]
    fit = _FIT[first.spec.cost](first, size, cpus, job.dtype) * first.spec.pace
    n_rankings = _rankings(job)
    total = START + (WORKERS_START if workers > 1 else 0) + fit
    total += _ranking(first, size, size.ranked, n_rankings, cpus)
    total += n_rankings * size.ranked * MEASURED
    if first.stopping and job.fit_on == "train":
        evaluations = _iterations(first) / (first.stopping.eval_every or evaluations_every(job, size))
        total += evaluations * _ranking(first, size, min(size.ranked, valid_users(first)), 1, cpus)
    return total


def evaluations_every(job: Job, size: Size) -> int:
    """Iterations between evaluations on the validation set for which these take about SHARE of the fit.

    It is estimated and not measured, so that a fit does not depend on the speed of the machine.
    """
    first = job.configs[0]
    fit = partial(_autoencoder, rate=RATE) if first.spec.cost == "autoencoder" else _FIT[first.spec.cost]
    iteration = fit(first, size, 1, job.dtype) * first.spec.pace / _iterations(first)
    evaluation = _ranking(first, size, min(size.ranked, valid_users(first)), 1, 1)
    return max(1, math.ceil(evaluation / (SHARE * iteration)))


def memory(job: Job, size: Size, workers: int = 1, device: str = "cpu") -> int:
    """Peak bytes of one trial in the memory of the host, rounded up to GRID, so that most trials of a sweep have equal needs.
    Each of several workers needs as much as a fit alone, and so does the process that evaluates their model.
    """
    first, itemsize = job.configs[0], 8 if job.dtype == "float64" else 4
    kind, n = first.spec.cost, size.items
    n_bytes = BASE + CUDA * device.startswith("cuda") + 32 * size.interactions + 16 * (size.users + n)
    dim = _dim(first)
    table = (size.users + n) * dim * itemsize
    if kind == "inverse":
        n_bytes += itemsize * n * (n + 1024) + kept_bytes(n, itemsize)
    elif kind == "low-rank":
        # Up to 4,096 items, copies of the whole decomposition in float64; beyond, one float32 matrix and thin ones.
        n_bytes += 5 * 8 * n * n if n <= 4096 else 4 * n * n + 8 * n * 20 * dim + (24 * n * n if 4 * dim >= n else 0)
    elif kind == "columns":
        # A Gram matrix, and each weight in a block, by columns and by rows.
        n_bytes += 4 * n * n * first.spec.dense + 40 * n * min(n, first.params.neighbours)
    elif kind == "trained":
        # Tables, gradients, two moments, the best and the current model and a checkpoint; int64 pairs and their order.
        n_bytes += 8 * table + 24 * size.interactions + _batch(first, size, itemsize)
        n_bytes += 6 * _of_state(first) * table  # parameters, gradients, moments and a checkpoint of the loss's own tables
        n_bytes += 6 * n * dim * itemsize * (first.flat.get("shared_items") is False)
    elif kind == "autoencoder":
        # Weights of input and output, two moments of each, a gradient, copies of the best and the current model, and the work
        # on idle rows; the scores of a step, and the users' vectors in a ranking.
        n_bytes += 15 * n * dim * itemsize + (_users_per_step(first, size) * n + size.users * (dim + 1)) * itemsize
    elif "newton" in first.spec.families:
        # Gradients, directions and products of conjugate gradients, and the layers of a network for each node.
        hidden = getattr(first.params, "hidden_dim", 0)
        n_bytes += (16 if hidden else 12) * table + 2 * (size.users + n) * hidden * itemsize
    else:
        n_bytes += 5 * table
    n_rankings = _rankings(job)
    n_bytes += n_rankings * size.ranked * (job.metrics.k * (4 + itemsize) + 10 * len(job.metrics.names))
    return _rounded_up(n_bytes * (workers + 1 if workers > 1 else 1))


@cache
def products_a_second(dtype: str) -> float:
    """Floating-point operations per second of one core in large matrix products: the fastest of at least three within 0.2 s."""
    from threadpoolctl import threadpool_limits

    n = 768
    A = np.ones((n, n), dtype)
    times: list[float] = []
    with threadpool_limits(1, "blas"):
        A @ A  # the first product initialises the library
        while len(times) < 3 or sum(times) < 0.2:
            began = time.perf_counter()
            A @ A
            times.append(time.perf_counter() - began)
    return 2 * n**3 / min(times)


def _inverse(config: MethodConfig, size: Size, cpus: int, dtype: str) -> float:
    n = float(size.items)
    return (n**3 / (PRODUCTS * products_a_second(dtype)) + size.pairs / 2 / PAIRS) / cpus


def _low_rank(config: MethodConfig, size: Size, cpus: int, dtype: str) -> float:
    n, dim = float(size.items), config.params.embedding_dim
    rounds = getattr(config.params, "iterations", 10)
    # Products with a matrix that is read only once are limited by the speed of memory.
    return _inverse(config, size, cpus, "float64" if n <= 4096 else dtype) + rounds * n * n * dim * 4e-11 / cpus


def _als(config: MethodConfig, size: Size, cpus: int, dtype: str) -> float:
    rows, dim = size.users + size.items, config.params.embedding_dim
    own = 2 * size.interactions * dim**2 + rows * dim**3 / 3
    gathered = (2 * size.interactions * GATHERED + rows * ROW) * dim
    return _iterations(config) * (own * ROW_SYSTEM + gathered) * _width(dtype) / cpus


def _iterative(config: MethodConfig, size: Size, cpus: int, dtype: str) -> float:
    dim = _dim(config)
    product = 4 * size.interactions * dim * GATHERED + (size.users + size.items) * dim**2 * ROW_SYSTEM
    return _iterations(config) * (config.flat.get("cg_steps", 0) + 3) * product * _width(dtype) / cpus


def _trained(config: MethodConfig, size: Size, cpus: int, dtype: str) -> float:
    method: Any = config.spec  # of the type Trained, whose module imports PyTorch
    p, needs = config.params.training, method.loss.needs
    if p.objective == "catalogue":
        users = min(p.users_per_step, size.users)
        step = users * size.items * USER_CATALOGUE + (users + size.items) * TOUCHED
        step += _propagation(method.layers(config.params), size)
        return _iterations(config) * math.ceil(size.users / users) * step * p.embedding_dim * _width(dtype) / math.sqrt(cpus)
    rows, in_batch = min(p.batch_size, size.interactions), p.sampler == "in-batch"
    batches = math.ceil(size.interactions / rows)
    full = "catalogue" in needs
    negative = CATALOGUE if p.shares_negatives else NEGATIVE
    score = size.items * CATALOGUE if full else _negatives(config, rows) * negative
    if "all_positives" in needs:
        score += size.pairs / size.interactions * POSITIVE
    drawn = 0 if in_batch else rows if p.shared_negatives else rows * p.n_negatives
    # Expected numbers of different users and items in that many draws.
    users, items = (n * -math.expm1(-draws / n) for n, draws in ((size.users, rows), (size.items, rows + drawn)))
    every_row = p.optimizer == "adam" and (method.loss.unit_ball or (p.weight_decay > 0 and p.decay == "gradient"))
    touched = size.users + size.items if every_row else users + (size.items if full else items)
    batch = rows * score + touched * TOUCHED + _propagation(method.layers(config.params), size)
    if work := pair_work(config):
        batch += _pairs(config, rows) * (work * NETWORK / p.embedding_dim + PAIR)
    return _iterations(config) * batches * batch * p.embedding_dim * _width(dtype) / math.sqrt(cpus)


def _autoencoder(config: MethodConfig, size: Size, cpus: int, dtype: str, rate: float | None = None) -> float:
    """`rate`: products a second of a processor; that of this machine if it is not given."""
    users, weights = _users_per_step(config, size), 2.0 * size.items * _dim(config)
    step = STEP + 3 * users * weights / (rate or products_a_second(dtype)) / cpus
    step += (users * size.items * SCORE_PASSES + weights * WEIGHT) * _width(dtype) / cpus
    return _iterations(config) * math.ceil(size.users / users) * step


def _users_per_step(config: MethodConfig, size: Size) -> int:
    return max(1, min(config.params.users_per_step, size.users))


def _negatives(config: MethodConfig, rows: int) -> int:
    """Number of negatives of a row in a batch of so many rows."""
    p = config.params.training
    return rows - 1 if p.sampler == "in-batch" else int(p.n_negatives)


def _pairs(config: MethodConfig, rows: int) -> int:
    """Number of pairs in a batch of so many rows: its positives and the negatives of each."""
    return rows * (1 + _negatives(config, rows))


def _propagation(layers: int, size: Size) -> float:
    """Seconds per dimension of a step that runs all layers forward and backward, and then updates all rows."""
    return 4 * layers * size.interactions * GATHERED + (size.users + size.items) * TOUCHED if layers else 0.0


def _columns(config: MethodConfig, size: Size, cpus: int, dtype: str) -> float:
    return (3 * size.pairs / PAIRS + config.spec.dense * float(size.items) ** 2 * COLUMN_ENTRY) / cpus


def _plain(config: MethodConfig, size: Size, cpus: int, dtype: str) -> float:
    return 1e-8 * size.interactions


_FIT = {
    "inverse": _inverse,
    "low-rank": _low_rank,
    "als": _als,
    "iterative": _iterative,
    "trained": _trained,
    "autoencoder": _autoencoder,
    "columns": _columns,
    "plain": _plain,
}


def _rankings(job: Job) -> int:
    """Number of rankings; settings with the same ranking are ranked once."""
    return len({config.identity for config in job.configs}) if len(job.configs) > 1 else 1


def _dim(config: MethodConfig) -> int:
    """Dimension of the vectors that are multiplied for a score."""
    return config.flat.get("embedding_dim", config.flat.get("hidden_dim", 1))


def _iterations(config: MethodConfig) -> float:
    method = config.spec
    assert isinstance(method, Iterative)
    limit = method.limit(config.params)
    return min(STOPS_AT * limit, STOPS_BY) if config.stopping else limit


def _ranking(config: MethodConfig, size: Size, users: int, models: int, cpus: int) -> float:
    scores = float(users) * size.items
    if isinstance(config.spec, ClosedForm):
        history = size.interactions * users / size.users
        return (history * size.items * SUMMED + models * scores * SCANNED) / cpus
    return models * scores * (SCANNED + (pair_work(config) or _dim(config)) * SCORED) / cpus


def _of_state(config: MethodConfig) -> int:
    """Number of tables of the model's size that a loss learns itself."""
    method: Any = config.spec
    return int(method.loss.tables)


def _batch(config: MethodConfig, size: Size, itemsize: int) -> int:
    """Bytes of a batch's scores and of an encoder's layers, including what autograd keeps."""
    method: Any = config.spec
    p, needs = config.params.training, method.loss.needs
    layers, table_bytes = method.layers(config.params), size.items * p.embedding_dim * itemsize
    propagated = 2 * (layers + 2) * (size.users + size.items) * p.embedding_dim * itemsize if layers else 0
    propagated += method.per_edge(config.params) * size.interactions * itemsize
    if p.objective == "catalogue":
        # The slopes that are kept, gradients of the item table, and parts of the scores where PyTorch computes them.
        tables = _of_state(config)
        kept = (1 + tables) * min(p.users_per_step * size.items * itemsize, 1 << 28)
        return propagated + kept + (4 + 5 * tables) * table_bytes + (6 << 22) * itemsize
    if "catalogue" in needs:
        scores = min(p.batch_size, max(2, size.interactions)) * size.items * itemsize
        return propagated + (6 * scores if method.loss.whole_catalogue else min(2 * scores, 2 << 28))
    positives = size.pairs / max(1, size.interactions) if "all_positives" in needs else 0
    positives += config.flat.get("n_positives", 0) if "extra_positives" in needs else 0
    rows = min(p.batch_size, max(2, size.interactions))
    network = 0.0
    if work := pair_work(config):
        # Vectors and layers of each pair, and their gradients: an upper bound of what was measured.
        pairs = _pairs(config, rows) + rows * positives
        network = pairs * (16 * p.embedding_dim + 4 * work / p.embedding_dim) * itemsize
    compared = float(rows * _negatives(config, rows))
    if method.sums_negatives(config.params):
        # The slopes that two sums keep, and the items that replace those of the row's user among the negatives.
        own = 0.0 if p.sampler == "in-batch" else size.pairs / max(1, size.interactions * size.items)
        negatives = 2 * min(compared * itemsize, 1 << 28) + 100 * own * compared
    else:
        negatives = compared * (8 + 10 * itemsize + 16 * _of_state(config))
    return int(negatives + rows * positives * 48 + network) + propagated + 24 * size.interactions


def _width(dtype: str) -> float:
    return 2.0 if dtype == "float64" else 1.0


def _rounded_up(n_bytes: float) -> int:
    gb = n_bytes / 1e9
    step = next((step for step in GRID if gb <= step), math.ceil(gb / 8) * 8)
    return int(step * 1e9)
