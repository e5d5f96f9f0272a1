"""Atomic files of RecBole: a header with types, and one interaction per line, separated by tabs.

    user_id:token	item_id:token	rating:float	timestamp:float

A folder or archive has NAME.inter, or its split NAME.train.inter, NAME.valid.inter and NAME.test.inter (RecBole's
`benchmark_filename`). Columns that the card does not name are user_id, item_id and, if they exist, rating and timestamp.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePosixPath

import pyarrow as pa

from rankbench.core.errors import DataError, printable, shown
from rankbench.core.registry import nearest
from rankbench.data.raw import RawFile
from rankbench.data.readers import delimited, parts_by_word, reads, visible

USUAL: dict[str, str | int] = {"user": "user_id", "item": "item_id", "value": "rating", "time": "timestamp"}
TYPES = ("token", "token_seq", "float", "float_seq")


def find(names: list[str], source: str) -> dict[str, str]:
    """NAME.inter, or the split of the benchmark. Raises DataError if there is none, or files of several datasets."""
    inter = {name: PurePosixPath(name).name.removesuffix(".inter") for name in visible(names) if name.endswith(".inter")}
    parts = parts_by_word(((stem.rpartition(".")[2], name) for name, stem in inter.items() if "." in stem), source)
    known = set(parts.values())
    datasets = {stem.rpartition(".")[0] if name in known else stem for name, stem in inter.items()}
    if len(datasets) != 1:
        problem = f"files of several datasets, {', '.join(sorted(datasets)[:5])}" if datasets else "no file NAME.inter"
        raise DataError(f"{source}: {problem}; name the files of one in source.file, or in source.files by part")
    return parts or {"all": next(iter(inter))}


@reads("recbole", find=find)
def read(raw: RawFile) -> Iterator[pa.Table]:
    """Yield the columns user, item (string) and, if they exist, value (float64), time (int64).

    Raises DataError for a header without types or without the columns, and as the reader of delimited text does.
    """
    separator = raw.spec.separator or "\t"
    head = delimited.first_filled_line(raw)
    if head is None:
        return
    delimited.require_few_columns(head.text.count(separator.encode()), head.locate(0))
    typed = _typed(head.text.decode(errors="replace"), separator, head.locate(0))
    columns = {}
    for name, field in raw.spec.columns(USUAL).items():
        field = str(field).partition(":")[0]
        if field not in typed:
            if name in ("value", "time") and getattr(raw.spec, name) is None:
                continue
            hint = printable(nearest(field, typed) or f"; fields: {', '.join(typed)}")
            raise DataError(f"{head.locate(0)}: no field {field!r}{hint}; name it in the card's read.{name}")
        if typed[field].endswith("_seq"):
            raise DataError(f"{head.locate(0)}: {field} is a {typed[field]}; {name} needs one value per line, a token or float")
        columns[name] = f"{field}:{typed[field]}"
    spec = raw.spec.model_copy(update={"separator": separator, "header": True, "value": None, "time": None} | columns)
    yield from delimited.read(replace(raw, spec=spec))


def _typed(head: str, separator: str, source: str) -> dict[str, str]:
    """field → type, of the header."""
    fields = [field.rpartition(":") for field in head.split(separator)]
    if not all(name and ":" not in name and kind.strip('" ') in TYPES for name, _, kind in fields):
        expected = f"fields with their types, such as user_id:token, separated by {separator!r}"
        raise DataError(f"{source}: expected {expected}, found {printable(shown(head))}")
    return {name.strip('" '): kind.strip('" ') for name, _, kind in fields}
