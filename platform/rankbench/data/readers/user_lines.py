"""`user item item item ...`, one user per line, separated by blanks: the format of the NGCF and LightGCN splits, whose folders
have a train.txt and a test.txt.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from pathlib import PurePosixPath

import numpy as np
import pyarrow as pa

from rankbench.core.errors import DataError
from rankbench.data.raw import RawFile, blocks_of_lines
from rankbench.data.readers import parts_by_word, reads, visible

LETTERS = b"-0123456789 \t"  # int() would also accept 1_000 and +1


def find(names: list[str], source: str) -> dict[str, str]:
    """train.txt, test.txt and perhaps valid.txt. Raises DataError if they are not there."""
    parts = parts_by_word(((PurePosixPath(name).stem, name) for name in visible(names) if name.endswith(".txt")), source)
    if not parts:
        raise DataError(f"{source}: no train.txt with its test.txt; name the files in source.file, or in source.files by part")
    return parts


@reads("user-lines", find=find)
def read(raw: RawFile) -> Iterator[pa.Table]:
    """Yield the columns user, item, int64; one table per 8 MB of text. A user without items adds no row.

    Raises DataError naming the line of a bad id.
    """
    with raw.open() as file:
        for first, block in blocks_of_lines(file, str(raw.path), raw.spec.encoding):
            users, items = array("q"), array("q")
            for number, line in enumerate(block.split(b"\n"), start=first):
                try:
                    if line.translate(None, LETTERS):
                        raise ValueError
                    ids = array("q", map(int, line.split()))
                except (ValueError, OverflowError):
                    raise DataError(f"{raw.path}:{number}: expected whole numbers below 2^63, `user item item ...`") from None
                if ids and min(ids) < 0:
                    raise DataError(f"{raw.path}:{number}: {min(ids)} is below 0; an id is a whole number of 0 or more")
                users.extend(ids[:1] * (len(ids) - 1))
                items.extend(ids[1:])
            yield pa.table({"user": np.asarray(users, np.int64), "item": np.asarray(items, np.int64)})
