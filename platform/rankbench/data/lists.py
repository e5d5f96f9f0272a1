"""Lists of recommendations that another program made: a table, or a file, with columns user, item, and rank or score.

A file is Parquet, text with a header (CSV, TSV), or a run of TREC (`qid Q0 docid rank score tag`), which has no header.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from rankbench.core.errors import DataError, RankbenchError, first_line, require, shown
from rankbench.core.files import sha256_of
from rankbench.data.cards import Read
from rankbench.data.columns import ADVICE, UNREADABLE, Locate, decoded, interactions, listed, require_type
from rankbench.data.formats import first_lines, format_of_file
from rankbench.data.own import arrow_table, hash_table, is_data, table_of
from rankbench.data.raw import RawFile, blocks_of_lines
from rankbench.data.readers import reader
from rankbench.data.readers.delimited import Lines
from rankbench.data.readers.parquet import row_of
from rankbench.data.recognise import USUAL, cells_of, parquet_columns, separator_of, usual_columns

log = logging.getLogger(__name__)

SOURCE = "lists"  # of a table in memory, in messages
EXPECTED = "the path of a file, or a pandas, Arrow or Polars table"
# What orders a list, by the names of its column. If there are both, the rank does.
ORDERS = {"rank": ("rank", "position"), "score": ("score", "prediction", "value", "rating")}
TREC = r"\S+([ \t])Q0\1\S+\1\d+\1\S+\1\S+"


@dataclass(frozen=True)
class Lists:
    """One row for each item of a list: raw ids of `user` and `item`, and `order` (float64), which is smaller for a better item.

    `by`: whether that is the rank or the score, negated. `scores`: those beside a rank, if there are any. `name` and `sha256`:
    of the file, or of the content of a table. `locate` names a row, from 0, in messages.
    """

    user: pa.Array
    item: pa.Array
    order: np.ndarray
    by: str
    name: str
    sha256: str
    locate: Locate
    scores: np.ndarray | None = None


def lists_of(source: Any) -> Lists:
    """Read lists from the path of a file, or a pandas, Arrow or Polars table. Raises DataError for a missing column, and, with
    the row, for a missing id, a rank or score that is no finite number, the same item twice in a list, and two equal ranks.
    Scores that contradict the ranks are a warning of the log.
    """
    lists = _of_table(source) if is_data(source) else _of_file(source)
    users = lists.user.dictionary_encode().indices.to_numpy()
    for name, column in (("item", lists.item.dictionary_encode().indices.to_numpy()), ("rank", lists.order)):
        if name == "rank" and lists.by == "score":
            continue
        order = np.lexsort((column, users))  # equal rows stay in the order of the file
        again = np.flatnonzero((np.diff(users[order]) == 0) & (np.diff(column[order]) == 0))
        if len(again):
            row = int(order[again + 1].min())
            what = shown(lists.item[row].as_py()) if name == "item" else f"{lists.order[row]:g}"
            raise DataError(
                f"{lists.locate(row)}: the list of user {shown(lists.user[row].as_py())} has the {name} {what} a second time"
            )
    if lists.scores is not None:  # beside ranks, by which `order` goes now
        rises = (np.diff(users[order]) == 0) & (np.diff(lists.scores[order]) > 0)
        if n := len(np.unique(users[order][1:][rises])):
            said = f"in {n:,} of {users.max() + 1:,} lists, a score is higher than the one above it; their ranks order them"
            log.warning(
                "%s: %s, where other programs may take the scores; leave out the wrong one of the two", lists.name, said
            )
    return lists


def _of_table(data: Any) -> Lists:
    data = data if isinstance(data, pd.DataFrame) else arrow_table(data, SOURCE, EXPECTED)
    names = [*data.columns] if isinstance(data, pd.DataFrame) else data.column_names
    columns, by, score = _columns([name for name in names if isinstance(name, str)], SOURCE)
    raw = table_of(data, columns, SOURCE)
    for name, column in columns.items():
        require_type(name, raw.schema.field(name).type, column, SOURCE)

    def locate(row: int) -> str:
        return f"{SOURCE}: row {row} from 0"

    digest = hashlib.sha256()
    hash_table(digest, raw)
    try:
        table = _read(lambda: interactions({name: decoded(raw[name]) for name in columns}, locate), by)
    except UNREADABLE as error:
        raise DataError(f"{SOURCE}: {first_line(error)}") from None
    lists = _lists([table], by, SOURCE, digest.hexdigest(), locate)

    def scored() -> list[pa.Table]:
        beside = table_of(data, columns | {"value": score}, SOURCE)
        return [interactions({name: decoded(beside[name]) for name in columns}, locate)]

    return lists if score is None else _with_scores(lists, scored)


def _of_file(source: Any) -> Lists:
    require(isinstance(source, str | Path), f"{SOURCE}: expected {EXPECTED}, got {shown(source)}")
    path = Path(source)
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    raw = RawFile("all", path, "", Read(), "file")
    spec, by, score = _spec(raw)
    raw = RawFile("all", path, sha256_of(path), spec, "file")
    tables = _read(lambda: [*reader(spec.format)(raw)], by)
    lists = _lists(tables, by, str(path), raw.sha256, partial(_row_of, raw))
    beside = replace(raw, spec=spec.model_copy(update={"value": score}))
    return lists if score is None else _with_scores(lists, lambda: [*reader(spec.format)(beside)])


def _with_scores(lists: Lists, read: Callable[[], Sequence[pa.Table]]) -> Lists:
    """Return lists that are ordered by a rank with the scores that `read` reads, unless they cannot be read as numbers."""
    try:
        return replace(lists, scores=pa.concat_tables(read())["value"].to_numpy())
    except (RankbenchError, *UNREADABLE):  # they order nothing
        return lists


def _spec(raw: RawFile) -> tuple[Read, str, str | int | None]:
    """How a file of lists is read, what orders them, and the column of the scores beside a rank. The column that orders is the
    value of what is read.
    """
    if format_of_file(raw, columns=True) == "parquet":
        columns, by, score = _columns(parquet_columns(raw), str(raw.path))
        return Read(format="parquet", **columns), by, score
    lines = first_lines(raw)
    if not lines:
        raise DataError(f"{raw.path}: no lists")
    if trec := re.fullmatch(TREC, lines[0]):
        return Read(separator=trec[1], header=False, user=0, item=2, value=3), "rank", 4
    separator = separator_of(raw, lines)
    columns, by, score = _columns(cells_of(lines[0], separator), str(raw.path))
    return Read(separator=separator, **columns), by, score


def _columns(present: Sequence[str], source: str) -> tuple[dict[str, str], str, str | None]:
    """user, item, value → their columns, whether the value is a rank or a score, and the column of the scores beside a rank."""
    found = usual_columns(present, {"user": USUAL["user"], "item": USUAL["item"], **ORDERS})
    by = "rank" if "rank" in found else "score"
    if missing := [name for name in ("user", "item", by) if name not in found]:
        raise DataError(
            f"{source}: no column {missing[0]}; lists have the columns user, item, and rank or score, named in the first line "
            f"of a text; columns: {listed(present)}"
        )
    return {"user": found["user"], "item": found["item"], "value": found[by]}, by, found.get("score") if by == "rank" else None


def _read(read: Callable[[], Any], by: str) -> Any:
    """What `read` returns; an error is told in the words of lists, which have a rank or score as their value."""
    try:
        return read()
    except DataError as error:
        text = str(error).replace(ADVICE, "").replace("every interaction needs", "every row needs")
        raise DataError(re.sub(r"\bvalue (?=is |to be )", f"{by} ", text)) from None


def _lists(tables: Sequence[pa.Table], by: str, source: str, sha256: str, locate: Locate) -> Lists:
    table = pa.concat_tables(tables).combine_chunks() if tables else None
    if table is None or not len(table):
        raise DataError(f"{source}: no lists")
    user, item = (pa.concat_arrays(table[each].chunks) for each in ("user", "item"))
    values = table["value"].to_numpy()
    return Lists(user, item, values if by == "rank" else -values, by, Path(source).name, sha256, locate)


def _row_of(raw: RawFile, row: int) -> str:
    """The name of a row of a file: its line, or its number from 1 in a Parquet file."""
    if raw.spec.format == "parquet":
        return row_of(raw, 0, row)
    row += raw.spec.header
    with raw.open() as file:
        for number, block in blocks_of_lines(file, str(raw.path), raw.spec.encoding):
            lines = Lines(str(raw.path), number, block)
            if row < lines.n_filled():
                return lines.locate(row)
            row -= lines.n_filled()
    return str(raw.path)
