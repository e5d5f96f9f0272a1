"""Alternating least squares against irspack and implicit, side by side in one process.

    python benchmarks/als.py                                 Gowalla and sets of the size of MovieLens 10M and 20M: ten minutes
    python benchmarks/als.py --sizes gowalla,10M --dims 64   minutes

Seconds of an iteration, all users and then all items: every method keeps its factors, and one iteration of each is run in turn,
the order turned each round; the median of the rounds counts. A first iteration of each, which touches fresh memory, is not
counted, and what is prepared once (transposing, cutting into blocks) is not either. irspack minimises the objective of our iALS
and starts from the same factors, so the losses after the same number of iterations, all by our `objective`, can be held against
each other. implicit minimises WRMF's, and only its seconds are compared. Its BLAS gets one thread in two rounds, as its authors
advise, and as many as the rest in the next two; the faster setting is the peer. A pause lies between two turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from importlib.metadata import version
from typing import Protocol

import numpy as np
import scipy.sparse as sp
from linear import SIZES, movielens_sized
from threadpoolctl import ThreadpoolController, threadpool_limits

from rankbench.core.environment import Environment
from rankbench.core.threads import pinned
from rankbench.data.prepare import load
from rankbench.experiment.methods import registered
from rankbench.fitting.executors import ThreadMap
from rankbench.solvers.als.fit import ALSParams, Counts
from rankbench.solvers.als.half_step import HalfStep, objective, of_items, of_users
from rankbench.solvers.factorisation.ials import IALS
from rankbench.solvers.factorisation.rg import RG2
from rankbench.tracking.environment import describe_environment

# iALS's own, near what a search finds on Gowalla.
ALPHA0, LAM = 0.03, 0.003
CG_STEPS, SUBSPACE_DIM, INIT = 3, 16, 0.1
PAUSE = 0.1  # seconds between turns: BLAS's idle threads wait in a loop for some time, and would take the next one's processor
# Our task, the libraries that it is compared with, and whether both minimise one objective.
PAIRS = (
    ("iALS exact", "irspack Cholesky", True),
    ("iALS exact", "implicit Cholesky", False),
    ("iALS cg", "irspack CG", True),
    ("iALS cg, 2 steps", "irspack CG", True),
    ("iALS subspace", "irspack iALS++", True),
    ("iALS cg", "irspack iALS++", True),
    ("RG²", "implicit CG", False),
)


class Method(Protocol):
    """Factors that an iteration changes. `blas`: the thread counts of BLAS that it is tried with."""

    blas: tuple[int, ...]

    def step(self) -> None: ...

    def factors(self) -> tuple[np.ndarray, np.ndarray]: ...


class Ours:
    def __init__(self, X: sp.csr_array, name: str, p: ALSParams, start: tuple[np.ndarray, np.ndarray], threads: int):
        self.blas, self.effort, (self.P, self.Q) = (1,), p.effort, start
        users, items = np.diff(X.indptr).astype(np.float64), np.bincount(X.indices, minlength=X.shape[1]).astype(np.float64)
        self.quadratic_loss = registered().get(name).quadratic_loss(Counts(users, items, X), p)
        by_item = X.T.tocsr()
        by_item.sort_indices()
        self.executor = ThreadMap(threads)
        self.user_step = HalfStep(X, of_users(self.quadratic_loss), p.embedding_dim, np.float32, p.solver, self.executor)
        self.item_step = HalfStep(by_item, of_items(self.quadratic_loss), p.embedding_dim, np.float32, p.solver, self.executor)

    def step(self) -> None:
        self.P = self.user_step.solve(self.Q, self.P, self.effort)
        self.Q = self.item_step.solve(self.P, self.Q, self.effort)

    def factors(self) -> tuple[np.ndarray, np.ndarray]:
        return self.P, self.Q

    def loss(self, P: np.ndarray, Q: np.ndarray) -> float:
        return objective(self.quadratic_loss, self.user_step.blocks, self.executor, P, Q)


class Irspack:
    """Its trainer, with the loss that its documentation recommends: the one of our `ials`, halved. Users begin."""

    def __init__(self, X: sp.csr_array, solver: str, start: tuple[np.ndarray, np.ndarray], threads: int):
        from irspack.recommenders import _ials_core as core

        self.blas = (1,)  # it brings its own linear algebra
        config = core.IALSModelConfigBuilder().set_K(start[0].shape[1]).set_alpha0(ALPHA0).set_reg(LAM).set_nu(1.0)
        config = config.set_init_stdev(INIT).set_loss_type(core.LossType.IALSPP).build()
        self.trainer = core.IALSTrainer(config, peers_matrix(X))
        self.trainer.user, self.trainer.item = start
        solving = core.IALSSolverConfigBuilder().set_n_threads(threads).set_solver_type(getattr(core.SolverType, solver))
        solving = solving.set_max_cg_steps(CG_STEPS).set_ialspp_subspace_dimension(SUBSPACE_DIM).set_ialspp_iteration(1)
        self.solving = solving.build()

    def step(self) -> None:
        self.trainer.step(self.solving)

    def factors(self) -> tuple[np.ndarray, np.ndarray]:
        return self.trainer.user, self.trainer.item


class Implicit:
    """The loop of its `fit`, an iteration at a time, from the start that it would draw."""

    def __init__(self, X: sp.csr_array, dim: int, use_cg: bool, threads: int):
        from implicit.cpu.als import AlternatingLeastSquares

        self.blas = tuple({1, threads})
        # Our objective over α₀: 1/α₀ more on an interaction, and the mean of our ridges for the one that it has.
        ridges = LAM / ALPHA0 * (2 * X.nnz + 2 * ALPHA0 * X.shape[0] * X.shape[1]) / sum(X.shape)
        self.model = AlternatingLeastSquares(
            dim, regularization=ridges, alpha=1 + 1 / ALPHA0, use_cg=use_cg, num_threads=threads
        )
        self.users = peers_matrix(X) * np.float32(self.model.alpha)
        self.items = self.users.T.tocsr()
        rng = np.random.default_rng(0)
        self.P, self.Q = (rng.random((n, dim), np.float32) * np.float32(0.01) for n in X.shape)

    def step(self) -> None:
        solve, ridge, threads = self.model.solver, self.model.regularization, self.model.num_threads
        solve(self.users, self.P, self.Q, ridge, num_threads=threads)
        solve(self.items, self.Q, self.P, ridge, num_threads=threads)

    def factors(self) -> tuple[np.ndarray, np.ndarray]:
        return self.P, self.Q


def peers_matrix(X: sp.csr_array) -> sp.csr_matrix:
    """The older class and the narrow indices that the peers' compiled code takes."""
    return sp.csr_matrix((X.data.astype(np.float32), X.indices.astype(np.int32), X.indptr.astype(np.int32)), X.shape)


def ials(dim: int, solver: str, cg_steps: int = CG_STEPS) -> IALS:
    return IALS(
        embedding_dim=dim,
        solver=solver,
        cg_steps=cg_steps,
        subspace_dim=SUBSPACE_DIM,
        init_scale=INIT,
        alpha0=ALPHA0,
        lam=LAM,
        nu=1.0,
    )


def ours(dim: int) -> dict[str, tuple[str, ALSParams]]:
    return {
        "iALS exact": ("ials", ials(dim, "exact")),
        "iALS cg": ("ials", ials(dim, "cg")),
        "iALS cg, 2 steps": ("ials", ials(dim, "cg", 2)),
        "iALS subspace": ("ials", ials(dim, "subspace")),
        "RG²": ("rg2", RG2(embedding_dim=dim, init_scale=INIT)),
    }


def peers(X: sp.csr_array, dim: int, start: tuple[np.ndarray, np.ndarray], threads: int) -> dict[str, Method]:
    return {
        "irspack Cholesky": Irspack(X, "CHOLESKY", start, threads),
        "irspack CG": Irspack(X, "CG", start, threads),
        "irspack iALS++": Irspack(X, "IALSPP", start, threads),
        "implicit Cholesky": Implicit(X, dim, False, threads),
        "implicit CG": Implicit(X, dim, True, threads),
    }


def random_factors(X: sp.csr_array, dim: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    noise = (rng.standard_normal((n, dim), np.float32) for n in X.shape)
    P, Q = (np.float32(INIT / np.sqrt(dim)) * (each - each.mean(axis=0)) for each in noise)
    return P, Q


def in_turn(methods: dict[str, Method], rounds: int) -> dict[str, float]:
    """Seconds of an iteration, with the faster of the BLAS settings."""
    pools = ThreadpoolController()
    seconds = {name: {blas: [] for blas in method.blas} for name, method in methods.items()}
    for turn in range(-1, rounds):
        for name in list(methods) if turn % 2 == 0 else reversed(methods):
            method = methods[name]
            # A setting for two rounds, so that it is met in both orders.
            blas = method.blas[max(turn, 0) // 2 % len(method.blas)]
            time.sleep(PAUSE)
            with pools.limit(limits=blas, user_api="blas"):
                began = time.perf_counter()
                method.step()
                took = time.perf_counter() - began
            if turn >= 0:
                seconds[name][blas].append(took)
    return {name: min(statistics.median(each) for each in tried.values() if each) for name, tried in seconds.items()}


def iterations_task(label: str, X: sp.csr_array, dim: int, rounds: int, threads: int) -> None:
    start = random_factors(X, dim)
    methods: dict[str, Method] = {name: Ours(X, *about, start, threads) for name, about in ours(dim).items()}
    methods |= peers(X, dim, start, threads)
    seconds = in_turn(methods, rounds)
    for product, peer, one_objective in PAIRS:
        losses = ""
        if one_objective:
            loss = methods[product].loss
            losses = "".join(f"{loss(*methods[name].factors()) / X.nnz:11.6f}" for name in (product, peer))
        print(
            f"{f'{label}, K={dim}: {product} | {peer}':52s} {seconds[product]:9.3f} {seconds[peer]:9.3f} "
            f"{seconds[peer] / seconds[product]:7.2f}x{losses}",
            flush=True,
        )


def interactions(size: str, environment: Environment) -> sp.csr_array:
    """What a final fit on Gowalla is made on, or a generated set."""
    return load(size, environment).split.fit_matrix("train+valid") if size == "gowalla" else movielens_sized(size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="gowalla,10M,20M", help=f"of gowalla, {', '.join(SIZES)}")
    parser.add_argument("--dims", default="64,128", help="lengths of the vectors, K")
    parser.add_argument("--rounds", type=int, default=4, help="counted iterations of each method, a multiple of 4")
    parser.add_argument("--threads", type=int, default=2, help="of every method")
    given = parser.parse_args()
    sizes, dims = given.sizes.split(","), [int(dim) for dim in given.dims.split(",")]
    environment = Environment.from_env()
    if "gowalla" in sizes and environment.mirror is None:
        print("gowalla is skipped: RANKBENCH_MIRROR is not set")
        sizes.remove("gowalla")
    warnings.filterwarnings("ignore", module="implicit")
    with pinned(given.threads):
        warm_up()
        about = describe_environment()
        packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "numba", "irspack", "implicit"))
        print(f"{about['machine']['cpu']}, {about['machine']['cores']} cores, {given.threads} threads; {packages}")
        print(f"{', '.join(about['blas'])}; {about['revision']}")
        print(
            f"\n{'an iteration':52s} {'product s':>9s} {'peer s':>9s} {'faster':>8s} {'loss':>10s} {'peer loss':>10s}"
            f"   after {given.rounds + 1} iterations, per interaction",
        )
        for size in sizes:
            X = interactions(size, environment)
            for dim in dims:
                iterations_task(size, X, dim, given.rounds, given.threads)


def warm_up() -> None:
    """Compile, and load the libraries whose threads are to be pinned, before the clock starts."""
    X = movielens_sized("1M")[:100]
    start = random_factors(X, 16)
    for about in ours(16).values():
        Ours(X, *about, start, 1).step()
    with threadpool_limits(1, "blas"):
        peers(X, 16, start, 1)


if __name__ == "__main__":
    main()
