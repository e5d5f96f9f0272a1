"""`user item item item ...`, one user a line, separated by blanks: the form of the NGCF and LightGCN splits."""

from __future__ import annotations

from array import array
from codecs import BOM_UTF8
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from rankbench.data.raw import RawFile
from rankbench.errors import DataError

BATCH = 1 << 20  # interactions in one table
LONGEST_LINE = 64 << 20  # bytes; eight million items of one user


def read(raw: RawFile) -> Iterator[pa.Table]:
    """Columns user, item, int64. A user without items adds no row. Raises DataError naming the line of a bad id."""
    users, items = array("q"), array("q")
    with raw.open() as file:
        number = 0
        while line := file.readline(LONGEST_LINE):
            number += 1
            if len(line) == LONGEST_LINE:
                raise DataError(f"{raw.path}:{number}: the line is longer than {LONGEST_LINE >> 20} MB")
            words = line.removeprefix(BOM_UTF8).split() if number == 1 else line.split()
            try:
                ids = array("q", map(int, words))
            except (ValueError, OverflowError):
                raise DataError(f"{raw.path}:{number}: expected whole numbers below 2^63, `user item item ...`") from None
            if ids and min(ids) < 0:
                raise DataError(f"{raw.path}:{number}: {min(ids)} is below 0; an id is a whole number of 0 or more")
            users.extend(ids[:1] * (len(ids) - 1))
            items.extend(ids[1:])
            if len(users) >= BATCH:
                yield _table(users, items)
                users, items = array("q"), array("q")
    yield _table(users, items)


def _table(users: array, items: array) -> pa.Table:
    return pa.table({"user": np.asarray(users, np.int64), "item": np.asarray(items, np.int64)})
