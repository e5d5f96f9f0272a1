"""The files of a dataset in a folder or an archive as some library writes it: which name is which part."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from rankbench.core.errors import DataError

ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz")
DEEPEST, MOST_NAMES = 4, 10_000  # of a folder: a dataset is not a home folder
# The names that libraries give to a part.
PART_WORDS = {"train": "train", "training": "train", "valid": "valid", "val": "valid", "validation": "valid", "test": "test"}


@dataclass(frozen=True)
class Layout:
    """The files of a dataset, by their names in its folder or archive. `parts`: part → name; `companions`: what the reader
    calls a further file → name.
    """

    parts: dict[str, str]
    companions: dict[str, str] = field(default_factory=dict)


Finder = Callable[[list[str], str], Layout]


def is_archive(path: Path) -> bool:
    return path.name.lower().endswith(ARCHIVES)


def names_below(folder: Path) -> list[str]:
    """The names of the files below `folder`, relative to it, sorted. Hidden files and links to folders are left out."""
    names = []
    for root, folders, files in os.walk(folder):
        here = Path(root).relative_to(folder)
        folders[:] = sorted(each for each in folders if not each.startswith(".")) if len(here.parts) < DEEPEST else []
        names += [(here / file).as_posix() for file in sorted(files) if not file.startswith(".")]
        if len(names) > MOST_NAMES:
            raise DataError(f"{folder}: more than {MOST_NAMES:,} files; name the folder of one dataset")
    return names


def visible(names: Iterable[str]) -> list[str]:
    """`names` without those that archives of other systems add."""
    return [name for name in names if not name.startswith("__MACOSX/") and not PurePosixPath(name).name.startswith(".")]


def parts_by_word(names: Iterable[tuple[str, str]], source: str) -> dict[str, str]:
    """part → name, for `names` after the words that tell their parts, such as train or val; empty without train and test.

    Raises DataError if two names are the same part.
    """
    parts: dict[str, str] = {}
    for word, name in names:
        if (part := PART_WORDS.get(word.lower())) is None:
            continue
        if part in parts:
            raise DataError(f"{source}: both {parts[part]} and {name} are the {part} part; name the files in source.files")
        parts[part] = name
    return parts if {"train", "test"} <= set(parts) else {}
