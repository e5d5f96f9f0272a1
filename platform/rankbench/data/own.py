"""Interactions in memory become a dataset like any other: Parquet files and a card in the cache, named after their content.

A pandas, Arrow or Polars table has one interaction per row. In a SciPy sparse matrix (n_users, n_items), every stored value
other than 0 is an interaction, and the ids are the positions of row and column.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import scipy.sparse as sp
import yaml

from rankbench.core.environment import Environment
from rankbench.core.errors import ConfigError, DataError, RankbenchError, first_line, require
from rankbench.core.files import atomic_folder, write_text
from rankbench.core.names import checked_name
from rankbench.core.registry import nearest
from rankbench.data.cards import Card, read_card
from rankbench.data.columns import ADVICE, listed
from rankbench.data.interactions import PARTS
from rankbench.data.protocols.spec import protocols
from rankbench.data.recognise import ONCE, recognise

FOLDER = "own"  # in the cache
COLUMNS = ("user", "item", "value", "time")
LEAVES_OUT = "; prepare=['drop_missing', ...] leaves rows without one out"


def is_data(value: Any) -> bool:
    """Whether `value` holds interactions itself, rather than the name or path of a dataset."""
    return isinstance(value, pd.DataFrame | Mapping) or sp.issparse(value) or hasattr(value, "__arrow_c_stream__")


def card_of_data(
    data: Any,
    environment: Environment,
    *,
    columns: Mapping[str, str | None],
    split: str | Mapping[str, Any] | None = None,
    prepare: Iterable[Any] | None = None,
    name: str | None = None,
) -> Card:
    """Store `data` in the cache and return its card. Equal data with equal settings are stored once.

    `data`: a table, a sparse matrix, or a mapping from "train", "valid" and "test" to several of them. `columns`: user, item,
    value and time → the column of a table, or None. `split`: a protocol, its parameters, or the column of a table that says
    "train", "valid" or "test" for each row. `prepare`: the steps of a card; by default, repeated pairs are kept once, unless
    the data have several parts.

    Raises ConfigError for a missing column and as `read_card` does, and DataError for parts that cannot be used. The reader
    of the stored files checks single rows: see `refused`.
    """
    _require_names(split, name)
    for required in ("user", "item"):
        require(columns.get(required) is not None, f"{required}: give the name of the column")
    if isinstance(data, Mapping):
        require(bool(data), "dataset: no parts; give a mapping such as {'train': frame, 'test': frame}")
        for part in data:
            require(part in PARTS, f"dataset: unknown part {part!r}{nearest(part, PARTS)}; a part is {_either(PARTS)}")
        require("all" not in data or len(data) == 1, "dataset: the part all cannot be given together with other parts")
        parts = {part: table_of(each, columns, f"dataset: {part}", ()) for part, each in data.items()}
        protocol, usual = split, None if "all" in data else "published"
    else:
        names_a_column = isinstance(split, str) and split not in protocols() and not sp.issparse(data)
        of_parts = split if names_a_column else None
        table = table_of(data, columns, "dataset", (of_parts,) if of_parts else ())
        parts = {"all": table} if of_parts is None else _by_part(table, of_parts)
        protocol, usual = (None, "published") if of_parts else (split, None)
    present = [column for column in COLUMNS if all(column in table.column_names for table in parts.values())]
    default = [ONCE] if "all" in parts else []  # in a split of the user's, a pair of two parts is refused later
    content: dict[str, Any] = {
        "source": {"files": {part: {"file": f"{part}.parquet"} for part in sorted(parts, key=PARTS.index)}},
        "read": {"format": "parquet"} | {column: column for column in present},
        "prepare": [*(default if prepare is None else prepare)],
    }
    return _stored(parts, present, content | _split(protocol, usual), name, environment)


def card_of_path(
    path: Path,
    environment: Environment,
    *,
    columns: Mapping[str, str | None],
    split: str | Mapping[str, Any] | None = None,
    prepare: Iterable[Any] | None = None,
    name: str | None = None,
) -> tuple[Card, tuple[str, ...]]:
    """Return a card for a file, archive or folder of any form that `recognise` knows, and which of user, item, value and time
    it reads; the data stay where they are.

    `columns`: as in `card_of_data`, with None where the usual names are looked for. Raises DataError if nothing is recognised,
    and ConfigError as `card_of_data` does.
    """
    _require_names(split, name)
    named = {key: None if column is None else str(column) for key, column in columns.items()}
    recognised = recognise(path, name, environment.data / FOLDER, named, environment)
    content = recognised.card
    steps = {} if prepare is None else {"prepare": [*prepare]}
    called = content.pop("name")
    own_split = _split(split, content["split"]["protocol"]) if split else {}
    return _stored({}, [], content | steps | own_split, called, environment), recognised.columns


def _split(given: str | Mapping[str, Any] | None, usual: str | None) -> dict[str, Any]:
    """The `split` of a card, if it is given or there is a `usual` protocol, which keys without a protocol are those of."""
    known = {"protocol": usual} if usual else {}
    keys = {"protocol": given} if isinstance(given, str) else dict(given or {})
    return {"split": known | keys} if known | keys else {}


def refused(error: RankbenchError, card: Card, columns: Mapping[str, Any]) -> RankbenchError:
    """Remove the data of `card`, which cannot be prepared, and return the error in words of the arguments of `rb.dataset`.

    `columns`: as in `card_of_data`.
    """
    text = str(error)
    for part in PARTS:
        text = text.replace(str(card.folder / f"{part}.parquet"), "dataset" if part == "all" else f"dataset: {part}")
    text = re.sub(r"name it in the card's read\.(\w+)", r"\1='NAME' names it", text).replace(ADVICE, LEAVES_OUT)
    text = re.sub(r": row (\d+): ", lambda row: f": row {int(row[1]) - 1} from 0: ", text)
    text = re.sub(r"the column '(\w+)'", lambda said: f"the column {columns.get(said[1], said[1])!r}", text)
    text += "; convert them with .astype(str)" if ": ids are" in text else ""
    text = re.sub(r"expected the (value|time) ", lambda said: f"{said[0].rstrip()}, column {columns[said[1]]!r}, ", text)
    shutil.rmtree(card.folder, ignore_errors=True)
    return type(error)(text)


def _stored(
    parts: dict[str, pa.Table], columns: list[str], content: dict[str, Any], name: str | None, environment: Environment
) -> Card:
    digest = hashlib.sha256(json.dumps([name, content], sort_keys=True, default=str).encode())
    for part in sorted(parts):
        digest.update(part.encode())
        hash_table(digest, parts[part].select(columns))
    key = digest.hexdigest()
    content = {"name": name or f"own-{key[:8]}"} | content
    folder = environment.data / FOLDER / key[:16]
    target = folder / f"{content['name']}.yaml"
    if not target.is_file():
        with atomic_folder(folder) as scratch:
            for part, table in parts.items():
                try:
                    pq.write_table(table.select(columns), scratch / f"{part}.parquet", compression="zstd")
                except pa.ArrowNotImplementedError as error:
                    raise DataError(f"dataset: a column cannot be stored: {first_line(error)}") from None
            write_text(scratch / target.name, yaml.safe_dump(content, sort_keys=False, allow_unicode=True))
            try:
                read_card(scratch / target.name)
            except ConfigError as error:  # named after what the user gave, not after a file that disappears
                raise ConfigError(str(error).replace(str(scratch / target.name), "dataset")) from None
    return read_card(target)


def hash_table(digest: Any, table: pa.Table) -> None:
    """Update a hash with the content of a table."""
    with pa.ipc.new_stream(pa.PythonFile(_Hashed(digest)), table.schema) as stream:
        stream.write_table(table.combine_chunks())


class _Hashed(io.RawIOBase):
    """A file that only updates a hash with what is written to it."""

    def __init__(self, digest: Any):
        self._digest = digest

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._digest.update(data)
        return len(data)


def table_of(data: Any, columns: Mapping[str, str | None], source: str, more: tuple[str, ...] = ()) -> pa.Table:
    """The columns user, item and perhaps value and time of `data`, and the columns `more` under their own names."""
    if sp.issparse(data):
        return _of_matrix(data, source)
    if not isinstance(data, pd.DataFrame):
        data = arrow_table(data, source, "a pandas, Arrow or Polars table, or a SciPy sparse matrix")
    present = list(data.columns) if isinstance(data, pd.DataFrame) else data.column_names
    wanted = {name: column for name, column in columns.items() if column is not None} | {column: column for column in more}
    for name, column in wanted.items():
        if column not in present:
            known = [*map(str, present), *(() if name in COLUMNS else protocols().names())]
            what = f"no column {column!r}" if name in COLUMNS else f"split: {column!r} is neither a protocol nor a column"
            example = next((each for each in present if not isinstance(each, str)), "NAME")
            advice = f" ({name}={example!r} names the column)" if name in COLUMNS else ""
            raise ConfigError(f"{source}: {what}{nearest(column, known)}{advice}; columns: {listed(present)}")
        require(present.count(column) == 1, f"{source}: {present.count(column)} columns are called {column!r}")
    try:
        if isinstance(data, pd.DataFrame):
            # By position, because a name may be of any type.
            frame = pd.DataFrame({name: _dense(data.iloc[:, present.index(column)]) for name, column in wanted.items()})
            data, wanted = pa.Table.from_pandas(frame, preserve_index=False), {name: name for name in wanted}
        return pa.table({name: data[column] for name, column in wanted.items()})
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise DataError(
            f"{source}: {first_line(error)}; convert the ids with .astype(str) if numbers and text are mixed"
        ) from None


def arrow_table(data: Any, source: str, expected: str) -> pa.Table:
    """A table of any library as Arrow has it. Raises ConfigError, with what is `expected`, for what is none."""
    try:
        table = pa.table(data)
    except (pa.ArrowException, TypeError, ValueError):
        raise ConfigError(f"{source}: expected {expected}, got {type(data).__name__}") from None
    for place, column in enumerate(table.columns):
        kind = column.type
        if pa.types.is_dictionary(kind) and pa.types.is_string_view(kind.value_type):
            # Categories of Polars, which Arrow cannot take rows of.
            chunks = [pa.DictionaryArray.from_arrays(each.indices, each.dictionary.cast(pa.string())) for each in column.chunks]
            column = pa.chunked_array(chunks, pa.dictionary(kind.index_type, pa.string()))
            table = table.set_column(place, table.column_names[place], column)
    return table


def _dense(column: pd.Series) -> pd.Series:
    return column.sparse.to_dense() if isinstance(column.dtype, pd.SparseDtype) else column


def _of_matrix(matrix: Any, source: str) -> pa.Table:
    coo = sp.coo_array(matrix, copy=True)
    require(coo.ndim == 2, f"{source}: expected a matrix of users and items, got {coo.ndim} dimensions")
    require(coo.dtype.kind in "biuf", f"{source}: expected a matrix of real numbers, got {coo.dtype}")
    if coo.dtype.kind in "iu":
        coo = coo.astype(np.float64)  # sums of small whole numbers would begin again at 0
    coo.sum_duplicates()  # of an entry that is stored twice, the value is the sum
    kept = coo.data != 0
    user, item = coo.coords
    table = {"user": pa.array(user[kept].astype(np.int64)), "item": pa.array(item[kept].astype(np.int64))}
    values = coo.data[kept]
    if len(values) and (values != 1).any():
        table["value"] = pa.array(values.astype(np.float64))
    return pa.table(table)


def _by_part(table: pa.Table, column: str) -> dict[str, pa.Table]:
    """The rows of each part, by the column that names it."""
    known = PARTS[:3]
    try:
        labels = pc.cast(table[column], pa.string())
    except pa.ArrowException:
        kind = table[column].type
        raise DataError(f"dataset: the column {column!r} is {kind}; expected {_either(known)} in every row") from None
    unknown = [each for each in pc.unique(labels).to_pylist() if each not in known]
    if unknown:
        raise DataError(f"dataset: the column {column!r} says {unknown[0]!r}; expected {_either(known)} in every row")
    rest = table.drop_columns([column])
    parts = {part: rest.filter(pc.equal(labels, part)) for part in known}
    return {part: rows for part, rows in parts.items() if len(rows)}


def _require_names(split: str | Mapping[str, Any] | None, name: str | None) -> None:
    """Raise ConfigError for a split without a name, and for a name that a card may not have."""
    require(split != "", "split: expected the name of a protocol or of a column, got ''")
    try:
        checked_name("my-data" if name is None else name)
    except ValueError as error:
        raise ConfigError(f"dataset: name: {error}") from None


def _either(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} or {last}"
