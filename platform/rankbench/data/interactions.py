"""Who met what, when: the one form that readers fill and preparation steps thin out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rankbench.errors import DataError


@dataclass(frozen=True)
class Interactions:
    """Pairs of codes, with the raw ids that the codes stand for.

    `user`, `item`: int32 (nnz,), positions in `users`, `items`: the raw ids, sorted, int64 or string. `value`: float32
    (nnz,) or None. `time`: int64 seconds (nnz,) or None. `part`: int8 (nnz,), a position in cards.PARTS.
    """

    user: np.ndarray
    item: np.ndarray
    part: np.ndarray
    users: pa.Array
    items: pa.Array
    value: np.ndarray | None = None
    time: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.user)

    def keep(self, rows: np.ndarray) -> Interactions:
        """The interactions at `rows` (a mask or positions); ids that no longer occur stay in the vocabularies."""
        return replace(
            self,
            user=self.user[rows],
            item=self.item[rows],
            part=self.part[rows],
            value=None if self.value is None else self.value[rows],
            time=None if self.time is None else self.time[rows],
        )

    def compact(self) -> Interactions:
        """The same interactions with vocabularies cut to the ids that occur, order kept."""
        user, users = _compact(self.user, self.users)
        item, items = _compact(self.item, self.items)
        return replace(self, user=user, item=item, users=users, items=items)

    def sorted(self) -> Interactions:
        """By user, then item, then time, so that the order of the raw rows changes nothing downstream."""
        keys = (self.item, self.user) if self.time is None else (self.time, self.item, self.user)
        return self.keep(np.lexsort(keys))


def checked(raw: pa.Table, place: Callable[[int], str]) -> pa.Table:
    """`raw` as a reader made it, held to: every id is there, without NUL, and every value is finite in float32.

    Raises DataError for the first row that is not; `place` says where that row is.
    """
    for name in ("user", "item"):
        bad = pc.is_null(raw[name])
        if pa.types.is_string(raw[name].type):
            bad = pc.or_(bad, pc.fill_null(pc.match_substring(raw[name], "\0"), False))
        if (row := pc.index(bad, True).as_py()) >= 0:
            raise DataError(f"{place(row)}: {name} is {raw[name][row].as_py()!r}; every interaction needs an id")
    if "value" in raw.column_names:
        value = raw["value"].to_numpy()
        bad = np.flatnonzero(~(np.abs(value) <= np.finfo(np.float32).max))
        if len(bad):
            raise DataError(f"{place(int(bad[0]))}: value is {value[bad[0]]}; every interaction needs a finite value")
    return raw


def encode(raw: pa.Table, where: str) -> Interactions:
    """Codes for a table with columns user, item, part and perhaps value, time; its rows are `checked`."""
    if raw.num_rows >= 2**31:
        raise DataError(f"{where}: {raw.num_rows} interactions; this version counts up to 2^31")
    user, users = _codes(raw["user"])
    item, items = _codes(raw["item"])
    value = raw["value"].to_numpy().astype(np.float32) if "value" in raw.column_names else None
    time = None
    if "time" in raw.column_names:
        # A missing time is kept as the smallest: only protocols in time order look at it, and they say so.
        time = pc.fill_null(raw["time"].cast(pa.int64()), np.iinfo(np.int64).min).to_numpy()
    return Interactions(user, item, raw["part"].to_numpy(), users, items, value, time)


def _codes(column: pa.ChunkedArray) -> tuple[np.ndarray, pa.Array]:
    """Positions in the sorted vocabulary; ids that are all whole numbers sort as numbers."""
    encoded = column.combine_chunks().dictionary_encode()
    vocabulary = as_integers(encoded.dictionary)
    order = pc.sort_indices(vocabulary).to_numpy()
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    return rank[encoded.indices.to_numpy()], vocabulary.take(pa.array(order))


def as_integers(ids: pa.Array) -> pa.Array:
    """int64 when every id is written as a whole number without leading zeros or plus sign; else strings."""
    if pa.types.is_integer(ids.type):
        return ids.cast(pa.int64())
    text = ids.cast(pa.string())
    plain = pc.match_substring_regex(text, r"^(0|-?[1-9][0-9]{0,17})$")
    return text.cast(pa.int64()) if pc.all(plain).as_py() else text


def _compact(codes: np.ndarray, vocabulary: pa.Array) -> tuple[np.ndarray, pa.Array]:
    present = np.zeros(len(vocabulary), bool)
    present[codes] = True
    if present.all():
        return codes, vocabulary
    new = np.cumsum(present, dtype=np.int32) - np.int32(1)
    return new[codes], vocabulary.filter(pa.array(present))
