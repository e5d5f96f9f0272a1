"""The contents of the cache: what each entry is, how large it is, and whether it is still needed."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from rankbench.core.environment import Environment
from rankbench.core.files import remove_abandoned
from rankbench.data import checksums, own
from rankbench.data.fetch import ADDRESS
from rankbench.data.prepare import code_version


@dataclass(frozen=True)
class Entry:
    """One folder or file of the cache. `kind`: raw (a download), given (a raw file that the user has put there), own (data that
    were given in memory), prepared, stale (prepared by another version of this program, so it would be prepared again),
    unfinished (left by a killed process), checksums (the stored checksums of raw files).
    """

    kind: str
    dataset: str
    path: Path
    n_bytes: int


def entries(environment: Environment) -> list[Entry]:
    """Everything in the cache."""
    found: list[tuple[str, str, Path]] = []
    for path in sorted((environment.data / "prepared").glob("*")):
        if path.name.startswith(".tmp-"):
            found.append(("unfinished", path.name, path))
        elif (path / "manifest.json").is_file():  # anything else is not of this program
            found.append(("prepared" if _is_current(path) else "stale", path.name.rpartition("-")[0], path))
    for path in sorted((environment.data / "raw").glob("*/*")):
        if path.suffix != ".lock":
            is_whole = ".part" not in path.suffixes and not path.name.startswith(".tmp-")
            downloaded = path.suffix == ADDRESS or path.with_name(path.name + ADDRESS).is_file()
            kind = "unfinished" if not is_whole else "raw" if downloaded else "given"
            found.append((kind, path.parent.name, path))
    for folder in sorted((environment.data / own.FOLDER).glob("*")):
        name = next((path.stem for path in folder.glob("*.yaml")), folder.name)
        found.append(("unfinished" if folder.name.startswith(".tmp-") else "own", name, folder))
    checksum_file = environment.data / checksums.FILE
    if checksum_file.is_file():
        found.append(("checksums", "", checksum_file))
    return [Entry(*each, size_of(each[-1])) for each in found]


def clean(chosen: list[Entry]) -> list[Entry]:
    """Remove these entries, except those that a running process is writing. Returns the removed ones."""
    removed = []
    for entry in chosen:
        if entry.kind == "unfinished":
            if entry.path.suffix == ".json" and entry.path.with_suffix("").exists():
                continue  # says from where a download of more than an hour goes on
            removed += [entry] * remove_abandoned(entry.path)
            continue
        hidden = "" if entry.kind in ("raw", "given") else "."  # as `download` names its lock
        lock = entry.path.parent / f"{hidden}{entry.path.name}.lock"
        try:
            with FileLock(lock, timeout=0):
                shutil.rmtree(entry.path) if entry.path.is_dir() else entry.path.unlink()
                removed.append(entry)
        except Timeout:
            continue
        lock.unlink(missing_ok=True)
    return removed


def _is_current(folder: Path) -> bool:
    try:
        return json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["code"] == code_version()
    except (OSError, ValueError, KeyError, TypeError):
        return False


def size_of(path: Path) -> int:
    """Size in bytes of a file, or of all files under a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())
