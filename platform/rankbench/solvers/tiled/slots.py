"""Which slot of a file holds which tile, and which slots the panels that are in work will be written to."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rankbench.solvers.tiled.graph import Tile
from rankbench.solvers.tiled.grid import Grid

EMPTY = -1


class Slots:
    """The slots of the tiles of `grid`, and the number of panels `finished`. The file itself is the business of `TileFile`;
    without it, these are the slots of a simulated file in `folder`.
    """

    def __init__(self, folder: Path, grid: Grid, n_slots: int, slots: list[int] | None = None, finished: int = 0):
        self.folder, self.grid, self.finished = folder, grid, finished
        self._slots = slots or [EMPTY] * grid.n_tiles
        self._free = sorted(set(range(n_slots)) - set(self._slots), reverse=True)
        self._reserved: dict[int, dict[Tile, int]] = {}  # number of a panel → its slots
        self._next = finished

    def slot(self, tile: Tile) -> int:
        """The slot of the tile, for `read_tile`."""
        return self._slots[_index(tile)]

    def can_reserve(self, n: int) -> bool:
        """Whether there are slots for the next panel, of n tiles."""
        return self._next in self._reserved or n <= len(self._free)

    def reserve(self, tiles: Iterable[Tile]) -> dict[Tile, int]:
        """A free slot for each tile of the next panel, for `write_tile` and `commit`. Panels are committed in this order."""
        slots = self._reserved.get(self._next) or {tile: self._free.pop() for tile in tiles}
        self._reserved[self._next] = slots
        self._next += 1
        return slots

    def release(self) -> None:
        """Begin again with the panel after the last committed one.

        Panels that were reserved get the same slots again, because a worker may still write to them, and nobody else does.
        """
        self._next = self.finished

    def commit(self, slots: dict[Tile, int]) -> None:
        """Count the panel whose tiles were written to `slots` as finished."""
        self._free += [slot for slot in map(self.slot, slots) if slot != EMPTY]
        self._slots = self._with(slots)
        del self._reserved[self.finished]
        self.finished += 1

    def _with(self, slots: dict[Tile, int]) -> list[int]:
        """The slots of all tiles if those of a panel are replaced."""
        after = list(self._slots)
        for tile, slot in slots.items():
            after[_index(tile)] = slot
        return after


def slots_of(grid: Grid, spare: int = 1) -> int:
    """Number of slots for the matrix and `spare` panels that are written at a time."""
    return grid.n_tiles + spare * grid.n_blocks


def _index(tile: Tile) -> int:
    return tile[0] * (tile[0] + 1) // 2 + tile[1]
