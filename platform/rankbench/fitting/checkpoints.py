"""Checkpoints of a long fit: arrays and a few values, saved atomically. The last two are kept."""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from rankbench.core.code import code_fingerprint
from rankbench.core.errors import ConfigError, first_line
from rankbench.core.files import SCRATCH, atomic_folder, make_folder, sha256_of

log = logging.getLogger(__name__)

KEPT = 2
ARRAYS, VALUES = "arrays.safetensors", "values.json"


@dataclass(frozen=True)
class State:
    """The state of a fit after `number` iterations: named arrays, and JSON values. `of`: what the fit is, if it was saved, and
    `code`: the fingerprint of the code that saved it.
    """

    number: int
    arrays: dict[str, np.ndarray]
    values: dict[str, Any]
    of: dict[str, Any] = field(default_factory=dict)
    code: str = ""


def prefixed(parts: Mapping[str, Mapping[str, np.ndarray]], separator: str = "/") -> dict[str, np.ndarray]:
    """The arrays of all parts in one dictionary, each under the name of its part, the separator and its own name."""
    return {f"{part}{separator}{name}": array for part, arrays in parts.items() for name, array in arrays.items()}


def part_of(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """The arrays whose names begin with `prefix`, without it."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


@dataclass(frozen=True)
class Checkpoints:
    """States of one fit in `folder`. Without `resume`, a fit restarts even if there are states. A state is due `every`
    seconds after the last one was saved. `resumed` is called with the number of the iteration after which a resumed fit goes
    on; 0 if nothing was saved. `of`: what the fit is, such as its method, parameters and data. The states of another fit are
    refused. With `discard`, for callers whose users would see neither this nor a warning, they are removed instead, as are
    those that other code has saved: the result would name one code and be of two. `problem` says why the last state could not
    be saved; it is empty if it was.
    """

    folder: Path
    resume: bool = False
    every: float = 0.0
    resumed: Callable[[int], None] = lambda number: None
    of: Mapping[str, Any] = field(default_factory=dict)
    discard: bool = False
    problem: list[str] = field(default_factory=list, repr=False, compare=False)
    _last: list[float] = field(default_factory=lambda: [time.monotonic()], repr=False, compare=False)

    def due(self) -> bool:
        """Whether `every` seconds have passed since the last state was saved."""
        return time.monotonic() - self._last[0] >= self.every

    def save(self, state: State) -> None:
        """Save a state. Raises StorageError if the disk is full; earlier states are not changed."""
        self._last[0] = time.monotonic()
        make_folder(self.folder)
        target = self.folder / f"{state.number:06d}"
        with atomic_folder(target, replace=True) as scratch:
            arrays = {name: np.asarray(array, order="C") for name, array in state.arrays.items()}
            save_file(arrays, scratch / ARRAYS)
            checksum = sha256_of(scratch / ARRAYS)
            about = {"sha256": checksum, "values": state.values, "code": code_fingerprint(), "of": dict(self.of)}
            (scratch / VALUES).write_text(json.dumps(about, default=str), encoding="utf-8")
        # States with larger numbers could not be read, since the fit has begun again before them.
        newest = [folder for folder in self._folders() if int(folder.name) <= state.number][-KEPT:]
        for old in set(self._folders()).difference(newest):
            shutil.rmtree(old, ignore_errors=True)
        self.problem.clear()

    def last(self) -> State | None:
        """Return the newest state that can be read, or None. Without `resume`, all states are removed first.

        Raises ConfigError if the states are of another fit.
        """
        if not self.resume:
            self.clear()
            return None
        state = self._newest()
        if state and (problem := self._of_another(state)):
            if not self.discard:
                raise ConfigError(f"--resume: {self.folder} holds another fit, {problem}; without --resume, it is replaced")
            log.warning("%s holds another fit, %s; the fit restarts from the beginning", self.folder, problem)
            self.clear()
            state = None
        elif state and state.code != code_fingerprint():
            log.warning(
                "the checkpoint of iteration %d was saved by another version of the code; the fit continues from it, "
                "and without --resume it restarts from the beginning",
                state.number,
            )
        self.resumed(state.number if state else 0)
        return state

    def _newest(self) -> State | None:
        for scratch in self.folder.glob(f"{SCRATCH}*"):  # left by a killed process, since a folder belongs to one fit
            shutil.rmtree(scratch, ignore_errors=True)
        for folder in reversed(self._folders()):
            try:
                about = json.loads((folder / VALUES).read_text(encoding="utf-8"))
                if about["sha256"] != sha256_of(folder / ARRAYS):
                    raise ValueError(f"the checksum of {ARRAYS} is not the one in {VALUES}")
                about_fit = about["values"], about.get("of") or {}, about.get("code", "")
                return State(int(folder.name), load_file(folder / ARRAYS), *about_fit)
            except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
                log.warning("%s: not readable (%s); the previous checkpoint is used", folder, first_line(error))
        return None

    def values(self) -> dict[str, Any]:
        """Return the values of the newest state that can be read, without its arrays; empty if there is none, or if other code
        has saved it. Nothing is changed, so that another process may go on saving.
        """
        for folder in reversed(self._folders()):
            try:
                about = json.loads((folder / VALUES).read_text(encoding="utf-8"))
                return dict(about["values"]) if about.get("code") == code_fingerprint() else {}
            except (OSError, ValueError, KeyError, TypeError):
                continue
        return {}

    def _of_another(self, state: State) -> str:
        """Return how the fit of a state differs from this one; empty if it does not, or if one of them is not known."""
        if self.discard and state.code != code_fingerprint():
            return "by another version of the code"
        mine = json.loads(json.dumps(dict(self.of), default=str))
        if not mine or not state.of:
            return ""
        theirs = {"device": mine.get("device")} | state.of  # an earlier version did not say the device
        names = [name for name in {**theirs, **mine} if theirs.get(name) != mine.get(name)]
        return ", ".join(f"with {name} {theirs.get(name)}, not {mine.get(name)}" for name in names)

    def clear(self) -> None:
        """Remove all states, as at the end of a fit."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _folders(self) -> list[Path]:
        """Return the folders of the saved states, oldest first."""
        return sorted(path for path in self.folder.glob("[0-9]*") if path.is_dir())
