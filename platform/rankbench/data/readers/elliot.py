"""Splits of Elliot: train.tsv, val.tsv and test.tsv of `user item rating timestamp`, separated by tabs, without a header.

Rating and timestamp may be missing. Elliot's `save_on_disk` writes a folder for each fold of the test split, with test.tsv,
and in it a folder for each fold of the validation split, with train.tsv and val.tsv; without validation, train.tsv lies beside
test.tsv. A single fold of each is found in its folder.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from rankbench.core.errors import DataError
from rankbench.data.readers import delimited, parts_by_word, reads, visible


def find(names: list[str], source: str) -> dict[str, str]:
    """The one fold of a folder. Raises DataError if there is none, or several."""
    tables = [name for name in visible(names) if name.endswith(".tsv")]
    train = [name for name in tables if PurePosixPath(name).name == "train.tsv"]
    if len(train) > 1:
        folds = ", ".join(sorted(str(PurePosixPath(name).parent) for name in train)[:10])
        raise DataError(f"{source}: {len(train)} folds: {folds}; name the files of one in source.files by part")
    here = PurePosixPath(train[0]).parent if train else PurePosixPath()
    beside = {PurePosixPath(name).stem: name for name in tables if PurePosixPath(name).parent == here}
    if (above := str(here.parent / "test.tsv")) in tables:
        beside.setdefault("test", above)
    parts = parts_by_word(beside.items(), source)
    if not parts:
        raise DataError(f"{source}: no train.tsv with its test.tsv; name the files in source.files by part")
    return parts


read = reads("elliot", find=find)(delimited.read_by_position)
