"""The folders beside a model in which its fit keeps checkpoints and tiles. They are removed once the model is saved."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from rankbench.core.errors import require
from rankbench.core.files import SCRATCH
from rankbench.fitting.checkpoints import ARRAYS, VALUES
from rankbench.solvers.tiled.store import LOCK, STATE, TILES

WRITTEN = {ARRAYS, VALUES, TILES, STATE, LOCK}  # names of all files that a fit writes there


def working_folders(model: Path) -> tuple[Path, Path]:
    """The folders of checkpoints and of tiles. Raises ConfigError if one holds a file that no fit has written."""
    folders = model.with_name(f"{model.name}.checkpoints"), model.with_name(f"{model.name}.tiles")
    for folder in folders:
        foreign = next((path for path in folder.rglob("*") if path.is_file() and not _is_written(path)), None)
        if folder.is_file():
            foreign = folder
        require(foreign is None, f"{foreign}: in the way of this fit, which would remove {folder}; choose another --out")
    return folders


def remove(folders: Iterable[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _is_written(path: Path) -> bool:
    return path.name in WRITTEN or any(name.startswith(SCRATCH) for name in (path.name, path.parent.name))
