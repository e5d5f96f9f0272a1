"""Text with one interaction per line and any separator: CSV, TSV, MovieLens `::`."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

from rankbench.core.errors import DataError, first_line, printable, shown
from rankbench.core.registry import nearest
from rankbench.data.cards import Read
from rankbench.data.columns import first_bad, interactions
from rankbench.data.raw import NOT_UTF8, RawFile, blocks_of_lines
from rankbench.data.readers import reads

SEPARATORS = ("\t", "::", ";", "|", ",", " ")  # frequent ones, in the order in which they are suggested
MOST_COLUMNS = 10_000  # the parser takes about 10 kB for each, however few rows there are
NARROW = b"\x1f"  # replaces a separator of several bytes, which the CSV parser does not support


@reads("delimited")
def read(raw: RawFile) -> Iterator[pa.Table]:
    """Yield the columns user, item (string) and, if the card names them, value (float64), time (int64); one table per 8 MB.

    Raises DataError naming a missing column, or the line that is malformed or has an invalid value or time.
    """
    layout = None
    with raw.open() as file:
        for number, block in blocks_of_lines(file, str(raw.path), raw.spec.encoding):
            lines = Lines(str(raw.path), number, _narrow(block, raw.spec.separator or ",", str(raw.path)))
            if layout is None and (head := lines.head()):
                layout = _layout(head, raw.spec)
                lines = lines.after(head) if raw.spec.header else lines
            if lines.text.strip(b"\n"):
                yield _table(lines, layout, raw.keep_missing)


def read_by_position(raw: RawFile) -> Iterator[pa.Table]:
    """As `read`, for text without a header, by tabs unless the card says otherwise, whose columns are user, item and, if there
    are three or four, value and time. Columns that the card names replace these. Raises DataError for more or fewer columns.
    """
    head = first_filled_line(raw)
    if head is None:
        return
    separator = raw.spec.separator or "\t"
    n_columns = head.text.count(separator.encode()) + 1
    usual: dict[str, str | int] = {"user": 0, "item": 1}
    if raw.spec.user is None and raw.spec.item is None:
        if not 2 <= n_columns <= 4:
            shape = f"found {n_columns} column{'s' * (n_columns > 1)} in {shown(head.text.decode(errors='replace'))}"
            expected = f"expected user, item and perhaps value and time, separated by {separator!r}"
            raise DataError(f"{head.locate(0)}: {expected}; {printable(shape)}; read.separator sets another separator")
        usual |= {name: at for name, at in (("value", 2), ("time", 3)) if at < n_columns}
    update = {"separator": separator, "header": False, **raw.spec.columns(usual)}
    yield from read(replace(raw, spec=raw.spec.model_copy(update=update)))


def require_few_columns(n_separators: int, where: str) -> None:
    """Raise DataError, which begins with `where`, if a line with so many separators has more columns than are read."""
    if n_separators >= MOST_COLUMNS:
        advice = f"at most {MOST_COLUMNS:,} are read; leave out those that are not needed"
        raise DataError(f"{where}: {n_separators + 1:,} columns in one line; {advice}")


def first_filled_line(raw: RawFile) -> Lines | None:
    """The first line that is not empty, or None if there is none."""
    with raw.open() as file:
        for number, block in blocks_of_lines(file, str(raw.path), raw.spec.encoding):
            if head := Lines(str(raw.path), number, block).head():
                return head
    return None


@dataclass(frozen=True)
class Lines:
    """Whole lines of the file `source`; `number` is the line number of the first, from 1."""

    source: str
    number: int
    text: bytes

    def head(self) -> Lines | None:
        """The first line that is not empty."""
        text = self.text.lstrip(b"\n")
        number = self.number + len(self.text) - len(text)
        return Lines(self.source, number, text.partition(b"\n")[0]) if text else None

    def after(self, head: Lines) -> Lines:
        return Lines(self.source, head.number + 1, self.text.lstrip(b"\n").partition(b"\n")[2])

    def n_filled(self) -> int:
        """The number of lines that are not empty."""
        ends = np.frombuffer(b"\n" + self.text + b"\n", np.uint8) == ord("\n")
        return int(np.count_nonzero(ends[1:] & ~ends[:-1]))

    def locate(self, row: int) -> str:
        """File and line number of a row (from 0) of the parsed table; the parser skips empty lines."""
        filled = (number for number, line in enumerate(io.BytesIO(self.text), start=self.number) if line != b"\n")
        return f"{self.source}:{next(islice(filled, row, None))}"


@dataclass(frozen=True)
class _Layout:
    """The columns of a file. `columns`: their names in order; `names`: user, item, value, time → one of them; `wide`: the
    separator as the file has it, which NARROW replaces if it has several bytes.
    """

    separator: str
    wide: str
    columns: list[str]
    names: dict[str, str]
    header: bool


def _narrow(block: bytes, separator: str, source: str) -> bytes:
    wide = separator.encode()
    if len(wide) == 1:
        return block
    if NARROW in block:
        raise DataError(
            f"{source}: contains the control character 0x1f, which this reader uses for the separator {separator!r}"
        )
    return block.replace(wide, NARROW)


def _layout(head: Lines, spec: Read) -> _Layout:
    """The layout by the first line: the columns have its names or, if the file has no header, f0, f1, ..."""
    wide = spec.separator or ","
    separator = wide if len(wide.encode()) == 1 else NARROW.decode()
    require_few_columns(head.text.count(separator.encode()), head.locate(0))
    options = csv.ReadOptions(autogenerate_column_names=not spec.header)
    try:
        columns = csv.read_csv(pa.BufferReader(head.text + b"\n"), options, csv.ParseOptions(delimiter=separator)).column_names
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise DataError(f"{head.locate(0)}: {_message(error)}") from None
    names = {}
    for name, wanted in spec.columns({"user": "user", "item": "item"} if spec.header else {"user": 0, "item": 1}).items():
        names[name] = column = str(wanted) if spec.header else f"f{wanted}"
        if column not in columns:
            named = _blanks(column, columns, wide) or nearest(column, columns) or f"; columns: {', '.join(columns)}"
            hint = _other_separator(head, columns) or (named if spec.header else f"; there are {len(columns)}")
            raise DataError(f"{head.source}: no column {str(wanted)!r}{printable(hint)}")
        if columns.count(column) > 1:
            raise DataError(f"{head.source}: {columns.count(column)} columns are called {column!r}")
    return _Layout(separator, wide, columns, names, spec.header)


def _other_separator(head: Lines, columns: list[str]) -> str:
    """A hint if the first line is one long name that a frequent separator would cut."""
    if len(columns) > 1:
        return ""
    text = head.text.decode(errors="replace")
    separator = next((each for each in SEPARATORS if each in text.strip()), None)
    if separator is None:
        return ""
    spelled = separator.replace("\t", "\\t")
    return f"; the first line, {shown(text)}, is one column: if '{spelled}' separates, set `read: {{separator: \"{spelled}\"}}`"


def _blanks(column: str, columns: list[str], separator: str) -> str:
    """A hint if the column is there, after a blank that belongs to the separator."""
    if f" {column}" not in columns:
        return ""
    return f"; a blank comes before it: if '{separator} ' separates, set `read: {{separator: \"{separator} \"}}`"


def _table(lines: Lines, layout: _Layout, keep_missing: bool) -> pa.Table:
    try:
        table = _parsed(lines, layout)
    except ValueError:  # which pa.ArrowInvalid is
        raise _malformed(lines, layout) from None
    user, item = layout.names["user"], layout.names["item"]
    again = pc.and_(pc.equal(table[user], user), pc.equal(table[item], item)) if layout.header else None
    if again is not None and (row := pc.index(again, True).as_py()) >= 0:
        raise DataError(f"{lines.locate(row)}: the header comes again; remove this line")
    return interactions({name: table[column] for name, column in layout.names.items()}, lines.locate, keep_missing)


def _parsed(lines: Lines, layout: _Layout) -> pa.Table:
    """One row per line, every column as text, so that an id such as 007 or 1e5 keeps its spelling.

    Raises ValueError for a malformed line, which it cannot name, and for a quoted value that spans several lines: most often
    the quote is never closed.
    """
    quoted = b'"' in lines.text
    # An additional last row, which is missing if a quote is open before it.
    text = lines.text + b"\n" + layout.separator.join("x" * len(layout.columns)).encode() if quoted else lines.text
    table = csv.read_csv(
        pa.BufferReader(text),
        # Blocks are parsed in parallel, and cut at line ends even inside quotes.
        read_options=csv.ReadOptions(block_size=len(text) + 1 if quoted else 1 << 20, column_names=layout.columns),
        parse_options=csv.ParseOptions(delimiter=layout.separator),
        convert_options=csv.ConvertOptions(
            include_columns=list(dict.fromkeys(layout.names.values())),
            column_types=dict.fromkeys(layout.columns, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
        ),
    )
    if not quoted:
        return table
    if len(table) != lines.n_filled() + 1:
        raise ValueError("a quote is open at the end of the line")
    table = table.slice(0, len(table) - 1)
    if layout.wide == layout.separator:
        return table
    # In quotes, the separator is text.
    texts = [pc.replace_substring(column, layout.separator, layout.wide) for column in table.columns]
    return pa.table(texts, table.column_names)


def _malformed(lines: Lines, layout: _Layout) -> DataError:
    """The error for the first line that the parser rejects."""
    filled = [line for line in lines.text.split(b"\n") if line]
    first = first_bad(len(filled), lambda n: _parsed(Lines("", 0, b"\n".join(filled[:n])), layout))
    try:
        _parsed(Lines("", 0, filled[first]), layout)
        problem = "a quote is open at the end of the line"
    except ValueError as error:
        problem = _message(error)
    return DataError(f"{lines.locate(first)}: {problem}")


def _message(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError) or "invalid UTF8" in str(error):
        return NOT_UTF8
    return printable(first_line(error).removeprefix("CSV parse error: "))
