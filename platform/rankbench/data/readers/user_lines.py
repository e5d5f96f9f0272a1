"""`user item item item ...`, one user a line, separated by blanks: the form of the NGCF and LightGCN splits."""

from __future__ import annotations

from array import array
from codecs import BOM_UTF8
from typing import IO

import numpy as np
import pyarrow as pa

from rankbench.data.cards import Read
from rankbench.errors import DataError


def read(file: IO[bytes], spec: Read, where: str) -> pa.Table:
    """Columns user, item, int64. A user without items adds no row. Raises DataError naming the line of a bad id."""
    users, items = array("q"), array("q")
    for number, line in enumerate(file, start=1):
        words = line.removeprefix(BOM_UTF8).split() if number == 1 else line.split()
        try:
            ids = array("q", map(int, words))
        except (ValueError, OverflowError):
            raise DataError(f"{where}:{number}: expected whole numbers below 2^63, `user item item ...`") from None
        users.extend(ids[:1] * (len(ids) - 1))
        items.extend(ids[1:])
    return pa.table({"user": np.asarray(users, np.int64), "item": np.asarray(items, np.int64)})
