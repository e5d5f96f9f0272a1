"""The inverse of a symmetric positive definite matrix as a stream of tile operations: A = LLᵀ, M = L^-1, A^-1 = MᵀM.

The lower triangle is cut into n_blocks · (n_blocks + 1)/2 tiles, (i, j) with i >= j, and each of the three steps overwrites
it in place: n³ flops in all. A panel is a block column of L, or a block row of M or of A^-1. It reads only finished panels
(left-looking), and stays in memory while every other tile that it needs is read once: n_blocks³/2 tiles in all. This file does
not know where tiles are stored or who computes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

Tile = tuple[int, int]

CHOLESKY, INVERSE, PRODUCT = "cholesky", "inverse", "product"
HELD = 2  # the most tiles from outside the panel that a task reads

# Flops as a multiple of height x width x inner dimension; with a triangular operand they are a half or a sixth of a product's.
_SHARE = {"subtract_product_t": 2.0, "add_product": 2.0, "add_product_t": 2.0} | dict.fromkeys(
    ("cholesky", "invert", "square_t"), 1 / 3
)


class Task(NamedTuple):
    """`op`, a name in `kernels.KERNELS`, overwrites tile `out` of its panel from itself and `reads`."""

    op: str
    out: Tile
    reads: tuple[Tile, ...] = ()


@dataclass(frozen=True)
class Panel:
    """Tiles that are computed together. They replace the stored tiles only after all tasks, so a panel can be repeated.

    The tiles of a Cholesky panel start as block column `k` of A, those of other panels as they are stored.
    """

    phase: str
    k: int
    n_blocks: int

    @property
    def tiles(self) -> list[Tile]:
        if self.phase == CHOLESKY:
            return [(i, self.k) for i in range(self.k, self.n_blocks)]
        return [(self.k, j) for j in range(self.k + 1)]

    def tasks(self) -> Iterator[Task]:
        """The tasks, in an order in which they can be executed."""
        return {CHOLESKY: _cholesky, INVERSE: _inverse, PRODUCT: _product}[self.phase](self.k, self.n_blocks)

    def flops(self, side: Callable[[int], int]) -> float:
        """As the function `flops`, of all tasks."""
        return sum(flops(task, side) for task in self.tasks())


def panels(n_blocks: int) -> list[Panel]:
    """All panels of the inverse, in order."""
    return [Panel(phase, k, n_blocks) for phase in (CHOLESKY, INVERSE, PRODUCT) for k in range(n_blocks)]


def _cholesky(k: int, n_blocks: int) -> Iterator[Task]:
    """L_ik = (A_ik − Σ_{j<k} L_ij L_kjᵀ) L_kk^-T for i > k, and L_kk from what remains of A_kk."""
    for j in range(k):
        yield Task("subtract_square", (k, k), ((k, j),))
        for i in range(k + 1, n_blocks):
            yield Task("subtract_product_t", (i, k), ((i, j), (k, j)))
    yield Task("cholesky", (k, k))
    for i in range(k + 1, n_blocks):
        yield Task("divide_t", (i, k), ((k, k),))


def _inverse(k: int, n_blocks: int) -> Iterator[Task]:
    """M_kj = Σ_{j<=l<k} P_kl M_lj with P_k = −M_kk L_k. Only column j uses P_kj, and its sum replaces P_kj."""
    yield Task("invert", (k, k))
    for j in range(k):
        yield Task("multiply_left_minus", (k, j), ((k, k),))
    for j in range(k):
        yield Task("multiply_right", (k, j), ((j, j),))
        for row in range(j + 1, k):
            yield Task("add_product", (k, j), ((k, row), (row, j)))


def _product(k: int, n_blocks: int) -> Iterator[Task]:
    """C_kj = Σ_{l>=k} M_lkᵀ M_lj for j <= k. Later rows of C do not read this row of M."""
    for j in range(k):
        yield Task("multiply_left_t", (k, j), ((k, k),))
    yield Task("square_t", (k, k))
    for row in range(k + 1, n_blocks):
        yield Task("add_square_t", (k, k), ((row, k),))
        for j in range(k):
            yield Task("add_product_t", (k, j), ((row, k), (row, j)))


def steps(panel: Panel) -> Iterator[tuple[Task, list[Tile], list[Tile]]]:
    """Every task with the tiles to fetch for it, and those to drop then, if the HELD tiles used last are kept."""
    own, held = set(panel.tiles), list[Tile]()
    for task in panel.tasks():
        others = [tile for tile in task.reads if tile not in own]
        fetched = [tile for tile in others if tile not in held]
        held = [tile for tile in held if tile not in others] + others
        dropped, held = held[:-HELD], held[-HELD:]
        yield task, fetched, dropped


def flops(task: Task, side: Callable[[int], int]) -> float:
    """Number of additions and multiplications of a task, to leading order; `side(i)` is the number of rows of block i."""
    first = task.reads[0] if task.reads else task.out
    inner = side(first[0] if task.op in ("add_square_t", "add_product_t") else first[1])
    return _SHARE.get(task.op, 1.0) * side(task.out[0]) * side(task.out[1]) * inner
