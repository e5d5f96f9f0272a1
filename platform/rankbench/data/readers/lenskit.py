"""A dataset that LensKit has saved (`Dataset.save`): schema.json, and a Parquet file for each entity and relationship.

    schema.json   default_interaction: rating; relationships: {rating: {entities: {user: null, item: null}, ...}}
    user.parquet  user_id; its row is the user's number          item.parquet  likewise
    rating.parquet  user_num, item_num, rating, timestamp

The interactions are those of `default_interaction`, or the only ones. Columns that the card does not name are rating and
timestamp, if they exist. MovieLens folders, which LensKit reads as well, are of the format movielens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import PurePosixPath

import pyarrow as pa
import pyarrow.compute as pc

from rankbench.core.errors import DataError, first_line, printable
from rankbench.data.columns import UNREADABLE, decoded, interactions, is_text
from rankbench.data.raw import RawFile
from rankbench.data.readers import Layout, reads, visible
from rankbench.data.readers.parquet import batches, cut, opened, row_of, text_lengths

MOST_BYTES = 1 << 20  # of schema.json


def find(names: list[str], source: str) -> Layout:
    """schema.json, with the tables beside it. Raises DataError if there is none."""
    schema = [name for name in visible(names) if PurePosixPath(name).name == "schema.json"]
    if len(schema) != 1:
        raise DataError(f"{source}: {len(schema) or 'no'} schema.json; is it a dataset that LensKit has saved?")
    here = PurePosixPath(schema[0]).parent
    beside = [name for name in visible(names) if PurePosixPath(name).parent == here and name.endswith(".parquet")]
    tables = {PurePosixPath(name).stem: name for name in beside}
    return Layout({"all": schema[0]}, tables)


@reads("lenskit", find=find)
def read(raw: RawFile) -> Iterator[pa.Table]:
    """Yield the columns user, item (int64 or string) and, if they exist, value (float64), time (int64), a million rows each.

    Raises DataError for a schema that is not LensKit's, a missing or damaged table, or a number that its entity does not have.
    """
    name, entities = _relationship(raw)
    table = raw.companion(name)
    ids = [_ids(raw.companion(entity), f"{entity}_id") for entity in entities.values()]
    numbers = dict(zip(("user", "item"), (f"{alias}_num" for alias in entities), strict=True))
    with table.open() as file:
        present = opened(table, file).schema_arrow.names
        usual = {"value": "rating", "time": "timestamp"}
        named = {name: getattr(raw.spec, name) for name in usual}
        columns = numbers | {name: str(named[name] or usual[name]) for name in usual if named[name] or usual[name] in present}
        for column in columns.values():
            if column not in present:
                raise DataError(f"{table.path}: no column {column!r}; columns: {printable(', '.join(present))}")
        # A row has two numbers, but the text of two ids.
        width = sum(pc.max(text_lengths(known)).as_py() or 0 for known in ids if is_text(known.type))
        done = 0
        for batch in (part for whole in batches(table, file, list(columns.values())) for part in cut(whole, width)):
            locate = partial(row_of, table, done)
            try:
                result = {name: decoded(batch[column]) for name, column in columns.items()}
                for name, known in zip(("user", "item"), ids, strict=True):
                    result[name] = _decoded(result[name], known, name, locate)
                rows = interactions(result, locate, raw.keep_missing)
            except UNREADABLE as error:
                raise DataError(f"{table.path}: {printable(first_line(error))}") from None
            yield rows
            done += len(batch)


def _relationship(raw: RawFile) -> tuple[str, dict[str, str]]:
    """The name of the interactions, and entity → entity class: the user's first, then the item's."""
    with raw.open() as file:
        content = file.read(MOST_BYTES)
    try:
        schema = json.loads(content)
        relationships = schema["relationships"]
        chosen = schema.get("default_interaction") or next(n for n, each in relationships.items() if each.get("interaction"))
        entities = {alias: kind or alias for alias, kind in relationships[chosen]["entities"].items()}
        if not all(re.fullmatch(r"\w+", word) for word in (chosen, *entities, *entities.values())):
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration, RecursionError):
        raise DataError(f"{raw.path}: not a schema of LensKit with a relationship that is an interaction") from None
    if len(entities) != 2:
        raise DataError(f"{raw.path}: {chosen} is between {len(entities)} entities; two are needed, user and item")
    # The item is the entity of that name, if there is one; otherwise the second, as LensKit's matrices have it.
    return chosen, dict(sorted(entities.items(), key=lambda each: each[0] == "item"))


def _ids(table: RawFile, column: str) -> pa.Array:
    """The ids of an entity by number. Raises DataError if there are none, or if they are far larger than their file."""
    with table.open() as file:
        if column not in opened(table, file).schema_arrow.names:
            raise DataError(f"{table.path}: no column {column!r}")
        parts: list[pa.Array] = []
        try:
            for batch in batches(table, file, [column]):
                parts += decoded(batch[column]).chunks
                if sum(part.nbytes for part in parts) > table.limit():
                    problem = f"its ids take more than {table.limit() >> 20} MB, far more than the file; are they unique?"
                    raise DataError(f"{table.path}: {problem}")
        except UNREADABLE as error:
            raise DataError(f"{table.path}: {printable(first_line(error))}") from None
    return pa.concat_arrays(parts) if parts else pa.array([], pa.int64())


def _decoded(numbers: pa.ChunkedArray, ids: pa.Array, name: str, locate) -> pa.ChunkedArray:
    wrong = pc.or_(pc.less(numbers, 0), pc.greater_equal(numbers, len(ids)))
    if (row := pc.index(wrong, True).as_py()) >= 0:
        raise DataError(f"{locate(row)}: {name}_num is {numbers[row].as_py()}, but there are {len(ids)} of them")
    return pa.chunked_array([ids.take(numbers.combine_chunks())])
