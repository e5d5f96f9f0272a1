"""Tiles in one file, read and written explicitly, and replaced one panel at a time, so that a killed run can continue.

The file is not memory-mapped, because mapped pages would count as memory of the process. New tiles are written to free slots;
then `panel.json` is replaced atomically to state which slots hold the matrix. Until then all previous tiles remain.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from rankbench.core.code import code_fingerprint
from rankbench.core.errors import StorageError
from rankbench.core.files import disk_errors_are_clear, make_folder, write_json
from rankbench.solvers.tiled.graph import Tile, panels
from rankbench.solvers.tiled.grid import Grid

TILES, STATE, LOCK = "tiles.bin", "panel.json", "lock"
EMPTY = -1


class Slots:
    """Which slot of a file holds which tile of `grid`, which slots the panels in work will be written to, and the number of
    panels `finished`. `TileFile` has the file itself; without it, these are the slots of a simulated file in `folder`.
    """

    def __init__(self, folder: Path, grid: Grid, n_slots: int, slots: list[int] | None = None, finished: int = 0):
        self.folder, self.grid, self.finished = folder, grid, finished
        self._slots = slots or [EMPTY] * grid.n_tiles
        self._free = sorted(set(range(n_slots)) - set(self._slots), reverse=True)
        self._reserved: dict[int, dict[Tile, int]] = {}  # number of a panel → its slots
        self.writer = ""  # what `write_tile` must name
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

        Panels that were reserved get the same slots again: a worker may be writing to them, and would write the same bits.
        """
        self._next = self.finished

    def commit(self, slots: dict[Tile, int]) -> None:
        """Count the panel whose tiles were written to `slots` as finished."""
        after = list(self._slots)
        for tile, slot in slots.items():
            after[_index(tile)] = slot
        self._save(self.folder, self.finished + 1, after)
        self._free += [slot for slot in map(self.slot, slots) if slot != EMPTY]
        self._slots = after
        del self._reserved[self.finished]
        self.finished += 1

    def _save(self, folder: Path, finished: int, slots: list[int]) -> None:
        """State in `folder`, atomically, which slots hold the matrix; of a simulated file, nothing."""


def slots_of(grid: Grid, spare: int = 1) -> int:
    """Number of slots for the matrix and `spare` panels that are written at a time."""
    return grid.n_tiles + spare * grid.n_blocks


def _index(tile: Tile) -> int:
    return tile[0] * (tile[0] + 1) // 2 + tile[1]


class TileFile(Slots):
    """The tiles of one matrix in a folder, and the number of panels `finished`. One process may write, others may read.

    `code` is the fingerprint of the code that computed the first panel, and `earlier` the seconds of earlier runs.
    """

    def __init__(
        self,
        folder: Path,
        grid: Grid,
        problem: dict[str, Any],
        finished: int,
        slots: list[int],
        lock: IO | None,
        code: str = "",
        earlier: float = 0.0,
    ):
        path = folder / TILES
        try:
            self._file = path.open("r+b" if lock else "rb", buffering=0)
        except FileNotFoundError:
            raise StorageError(f"{path}: the tiles are missing; compute the inverse again") from None
        n_slots = max(slots_of(grid), os.fstat(self._file.fileno()).st_size // grid.tile_bytes)
        super().__init__(folder, grid, n_slots, slots, finished)
        self.problem, self._lock, self.code, self.earlier = problem, lock, code or code_fingerprint(), earlier
        self._opened = time.perf_counter()
        if lock:
            self._name_writer()

    @classmethod
    def create(cls, folder: Path, grid: Grid, problem: dict[str, Any], spare: int = 1) -> TileFile:
        """Create an empty file in place of one in `folder`, and reserve its disk space, also for `spare` panels at a time that
        are written. Raises StorageError if that fails.
        """
        lock = _lock(folder)
        path, n_bytes = folder / TILES, slots_of(grid, spare) * grid.tile_bytes
        with disk_errors_are_clear(path):
            (folder / STATE).unlink(missing_ok=True)
            # A process that reads the previous matrix keeps its open file.
            path.unlink(missing_ok=True)
            free = shutil.disk_usage(folder).free
            try:
                if n_bytes > free:
                    raise OSError(errno.ENOSPC, "")
                with path.open("xb") as file:
                    if hasattr(os, "posix_fallocate"):
                        os.posix_fallocate(file.fileno(), 0, n_bytes)
                    else:  # macOS: the space was there a moment ago, but it is not reserved
                        file.truncate(n_bytes)
            except OSError as error:
                _discard(folder)
                lock.close()
                if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                    sizes = f"the tiles need {n_bytes / 1e9:.1f} GB of disk, {free / 1e9:.1f} GB are free"
                    raise StorageError(f"{path}: {sizes}") from None
                raise
        return cls(folder, grid, problem, 0, [EMPTY] * grid.n_tiles, lock)

    @classmethod
    def open(cls, folder: Path, writes: bool = False) -> TileFile | None:
        """Open the file in `folder`; None if it has no finished panel. Raises StorageError if its state is invalid."""
        if not (folder / STATE).exists():
            return None
        lock = _lock(folder) if writes else None
        try:
            *state, code, earlier = _state_in(folder)
            return cls(folder, *state, lock, code, earlier)
        except BaseException as error:
            if lock:
                lock.close()
            if isinstance(error, FileNotFoundError):
                return None
            raise

    def read(self, tile: Tile, buffer: np.ndarray) -> np.ndarray:
        """Read the tile into `buffer` (tile²,) and return it as an array. Threads may read concurrently."""
        array = self.grid.view(buffer, tile)
        _transfer(os.preadv, self._file.fileno(), array, self.slot(tile) * self.grid.tile_bytes, self.folder / TILES)
        return array

    def release(self) -> None:
        """Begin again as `Slots.release` does. Tasks that were given the writer of before can write no more: one that starts
        late would overwrite whatever tile has its slot by then.
        """
        super().release()
        self._name_writer()

    def _name_writer(self) -> None:
        assert self._lock
        self.writer = secrets.token_hex(8)
        with disk_errors_are_clear(self.folder / LOCK):
            self._lock.seek(0)
            self._lock.write(self.writer)  # as long as the name before it
            self._lock.flush()
            os.fsync(self._lock.fileno())  # other nodes read it, through a network

    def replace(self, tiles: Iterable[tuple[Tile, np.ndarray]]) -> None:
        """Write the tiles of a panel and count it as finished, atomically. Raises StorageError if the disk fails."""
        arrays = dict(tiles)
        super().release()
        slots = self.reserve(arrays)
        path = self.folder / TILES
        with disk_errors_are_clear(path):
            for tile, array in arrays.items():
                _transfer(os.pwritev, self._file.fileno(), array, slots[tile] * self.grid.tile_bytes, path)
            _flush(self._file.fileno())
        self.commit(slots)

    def keep_in(self, folder: Path) -> None:
        """Store the same tiles in `folder` as well. From now on the tiles must not be changed in either folder."""
        self.require_own()
        make_folder(folder)
        with disk_errors_are_clear(folder / TILES):
            try:
                os.link(self.folder / TILES, folder / TILES)
            except OSError as error:
                if error.errno not in (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK):
                    raise
                shutil.copyfile(self.folder / TILES, folder / TILES)
                with (folder / TILES).open("r+b") as file:
                    _flush(file.fileno())
            self._save(folder, self.finished, self._slots)

    def require_own(self) -> None:
        """Raise StorageError if the folder now holds another matrix than the one that is open."""
        path = self.folder / TILES
        try:
            same = os.path.samestat(os.fstat(self._file.fileno()), path.stat())
        except FileNotFoundError:
            same = False
        if not same:
            raise StorageError(f"{path}: was deleted or replaced by another matrix; give each model its own folder")

    def discard(self) -> None:
        """Remove all files, if no later run can continue from them."""
        _discard(self.folder)

    def _save(self, folder: Path, finished: int, slots: list[int]) -> None:
        state = {"problem": self.problem, "tile": self.grid.tile, "finished": finished, "slots": slots}
        state |= {"code": self.code, "seconds": self.earlier + time.perf_counter() - self._opened}
        write_json(folder / STATE, state)

    def close(self) -> None:
        self._file.close()
        if self._lock:
            self._lock.close()


def _state_in(folder: Path) -> tuple[Grid, dict[str, Any], int, list[int], str, float]:
    """What `panel.json` states: grid, problem, number of finished panels, slots, code and seconds. Raises StorageError for what
    cannot be.
    """
    try:
        state = json.loads((folder / STATE).read_text(encoding="utf-8"))
        problem, slots, finished = state["problem"], state["slots"], int(state["finished"])
        code, seconds = str(state.get("code", "an earlier version")), float(state.get("seconds", 0))
        grid = Grid(problem["n"], state["tile"], np.dtype(problem["dtype"]))
        size = (folder / TILES).stat().st_size if (folder / TILES).exists() else 0
        # A tile has a slot from the panel of its column of L on.
        least = EMPTY if finished < grid.n_blocks else 0
        most = max(slots_of(grid), size // grid.tile_bytes)
        known = grid.dtype in (np.float32, np.float64) and len(slots) == grid.n_tiles
        if not known or not 0 < finished <= len(panels(grid.n_blocks)):
            raise ValueError
        if any(type(slot) is not int or not least <= slot < most for slot in slots):
            raise ValueError
    except (ArithmeticError, KeyError, RecursionError, TypeError, ValueError):
        raise StorageError(f"{folder / STATE}: names invalid tiles; compute the inverse again") from None
    return grid, problem, finished, slots, code, seconds


def read_tile(folder: Path, slot: int, grid: Grid, tile: Tile) -> np.ndarray:
    """As `TileFile.read`, for a process that has only the folder and the slot."""
    array = grid.view(np.empty(grid.tile**2, grid.dtype), tile)
    with disk_errors_are_clear(folder / TILES), (folder / TILES).open("rb", buffering=0) as file:
        _transfer(os.preadv, file.fileno(), array, slot * grid.tile_bytes, folder / TILES)
    return array


def write_tile(array: np.ndarray, folder: Path, slot: int, grid: Grid, writer: str) -> None:
    """Write a tile to its slot and flush it to the disk. Raises StorageError if the disk fails, or if `writer` is not the one
    that the file has now.
    """
    with disk_errors_are_clear(folder / LOCK):
        if (folder / LOCK).read_text(encoding="ascii") != writer:
            raise StorageError(f"{folder}: the panels of this task were begun again, by this run or by another")
    with disk_errors_are_clear(folder / TILES), (folder / TILES).open("r+b", buffering=0) as file:
        _transfer(os.pwritev, file.fileno(), array, slot * grid.tile_bytes, folder / TILES)
        _flush(file.fileno())


def _flush(file: int) -> None:
    getattr(os, "fdatasync", os.fsync)(file)  # which macOS does not have


def _transfer(call: Callable, file: int, array: np.ndarray, offset: int, path: Path) -> None:
    """Read or write a whole array: one call of the system may transfer less than requested."""
    data, done = memoryview(array.ravel(order="K")).cast("B"), 0
    while done < len(data):
        moved = call(file, [data[done:]], offset + done)
        if not moved:
            raise StorageError(f"{path}: shorter than it should be; compute the inverse again")
        done += moved


def _discard(folder: Path) -> None:
    """Remove all files. The caller must hold the lock, because another process may be creating its own files."""
    for name in (STATE, TILES, LOCK):
        (folder / name).unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()


def _lock(folder: Path) -> IO:
    """Lock the folder until the returned file is closed or the process ends, and remove half-written files of a killed run."""
    make_folder(folder)
    with disk_errors_are_clear(folder / LOCK):
        (folder / LOCK).touch()
        lock = (folder / LOCK).open("r+", encoding="ascii")  # not emptied: it may name the writer of another process
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        busy = isinstance(error, BlockingIOError)
        why = "another process writes tiles there" if busy else f"cannot be locked ({error.strerror})"
        raise StorageError(f"{folder}: {why}; choose another folder") from None
    for left_behind in folder.glob(f".tmp-*-{STATE}"):
        left_behind.unlink()
    return lock
