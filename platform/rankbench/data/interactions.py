"""Interactions of users with items: the form that readers fill and preparation steps filter."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rankbench.core.errors import DataError
from rankbench.core.registry import nearest
from rankbench.data.columns import EXACT

# The first five are labels of protocols/spec.py, in their order.
Part = Literal["train", "valid", "test", "valid_history", "test_history", "all"]
PARTS: tuple[Part, ...] = get_args(Part)
NO_TIME = np.iinfo(np.int64).min


@dataclass(frozen=True)
class Interactions:
    """Pairs of a user code and an item code, with the raw ids that the codes stand for.

    `user`, `item`: int32 (nnz,), positions in `users`, `items`: the raw ids, sorted, int64 or string. `value`: float32
    (nnz,) or None. `time`: int64 (nnz,), `per_second` to a second, or None. `part`: int8 (nnz,), a position in PARTS. `span`:
    int64 (nnz, 2) or None: the first and the last time of the repeated interactions that each one stands for.
    """

    user: np.ndarray
    item: np.ndarray
    part: np.ndarray
    users: pa.Array
    items: pa.Array
    value: np.ndarray | None = None
    time: np.ndarray | None = None
    span: np.ndarray | None = None
    per_second: int = 1

    def __len__(self) -> int:
        return len(self.user)

    def keep(self, rows: np.ndarray) -> Interactions:
        """The interactions at `rows` (a mask or positions); ids that no longer occur stay in the vocabularies."""
        columns = {name: getattr(self, name) for name in ("user", "item", "part", "value", "time", "span")}
        return replace(self, **{name: column[rows] for name, column in columns.items() if column is not None})

    def compact(self) -> Interactions:
        """The same interactions with vocabularies reduced to the ids that occur, in the same order."""
        user, users = _compact(self.user, self.users)
        item, items = _compact(self.item, self.items)
        return replace(self, user=user, item=item, users=users, items=items)

    def sorted(self) -> Interactions:
        """Sorted by user, then item, then time, so that results do not depend on the order of the raw rows."""
        keys = (self.item, self.user) if self.time is None else (self.time, self.item, self.user)
        return self.keep(np.lexsort(keys))


class Encoder:
    """Encodes batches of raw interactions; it holds 9 to 21 bytes per row, however long the ids are.

    `source` starts error messages. `min_value`: rows with a smaller value are counted, and their ids enter the
    vocabularies, but they are not kept.
    """

    def __init__(self, source: str, min_value: float | None = None):
        self._source, self._min_value = source, min_value
        self._ids = {"user": _Vocabulary(), "item": _Vocabulary()}
        self._columns: dict[str, list[np.ndarray]] = {"part": [], "value": [], "time": []}
        self.n_raw = 0

    def add(self, batch: pa.Table, part: int) -> None:
        """Add a batch as `columns.interactions` returns it; `part`: a position in PARTS. Raises DataError if ids are numbers in
        one batch and text in another, or there are too many rows.
        """
        self.n_raw += len(batch)
        if self.n_raw >= 2**31:
            raise DataError(f"{self._source}: more than {self.n_raw - 1:,} interactions; the limit is 2^31 - 1")
        kept = None
        if self._min_value is not None and "value" in batch.column_names:
            kept = batch["value"].to_numpy() >= self._min_value
        for name, vocabulary in self._ids.items():
            if not vocabulary.add(batch[name], kept):
                raise DataError(
                    f"{self._source}: the parts disagree on the column {name}: whole numbers in one, text in another"
                )
        columns = {"part": np.full(len(batch), part, np.int8)}
        if "value" in batch.column_names:
            columns["value"] = batch["value"].to_numpy().astype(np.float32)
        if "time" in batch.column_names:
            # A missing time is stored as NO_TIME, which is NaT; protocols that use the time report it.
            time = pc.fill_null(batch["time"].cast(pa.int64()), NO_TIME).to_numpy()
            columns["time"] = time.view("M8[us]" if pa.types.is_timestamp(batch["time"].type) else "M8[s]")
        # A column that is missing in one part is dropped from all.
        self._columns = {
            name: [*chunks, columns[name] if kept is None else columns[name][kept]]
            for name, chunks in self._columns.items()
            if name in columns
        }

    def finish(self) -> Interactions:
        """The interactions of all batches. Call it once, because it releases the batches."""
        (user, users), (item, items) = (vocabulary.finish() for vocabulary in self._ids.values())
        columns = {}
        for name in list(self._columns):
            columns[name] = np.concatenate(self._columns.pop(name))
        data = Interactions(user, item, columns["part"], users, items, columns.get("value"))
        if (time := columns.get("time")) is None:
            return data
        # Numpy has joined the batches in the finest unit among them.
        return replace(data, time=time.view(np.int64), per_second=10**6 if time.dtype == "M8[us]" else 1)


class _Vocabulary:
    """One id column, batch by batch, as codes into the distinct ids so far."""

    LARGE = 64 << 20  # bytes of unmerged vocabularies from which on they are merged

    def __init__(self) -> None:
        self._chunks: list[pa.DictionaryArray] = []
        self._bytes = 0

    def add(self, column: pa.ChunkedArray, kept: np.ndarray | None) -> bool:
        """Add a column; returns whether it has the type of the earlier ones."""
        encoded = column.combine_chunks().dictionary_encode()
        self._bytes += encoded.dictionary.nbytes
        self._chunks.append(encoded if kept is None else encoded.filter(pa.array(kept)))
        if encoded.type != self._chunks[0].type:
            return False
        if self._bytes > self.LARGE and len(self._chunks) > 1:
            self._merge()
        return True

    def _merge(self) -> None:
        unified = pa.chunked_array(self._chunks).unify_dictionaries()
        codes = np.concatenate([chunk.indices.to_numpy(zero_copy_only=False) for chunk in unified.chunks])
        dictionary = unified.chunk(0).dictionary
        self._chunks = [pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), dictionary)]
        # The next merge waits until the vocabulary may have doubled: the work stays proportional to the rows.
        self._bytes = -dictionary.nbytes

    def finish(self) -> tuple[np.ndarray, pa.Array]:
        """The codes, and the sorted vocabulary; ids that are all whole numbers are sorted as numbers."""
        self._merge()
        (encoded,) = self._chunks
        vocabulary = as_integers(encoded.dictionary)
        order = pc.sort_indices(vocabulary).to_numpy()
        rank = np.empty(len(order), np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        return rank[encoded.indices.to_numpy()], vocabulary.take(pa.array(order))


def as_integers(ids: pa.Array) -> pa.Array:
    """Ids as int64 if each is written as a whole number without leading zeros or plus sign, otherwise as strings."""
    if pa.types.is_integer(ids.type):
        return ids.cast(pa.int64())
    text = ids.cast(pa.string())
    plain = pc.match_substring_regex(text, r"^(0|-?[1-9][0-9]{0,17})$")
    return text.cast(pa.int64()) if pc.all(plain).as_py() else text


def alike_ids(ids: pa.Array) -> tuple[int, str]:
    """How many ids equal another one but for blanks around them, zeros that do not change a number, as in 007 and 7.0, or the
    form of their Unicode, and two that do.
    """
    if not pa.types.is_string(ids.type):
        return 0, ""
    plain = pc.utf8_normalize(pc.utf8_trim_whitespace(ids), "NFC")
    plain = pc.replace_substring_regex(plain, r"^0*([0-9]+)(\.0+)?$", r"\1")
    near = pc.is_in(plain, plain.filter(pc.not_equal(plain, ids)))  # most often none
    plain, ids = plain.filter(near), ids.filter(near)
    groups = plain.value_counts()
    several = groups.filter(pc.greater(groups.field("counts"), 1))
    if not len(several):
        return 0, ""
    one, other, *_ = ids.filter(pc.equal(plain, several[0]["values"])).to_pylist()
    return pc.sum(several.field("counts")).as_py() - len(several), f"{one!a} and {other!a}"


def positions_of(ids: pa.Array, vocabulary: pa.Array) -> np.ndarray:
    """Return the positions of raw ids in the vocabulary, -1 for unknown ones; 7, 7.0 and "7" are the same id."""
    if pa.types.is_floating(ids.type):  # as pandas makes of whole numbers beside a missing one; large ones are not exact
        values = ids.to_numpy(zero_copy_only=False)
        exact = (np.abs(values) < EXACT[ids.type.bit_width]) & (values == np.floor(values))
        ids = pa.array(np.where(exact, values, 0).astype(np.int64), mask=~exact)
    if ids.type != vocabulary.type:
        ids, vocabulary = ids.cast(pa.string()), vocabulary.cast(pa.string())
    return pc.fill_null(pc.index_in(ids, value_set=vocabulary), -1).to_numpy(zero_copy_only=False)


def near_id(name: Any, vocabulary: pa.Array) -> str:
    """A hint at the most similar id for messages; empty if there is none, or too many to look at."""
    return nearest(str(name), vocabulary.cast(pa.string()).to_pylist()) if len(vocabulary) < 100_000 else ""


def _compact(codes: np.ndarray, vocabulary: pa.Array) -> tuple[np.ndarray, pa.Array]:
    present = np.zeros(len(vocabulary), bool)
    present[codes] = True
    if present.all():
        return codes, vocabulary
    new = np.cumsum(present, dtype=np.int32) - np.int32(1)
    return new[codes], vocabulary.filter(pa.array(present))
