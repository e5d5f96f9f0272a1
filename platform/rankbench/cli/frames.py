"""Reading ids and writing results as CSV or Parquet, by the suffix of the file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankbench.core.errors import DataError, require
from rankbench.core.files import atomic_file, require_writable_file
from rankbench.core.spreadsheet import inert_table, original

if TYPE_CHECKING:
    import pandas as pd

SUFFIXES = (".csv", ".parquet")


def check_output(path: Path | None) -> None:
    """Raise ConfigError or StorageError if `path` cannot be written; called before any work is done."""
    if path is not None:
        _require_suffix(path)
        require_writable_file(path)


def _require_suffix(path: Path) -> None:
    require(path.suffix in SUFFIXES, f"{path}: expected a name that ends in .csv or .parquet")


def read_columns(path: Path, columns: tuple[str, ...]) -> dict[str, list[Any]]:
    """Read the named columns of a file, with ids as written. Raises DataError that names the file and the column or row."""
    import pyarrow as pa

    from rankbench.data.cards import Read
    from rankbench.data.columns import ADVICE
    from rankbench.data.raw import RawFile
    from rankbench.data.readers import reader

    _require_suffix(path)
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    # A list of ids is read as interactions of an id with itself: one reader, one set of checks.
    first, last = columns[0], columns[-1]
    spec = Read(format="parquet" if path.suffix == ".parquet" else "delimited", user=first, item=last)
    try:
        tables = [table for table in reader(spec.format)(RawFile("all", path, "", spec, "file")) if len(table)]
    except DataError as error:
        raise DataError(str(error).replace(ADVICE, "")) from None  # a list of ids has no card that could drop rows
    if not tables:
        raise DataError(f"{path}: no rows")
    table = pa.concat_tables(tables)

    def ids(column: str) -> list[Any]:
        return [original(each) if spec.format == "delimited" else each for each in table[column].to_pylist()]

    return {first: ids("user")} | ({last: ids("item")} if last != first else {})


def chosen_ids(given: list[str] | None, path: Path | None, column: str, otherwise: str = "") -> list[str]:
    """Ids from the command line and from a file, without duplicates. Raises ConfigError, which names what else the command
    takes, if there are none.
    """
    ids: list[Any] = list(given or [])
    if path is not None:
        ids += read_columns(path, (column,))[column]
    how = f"--{column} ID, or --{column}s FILE with a column {column!r}{otherwise}"
    require(bool(ids), f"give at least one {column}: {how}")
    return [*dict.fromkeys(map(str, ids))]  # a file may have numbers


def write_frame(frame: pd.DataFrame, path: Path) -> None:
    """Write a DataFrame atomically. In CSV, text that a spreadsheet would run is made inert; `read_columns` reads it back."""
    with atomic_file(path) as scratch:
        if path.suffix == ".parquet":
            frame.to_parquet(scratch, index=False)
        else:
            inert_table(frame).to_csv(scratch, index=False)
