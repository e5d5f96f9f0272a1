"""The state of a fit that goes on for long: arrays and a few values, saved whole or not at all, the last two kept."""

from __future__ import annotations

import json
import logging
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from rankbench.core.files import atomic_folder, make_folder, sha256_of

log = logging.getLogger(__name__)

KEPT = 2
ARRAYS = "arrays.safetensors"


@dataclass(frozen=True)
class State:
    """After `number` iterations: named arrays, and values that JSON holds."""

    number: int
    arrays: dict[str, np.ndarray]
    values: dict[str, Any]


@dataclass(frozen=True)
class Checkpoints:
    """States of one fit under `folder`. Without `resume` a fit starts anew, whatever lies there. A state is due
    `every` seconds after the last one that was saved.
    """

    folder: Path
    resume: bool = False
    every: float = 0.0
    _last: list[float] = field(default_factory=lambda: [time.monotonic()], repr=False, compare=False)

    def due(self) -> bool:
        """Whether `every` seconds have passed since the last state was saved."""
        return time.monotonic() - self._last[0] >= self.every

    def save(self, state: State) -> None:
        """Raises StorageError when the disk is full; what was saved before stays as it is."""
        self._last[0] = time.monotonic()
        make_folder(self.folder)
        target = self._place(state.number)
        with atomic_folder(target, replace=True) as scratch:
            arrays = {name: np.asarray(array, order="C") for name, array in state.arrays.items()}
            save_file(arrays, scratch / ARRAYS)
            about = {"sha256": sha256_of(scratch / ARRAYS), "values": state.values}
            (scratch / "values.json").write_text(json.dumps(about), encoding="utf-8")
        for old in self._places()[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)

    def last(self) -> State | None:
        """The newest state that can be read, or None; without `resume` all are removed first."""
        if not self.resume:
            self.clear()
        for scratch in self.folder.glob(".tmp-*"):  # of a killed process: a folder belongs to one fit
            shutil.rmtree(scratch, ignore_errors=True)
        for place in reversed(self._places()):
            try:
                about = json.loads((place / "values.json").read_text(encoding="utf-8"))
                if about["sha256"] != sha256_of(place / ARRAYS):
                    raise ValueError(f"{ARRAYS} has another checksum than values.json says")
                return State(int(place.name), load_file(place / ARRAYS), about["values"])
            except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
                log.warning("%s: not readable (%s); the one before it is used", place, str(error).splitlines()[0])
        return None

    def clear(self) -> None:
        """Remove all: the fit has come to its end."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _place(self, number: int) -> Path:
        return self.folder / f"{number:06d}"

    def _places(self) -> list[Path]:
        """Oldest first."""
        return sorted(path for path in self.folder.glob("[0-9]*") if path.is_dir())
