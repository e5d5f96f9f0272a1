"""An iteration of alternating least squares against what it cannot do without.

    python benchmarks/als_floors.py                              Gowalla and sets of the size of MovieLens 10M and 20M: minutes
    python benchmarks/als_floors.py --sizes gowalla --dims 64

Exact iALS: its floating-point operations, at the rate of float32 products of 2,048 x 2,048 measured in the same process. A row
of m interactions needs the smaller of m K (K + 1) + K³/3 + 4 K², for its K x K system, and m (m + 1) K + m³/3 + 4 m K, for the
system of its interactions in the eigenbasis of the Gram matrix. All rows need 5 K² each for that matrix and two rotations.

RG²: its gather, the sum over the interactions of each row of the vectors of the other side, by the kernel of its half step; and
the gather together with its two products for each vector, at the rate above: the Gram matrix takes K² operations, the product
with the solved K x K system 2 K². Everything is run in turn, and the median of the rounds counts.
"""

from __future__ import annotations

import argparse
import itertools
from statistics import median

import numpy as np
import scipy.sparse as sp
from als import Ours, interactions, ours, random_factors
from turns import in_turn

from rankbench.core.environment import Environment
from rankbench.core.threads import pinned
from rankbench.fitting.executors import ThreadMap
from rankbench.solvers.als.half_step import Block, add_rows
from rankbench.solvers.als.simd import LANES

ORDER = 2048


def operations(X: sp.csr_array, K: int) -> float:
    """Floating-point operations of an iteration of exact iALS."""
    total = 0.0
    for m in (np.diff(X.indptr).astype(float), np.bincount(X.indices, minlength=X.shape[1]).astype(float)):
        primal, dual = m * K * (K + 1) + K**3 / 3 + 4 * K**2, m * (m + 1) * K + m**3 / 3 + 4 * m * K
        total += np.minimum(primal, dual).sum() + 5 * K**2 * len(m)
    return total


class Product:
    """A product of two matrices by as many threads as the rest, each of which computes its columns."""

    def __init__(self, executor: ThreadMap):
        self.executor, self.A = executor, np.ones((ORDER, ORDER), np.float32, order="F")
        self.parts = np.array_split(self.A, executor.workers, axis=1)

    def step(self) -> None:
        for _ in self.executor.map(columns, self.parts, self.A):
            pass


def columns(part: np.ndarray, A: np.ndarray) -> np.ndarray:
    return A @ part


class Gather:
    """The sums of the vectors of every row's interactions, of users and then of items."""

    def __init__(self, rg2: Ours):
        self.halves = [(rg2.user_step, padded(rg2.Q)), (rg2.item_step, padded(rg2.P))]

    def step(self) -> None:
        for half, Y in self.halves:
            for _ in half.executor.map(sums, half.blocks, half.executor.put(Y)):
                pass


def padded(Y: np.ndarray) -> np.ndarray:
    """As a half step has it: a multiple of LANES columns, and a row of zeros at the end."""
    return np.pad(Y, ((0, 1), (0, -Y.shape[1] % LANES)))


def sums(block: Block, Y: np.ndarray) -> np.ndarray:
    x = np.empty((len(block.rows), Y.shape[1]), Y.dtype)
    add_rows(block.indptr, block.indices, block.t0, block.t1, np.zeros(Y.shape[1], Y.dtype), Y, x)
    return x


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="gowalla,10M,20M")
    parser.add_argument("--dims", default="64,128", help="lengths of the vectors, K")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    environment = Environment.from_env()
    with pinned(given.threads):
        titles = ("exact s", "floor s", "ratio", "GFLOP/s", "RG² s", "gather s", "ratio", "+products", "ratio")
        print(f"{'':16s} " + " ".join(f"{title:>9s}" for title in titles))
        for size, dim in itertools.product(given.sizes.split(","), map(int, given.dims.split(","))):
            X = interactions(size, environment)
            start = random_factors(X, dim)
            known = ours(dim)
            exact, rg2 = (Ours(X, *known[name], start, given.threads) for name in ("iALS exact", "RG²"))
            steps = {"exact": exact, "rg2": rg2, "gather": Gather(rg2), "product": Product(rg2.executor)}
            taken = in_turn({name: each.step for name, each in steps.items()}, given.rounds)
            found = {name: median(seconds) for name, seconds in taken.items()}
            rate = 2 * ORDER**3 / found["product"]
            floor = operations(X, dim) / rate
            with_products = found["gather"] + 3 * sum(X.shape) * dim**2 / rate
            print(
                f"{f'{size}, K={dim}':16s} {found['exact']:9.3f} {floor:9.3f} {found['exact'] / floor:8.2f}x {rate / 1e9:9.0f} "
                f"{found['rg2']:9.3f} {found['gather']:9.3f} {found['rg2'] / found['gather']:8.2f}x "
                f"{with_products:9.3f} {found['rg2'] / with_products:8.2f}x",
                flush=True,
            )


if __name__ == "__main__":
    main()
