"""C = (XᵀX + odds · diag + ridge · I)^-1 within a given memory, for any n_items, by tiles that are stored in a file.

`inverse.linalg` does the same in memory; `graph.py` explains the operations on tiles.
"""

from __future__ import annotations

import hashlib
import logging
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from rankbench.core.code import code_fingerprint
from rankbench.core.errors import ConfigError
from rankbench.fitting.flow import Flow
from rankbench.fitting.method import Shift
from rankbench.solvers.inverse.linalg import NotPositiveDefinite, not_positive_definite
from rankbench.solvers.tiled.flow import cluster_tile, invert_on, spare_panels
from rankbench.solvers.tiled.gram import ShiftedGram
from rankbench.solvers.tiled.graph import CHOLESKY, Panel, Task, Tile, panels, steps
from rankbench.solvers.tiled.grid import STREAM, choose_grid
from rankbench.solvers.tiled.matrix import TiledMatrix
from rankbench.solvers.tiled.operations import Change
from rankbench.solvers.tiled.store import TileFile

log = logging.getLogger(__name__)


def tiled_inverse(
    X: sp.csr_array,
    shift: Shift,
    folder: Path,
    memory: int,
    dtype: type = np.float32,
    tile: int | None = None,
    resume: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
    flow: Flow | None = None,
    discard: bool = False,
) -> TiledMatrix:
    """Compute the inverse of the shifted Gram of X (n_users, n_items), 0/1 CSR with sorted columns, as a matrix in `folder`.

    It needs at most `memory` bytes beside X and about n_items² · itemsize / 2 bytes of disk, reads n_items³/(2 tile) numbers
    and takes n_items³ flops, which `progress(done, total)` counts. `tile` is the number of rows per tile; by default it is as
    large as `memory` allows. With `resume`, a run that was killed continues after its last finished panel and gives the same
    bits, for any number of threads. `discard`: tiles of other data, of another configuration or of other code are replaced.
    With a `flow`, its workers do the work: they must all see `folder`, and `memory` limits each of them. Raises StorageError
    before any work if memory or disk do not suffice, NumericalError if the matrix is not positive definite to working
    precision, and ConfigError if `resume` finds the tiles of another matrix.
    """
    dtype = np.dtype(dtype)
    gram = ShiftedGram(X, shift, dtype)
    problem = {"n": X.shape[1], "dtype": dtype.name, "odds": shift.odds, "ridge": shift.ridge, "data": _fingerprint(X)}
    store = _continued(folder, problem, discard) if resume else None
    earlier = store.earlier if store else 0.0
    try:
        if store is not None:
            tile = store.grid.tile
        elif flow and tile is None:
            tile = cluster_tile(X.shape[1], flow.workers, flow.pool.threads)
        grid = choose_grid(X.shape[1], dtype, memory, gram.least_workspace, tile)
        if store is None:
            store = TileFile.create(folder, grid, problem, spare_panels(grid.n_blocks) if flow else 1)
        if flow:
            invert_on(flow, store, gram, progress)
        else:
            _run(store, gram, progress)
    except BaseException as error:
        # Tiles that would save a later run no work are not left on the disk.
        if store is not None and (store.finished == 0 or isinstance(error, NotPositiveDefinite)):
            store.discard()
        if isinstance(error, NotPositiveDefinite):
            raise not_positive_definite(error.row, X.shape[1], dtype) from None
        raise
    finally:
        if store is not None:
            store.close()
    return TiledMatrix(folder, earlier)


def _continued(folder: Path, problem: dict[str, Any], discard: bool) -> TileFile | None:
    """Open the tiles that an earlier run left, if there are any that can be gone on with."""
    store = TileFile.open(folder, writes=True)
    if store is None:
        return None
    known, other = store.code == code_fingerprint(), store.problem != problem
    what = "tiles of other data or of another configuration" if other else "tiles by another version of the code"
    if discard and (other or not known):
        log.warning("%s holds %s; the fit restarts from the beginning", folder, what)
        store.discard()
        store.close()
        return None
    if other:
        store.close()
        raise ConfigError(f"{folder}: holds {what}; choose another folder, or omit resume")
    if not known:
        log.warning("%s holds %s; the fit continues from them, and without --resume it restarts", folder, what)
    return store


def _run(store: TileFile, gram: ShiftedGram, progress: Callable[[int, int], None]) -> None:
    grid = store.grid
    panel_memory = np.empty((grid.n_blocks, grid.tile**2), grid.dtype)
    # The Gram of a panel is computed before the panel's first tile is read, so both can share this memory.
    workspace = np.empty(max(STREAM * grid.tile_bytes, gram.least_workspace), np.uint8)
    done = 0.0
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(1) as reader:
        for number, panel in enumerate(panels(grid.n_blocks)):
            if number >= store.finished:
                _work(panel, store, gram, panel_memory, workspace, reader)
            done += panel.flops(grid.side)
            progress(round(done), grid.n**3)


def _work(
    panel: Panel, store: TileFile, gram: ShiftedGram, memory: np.ndarray, workspace: np.ndarray, reader: ThreadPoolExecutor
) -> None:
    grid = store.grid
    own = {tile: grid.view(buffer, tile) for tile, buffer in zip(panel.tiles, memory, strict=False)}
    if panel.phase == CHOLESKY:
        gram.column(panel.k, grid, memory[: len(own)], workspace)
    else:
        for tile, buffer in zip(own, memory, strict=False):
            store.read(tile, buffer)
    buffers = workspace[: STREAM * grid.tile_bytes].view(grid.dtype).reshape(STREAM, -1)
    for task, others in with_tiles(panel, store, buffers, reader):
        operands = [own[tile] if tile in own else others[tile] for tile in task.reads]
        Change.of(task, grid)(own[task.out], *operands)
    store.replace(own.items())


def with_tiles(
    panel: Panel, store: TileFile, buffers: np.ndarray, reader: ThreadPoolExecutor
) -> Iterator[tuple[Task, dict[Tile, np.ndarray]]]:
    """Yield every task with the held tiles, which include those that it reads from other panels.

    `buffers` (more than HELD, tile²) hold one tile each. A tile stays in its buffer until HELD other tiles have been used after
    it, while the remaining buffers are being filled.
    """
    wanted = (tile for _, fetched, _ in steps(panel) for tile in fetched)
    buffer_of: dict[Tile, np.ndarray] = {}
    held: dict[Tile, np.ndarray] = {}
    pending = deque()

    def fetch(buffer: np.ndarray) -> None:
        tile = next(wanted, None)
        if tile is not None:
            pending.append((tile, buffer, reader.submit(store.read, tile, buffer)))

    for buffer in buffers:
        fetch(buffer)
    try:
        for task, fetched, dropped in steps(panel):
            for tile in fetched:
                tile, buffer_of[tile], read = pending.popleft()
                held[tile] = read.result()
            for tile in dropped:
                del held[tile]
                fetch(buffer_of.pop(tile))
            yield task, held
    finally:
        wait([read for _, _, read in pending if not read.cancel()])  # because the caller may reuse the buffers


def _fingerprint(X: sp.csr_array) -> str:
    digest = hashlib.sha256(repr(X.shape).encode("ascii"))
    for array in (X.indptr, X.indices):
        digest.update(np.ascontiguousarray(array))
    return digest.hexdigest()
