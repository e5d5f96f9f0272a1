"""Text files of Cornac: `user item`, `user item rating` or `user item rating time` (UI, UIR, UIRT), separated by tabs, without
a header; the number of columns tells which. For baskets, `user basket item time`, the card sets `item: 2, time: 3`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from rankbench.data.raw import RawFile
from rankbench.data.readers import delimited, reads


@reads("cornac")
def read(raw: RawFile) -> Iterator[pa.Table]:
    """Yield the columns user, item (string) and, if they exist, value (float64), time (int64).

    Raises DataError for another number of columns, and as the reader of delimited text does.
    """
    yield from delimited.read_by_position(raw)
