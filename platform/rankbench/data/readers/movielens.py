"""The MovieLens archives as downloaded, or unpacked: ml-100k (u.data), ml-1m and ml-10m (ratings.dat), ml-20m and later ones
and ml-latest (ratings.csv). The first line tells which of the three it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa

from rankbench.core.errors import DataError, printable, shown
from rankbench.data.raw import RawFile
from rankbench.data.readers import delimited, reads, visible

RATINGS = ("u.data", "ratings.dat", "ratings.csv")
BY_NAME = {"user": "userId", "item": "movieId", "value": "rating", "time": "timestamp"}
BY_POSITION = {"user": 0, "item": 1, "value": 2, "time": 3}


def find(names: list[str], source: str) -> dict[str, str]:
    """The file of ratings. Raises DataError if there is none, or several."""
    ratings = [name for name in visible(names) if PurePosixPath(name).name in RATINGS]
    if len(ratings) != 1:
        problem = f"several files of ratings, {', '.join(sorted(ratings)[:5])}" if ratings else f"none of {', '.join(RATINGS)}"
        raise DataError(f"{source}: {problem}; is it one of the MovieLens datasets, as downloaded?")
    return {"all": ratings[0]}


def form_of(line: str) -> dict[str, Any] | None:
    """How to read a file of ratings with this first line; None if it is none of MovieLens."""
    if line.startswith("userId,movieId,rating,timestamp"):
        return {"separator": ",", "header": True} | BY_NAME
    separator = next((each for each in ("::", "\t") if line.count(each) == 3), None)
    return None if separator is None else {"separator": separator, "header": False} | BY_POSITION


@reads("movielens", find=find)
def read(raw: RawFile) -> Iterator[pa.Table]:
    """Yield the columns user, item (string), value (the rating, float64), time (int64).

    Raises DataError for a file of another form, and as the reader of delimited text does.
    """
    head = delimited.first_filled_line(raw)
    if head is None:
        return
    if (layout := form_of(head.text.decode(errors="replace"))) is None:
        found = printable(shown(head.text.decode(errors="replace")))
        raise DataError(f"{head.locate(0)}: not one of MovieLens' {', '.join(RATINGS)}: found {found}")
    yield from delimited.read(replace(raw, spec=raw.spec.model_copy(update=layout)))
