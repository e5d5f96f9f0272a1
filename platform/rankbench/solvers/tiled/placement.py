"""Where tiles live: block-cyclic over a grid of nodes.

Node (r, c) of an R x C grid has the tiles whose row is r modulo R and whose column is c modulo C. A task on tile (i, k) reads
tiles of row i and of row or column k, so a tile is needed by a row and a column of the grid, R + C − 1 nodes of R · C, and each
node has its share of all panels together.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import isqrt

from rankbench.solvers.tiled.graph import Tile


@dataclass(frozen=True)
class Placement:
    """Tiles on `nodes` equal nodes, numbered from 0, in the grid of them that is closest to a square."""

    nodes: int

    @property
    def rows(self) -> int:
        return next(r for r in range(isqrt(self.nodes), 0, -1) if self.nodes % r == 0)

    @property
    def columns(self) -> int:
        return self.nodes // self.rows

    def node(self, tile: Tile) -> int:
        return tile[0] % self.rows * self.columns + tile[1] % self.columns

    def by_node(self, tiles: Iterable[Tile]) -> dict[int, list[Tile]]:
        """The tiles of each node that has some."""
        found: dict[int, list[Tile]] = {}
        for tile in tiles:
            found.setdefault(self.node(tile), []).append(tile)
        return found
