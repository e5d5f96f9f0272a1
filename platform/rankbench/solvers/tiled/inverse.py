"""C = (XᵀX + odds · diag + ridge · I)^-1 in a given memory, whatever n_items is: by tiles that lie in a file."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from rankbench.core.errors import NumericalError
from rankbench.fitting.executors import Flow
from rankbench.fitting.method import Shift
from rankbench.solvers.inverse.linalg import not_positive_definite
from rankbench.solvers.tiled.flow import cluster_tile, invert_on
from rankbench.solvers.tiled.gram import ShiftedGram
from rankbench.solvers.tiled.graph import CHOLESKY, Panel, flops, panels
from rankbench.solvers.tiled.grid import STREAM, choose_grid
from rankbench.solvers.tiled.kernels import KERNELS, NotPositiveDefinite
from rankbench.solvers.tiled.matrix import TiledMatrix
from rankbench.solvers.tiled.store import TileFile, require_same
from rankbench.solvers.tiled.stream import with_tiles


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
) -> TiledMatrix:
    """The inverse of the shifted Gram of X (n_users, n_items), 0/1 CSR with sorted columns, as a matrix in `folder`.

    It takes at most `memory` bytes beside X and about n_items² · itemsize / 2 bytes of disk, reads n_items³/(2 tile) numbers
    and does n_items³ flops, which `progress(done, total)` counts. `tile`: rows of a tile, by default as many as fit. With
    `resume` a run that was killed goes on after its last finished panel, to the same bits, whatever the number of threads.
    With a `flow` its workers do the work, who must all see `folder`; `memory` then bounds what each of them takes.
    Raises StorageError before any work when memory or disk do not suffice, NumericalError when the matrix is not positive
    definite to working precision, ConfigError when `resume` meets another problem.
    """
    dtype = np.dtype(dtype)
    gram = ShiftedGram(X, shift, dtype)
    problem = {"n": X.shape[1], "dtype": dtype.name, "odds": shift.odds, "ridge": shift.ridge, "data": _fingerprint(X)}
    store = TileFile.open(folder, writes=True) if resume else None
    try:
        if store is not None:
            require_same(store, problem)
            tile = store.grid.tile
        elif flow and tile is None:
            tile = cluster_tile(X.shape[1], flow.workers)
        grid = choose_grid(X.shape[1], dtype, memory, gram.least_workspace, tile)
        if store is None:
            store = TileFile.create(folder, grid, problem)
        if flow:
            invert_on(flow, store, gram, progress)
        else:
            _run(store, gram, progress)
    except BaseException as error:
        # What would spare a later run no work is not left on the disk.
        if store is not None and (store.finished == 0 or isinstance(error, NumericalError)):
            store.discard()
        raise
    finally:
        if store is not None:
            store.close()
    return TiledMatrix(folder)


def _run(store: TileFile, gram: ShiftedGram, progress: Callable[[int, int], None]) -> None:
    grid = store.grid
    panel_memory = np.empty((grid.n_blocks, grid.tile**2), grid.dtype)
    # The Gram of a panel is made before the panel's first tile is read, so they share their workspace.
    workspace = np.empty(max(STREAM * grid.tile_bytes, gram.least_workspace), np.uint8)
    done = 0.0
    with threadpool_limits(1, "blas"), ThreadPoolExecutor(1) as reader:
        for number, panel in enumerate(panels(grid.n_blocks)):
            if number >= store.finished:
                _work(panel, store, gram, panel_memory, workspace, reader)
            done += sum(flops(task, grid.side) for task in panel.tasks())
            progress(round(done), grid.n**3)


def _work(
    panel: Panel,
    store: TileFile,
    gram: ShiftedGram,
    memory: np.ndarray,
    workspace: np.ndarray,
    reader: ThreadPoolExecutor,
) -> None:
    grid = store.grid
    mine = {tile: grid.view(buffer, tile) for tile, buffer in zip(panel.tiles, memory, strict=False)}
    if panel.phase == CHOLESKY:
        gram.column(panel.k, grid, memory[: len(mine)], workspace)
    else:
        for tile, buffer in zip(mine, memory, strict=False):
            store.read(tile, buffer)
    buffers = workspace[: STREAM * grid.tile_bytes].view(grid.dtype).reshape(STREAM, -1)
    for task, others in with_tiles(panel, store, buffers, reader):
        operands = [mine[tile] if tile in mine else others[tile] for tile in task.reads]
        try:
            KERNELS[task.op](mine[task.out], *operands)
        except NotPositiveDefinite as error:
            raise not_positive_definite(panel.k * grid.tile + error.row, grid.n, grid.dtype) from None
    store.replace(mine.items())


def _fingerprint(X: sp.csr_array) -> str:
    digest = hashlib.sha256(repr(X.shape).encode("ascii"))
    for array in (X.indptr, X.indices):
        digest.update(np.ascontiguousarray(array))
    return digest.hexdigest()
