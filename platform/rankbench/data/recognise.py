"""Recognise the format of a dataset by its names and first lines, and write the card that reads it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import yaml

from rankbench.core.config import validate
from rankbench.core.environment import Environment
from rankbench.core.errors import DataError, printable, require, shown
from rankbench.core.registry import nearest
from rankbench.data.cards import Card, Read
from rankbench.data.columns import ADVICE, listed
from rankbench.data.fetch import fetch
from rankbench.data.formats import first_lines, format_of_file, format_of_names
from rankbench.data.raw import RawFile, is_archive, names_below
from rankbench.data.readers import parts_by_word, parts_of, reader, visible
from rankbench.data.readers.delimited import SEPARATORS, require_few_columns
from rankbench.data.readers.parquet import opened

# Names of columns, without case and punctuation, that are meant so in published datasets.
USUAL = {
    "user": ("user", "userid", "uid", "customer", "customerid", "reviewerid", "username", "visitorid", "sessionid"),
    "item": (
        *("item", "itemid", "iid", "movieid", "product", "productid", "asin", "parentasin", "businessid", "venueid", "trackid"),
        *("songid", "artistid", "articleid", "newsid", "bookid", "isbn", "gameid", "recipeid", "poiid"),
    ),
    "value": ("rating", "value", "stars", "overall", "score", "weight", "plays", "playcount"),
    "time": ("timestamp", "time", "ts", "date", "datetime", "unixreviewtime", "createdat"),
}
# Other names that may be of a time, such as order_time or createdAt; the values must be times, too.
LIKE_A_TIME = re.compile(r"[_ .-](?i:time|timestamp|datetime|date|at|ts)$|[a-z](Time|Timestamp|Date|At)$")
ENDING = re.compile("bz2|[A-Za-z]{2,8}")  # of a file's name, which says how it is packed and what it is
# A pair that occurs several times would lie in train and in test. The first, for a user knows the item from then on.
ONCE = {"duplicates": "first"}
NONE = "none"  # given instead of a column that is to be left out
# A time in seconds since 1970 is larger than this from May 1970 on; a rating or a count is smaller.
SMALLEST_TIME = 10_000_000


@dataclass(frozen=True)
class Recognised:
    """What a path is: the content of a card that reads it, and what its first block holds."""

    card: dict[str, Any]
    format: str
    parts: tuple[str, ...]
    columns: tuple[str, ...]
    n_rows: int

    @property
    def drops_missing(self) -> bool:
        """Whether a row of the first block has no user or item, so that the card drops such rows and counts them."""
        return "drop_missing" in self.card.get("prepare", ())


def recognise(
    path: Path,
    name: str | None,
    folder: Path,
    columns: dict[str, str | None],
    environment: Environment,
    encoding: str | None = None,
    member: str | None = None,
) -> Recognised:
    """Recognise the file, archive or folder at `path`. `name`: of the card, or None for that of the path; `folder`: where the
    card will lie; `columns`: user, item, value, time → the name or position that the caller gives instead of a guess, or None.
    A value or time of "none" is left out. `encoding`: of a text, or None for UTF-8; `member`: the only file of an archive to
    read, or None.

    The first block is read, so that the card is known to work. Raises DataError if nothing is recognised or a file is damaged,
    ConfigError for a name that a card may not have.
    """
    if not path.exists():
        raise DataError(f"{path}: no such file or folder")
    require(member is None or is_archive(path), f"{path}: member: only an archive has files inside")
    left_out = [each for each in ("value", "time") if columns.get(each) == NONE]
    given = {key: value for key, value in columns.items() if value is not None and key not in left_out}
    about = {} if encoding is None else {"encoding": encoding}
    source, read, published = _source_and_format(path, folder, given, validate(Read, about, str(path)), member)
    read = {key: value for key, value in read.items() if key not in left_out} | about
    content: dict[str, Any] = {"name": name or _card_name(path), "source": source, "read": read}
    if not published:
        content["prepare"] = [ONCE]
    content["split"] = {"protocol": "published"} if published else {"protocol": "random-per-user", "test": 0.2, "valid": 0.1}
    card = validate(Card, {**content, "path": folder.resolve() / "card.yaml"}, "the card")
    files = fetch(card, environment)
    guessed = isinstance(read.get("time"), str) and "time" not in given and _plain(read["time"]) not in USUAL["time"]
    without_time = partial(recognise, path, name, folder, columns | {"time": NONE}, environment, encoding, member)
    try:
        tables = _first_blocks(files)
    except DataError as error:
        if guessed and "expected the time" in str(error):
            return without_time()
        if column := next((each for each in ("value", "time") if f"expected the {each}" in str(error)), None):
            own = f"the format {card.read.format} has a {column} of its own"
            advice = f"name another column as the {column}, or none to leave it out" if column in read else own
            raise DataError(f"{error}; {advice}") from None
        if ADVICE not in str(error):
            raise
        content["prepare"] = ["drop_missing", *content.get("prepare", [])]
        tables = _first_blocks([replace(file, keep_missing=True) for file in files])
    first = tables[0]
    # A column that nobody named and that no step reads is no reason to drop rows.
    if "value" in read and "value" not in given and any("value" in t.column_names and t["value"].null_count for t in tables):
        return recognise(path, name, folder, columns | {"value": NONE}, environment, encoding, member)
    if guessed and not all(_are_times(table["time"]) for table in tables):
        return without_time()
    for column in left_out:
        has_own = column in first.column_names
        require(not has_own, f"{path}: the format {card.read.format} has a {column} of its own, which cannot be left out")
    return Recognised(content, card.read.format, tuple(file.part for file in files), tuple(first.column_names), len(first))


def _are_times(times: pa.ChunkedArray) -> bool:
    """Whether every row has a time, and not a number such as minutes or a count."""
    return times.null_count == 0 and pc.min(times.cast(pa.int64())).as_py() > SMALLEST_TIME


def _first_blocks(files: list[RawFile]) -> list[pa.Table]:
    tables = []
    for file in files:
        table = next(reader(file.spec.format)(file), None)
        if table is None:
            raise DataError(f"{file.path}: no interactions")
        tables.append(table)
    return tables


ALL_VALUES = "All rows count as interactions; a step {min_value: 4} in `prepare` would keep high values only."


def card_text(recognised: Recognised) -> str:
    """The card as YAML, with a sentence on what to decide."""
    text = yaml.safe_dump(recognised.card, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)
    return text + (f"# {ALL_VALUES}\n" if "value" in recognised.columns else "")


def _card_name(path: Path) -> str:
    words = path.name.split(".")
    while len(words) > 1 and not path.is_dir() and ENDING.fullmatch(words[-1]):
        words.pop()
    return re.sub(r"[^a-z0-9._-]+", "-", ".".join(words).lower()).strip("-._")[:64] or "my-data"


def _spelled(path: Path, folder: Path) -> PurePosixPath:
    """The path relative to the folder of the card, or absolute if it does not lie below it."""
    whole = path.resolve()
    return PurePosixPath(whole.relative_to(folder.resolve()) if whole.is_relative_to(folder.resolve()) else whole)


def _source_and_format(
    path: Path, folder: Path, columns: dict[str, str], text: Read, member: str | None
) -> tuple[dict[str, Any], dict[str, Any], bool]:
    """The `source` and `read` of a card, and whether the data have parts. `text`: how a text is encoded."""
    where = _spelled(path, folder)
    if not path.is_dir() and not is_archive(path):
        return {"file": str(where)}, _of_file(RawFile("all", path, "", text, "file"), columns), False
    raw = RawFile("all", path, "", text, "file")
    names = visible(names_below(path) if path.is_dir() else raw.names())
    if member is not None:
        hint = nearest(member, names) or f"; it has {printable(', '.join(names[:5]))}"
        require(member in names, f"{path}: the archive holds no {member}{hint}")
        parts = {"all": member}
    else:
        format = format_of_names(names)
        named = format in ("movielens", "elliot") and (columns or (format == "elliot" and _has_header(raw, names)))
        if format is not None and not named:
            source = {"folder" if path.is_dir() else "file": str(where)}
            return source, {"format": format} | columns, "train" in parts_of(format, names, str(path))
        parts = _parts(path, names)
    first = parts.get("train") or next(iter(parts.values()))  # test alone may look like lines of one user each
    if path.is_dir():
        files = {part: {"file": str(where / name)} for part, name in parts.items()}
        raw = replace(raw, path=path / first)
    else:
        files = {part: {"member": name, "file": str(where)} for part, name in parts.items()}
        raw = replace(raw, member=first)
    return {"files": files}, _of_file(raw, columns), "train" in parts


def _has_header(raw: RawFile, names: list[str]) -> bool:
    """Whether train.tsv, in a folder or an archive, begins with names of columns."""
    name = next(each for each in names if PurePosixPath(each).name == "train.tsv")
    lines = first_lines(replace(raw, path=raw.path / name) if raw.path.is_dir() else replace(raw, member=name), 1)
    return bool(lines) and _has_usual_name(cells_of(lines[0], "\t"))


def _parts(path: Path, names: list[str]) -> dict[str, str]:
    """Files called train and test, and perhaps valid, of one format; or the only file."""
    parts = parts_by_word(((re.split(r"[._-]", PurePosixPath(name).name.lower())[0], name) for name in names), str(path))
    if not parts and len(names) == 1:
        parts = {"all": names[0]}
    if not parts:
        some = ", ".join(sorted(names)[:5]) + (", ..." if len(names) > 5 else "")
        advice = "name one of them instead" if path.is_dir() else "choose one of them as the member"
        raise DataError(f"{path}: not recognised; it has {printable(some) or 'no files'}; {advice}")
    return parts


def _of_file(raw: RawFile, columns: dict[str, str]) -> dict[str, Any]:
    """The `read` of a single file, by its name and its first lines."""
    format = format_of_file(raw, bool(columns))
    if format == "parquet":
        return {"format": format} | _columns(parquet_columns(raw), columns, raw)
    if format in ("recbole", "movielens"):
        return {"format": format} | columns
    lines = first_lines(raw)
    if not lines:
        raise DataError(f"{raw.path}: no interactions")
    if format == "json-lines":
        return {"format": format} | _columns(_keys(lines[0]), columns, raw)
    if format is not None:
        return {"format": format}
    if lines[0].lstrip().startswith("["):
        advice = "write one object per line, as DataFrame.to_json(orient='records', lines=True) of pandas does"
        raise DataError(f"{raw.path}: a JSON array, of which the whole file is one value; {advice}")
    return _of_text(raw, lines, columns)


def separator_of(raw: RawFile, lines: list[str]) -> str:
    """What cuts all lines alike, or else the first line. Raises DataError if nothing does."""
    counts = {each: {line.count(each) for line in lines} for each in SEPARATORS}
    separator = next((each for each, found in counts.items() if len(found) == 1 and found != {0}), None)
    separator = separator or next((each for each in SEPARATORS if each in lines[0]), None)
    if separator is None:
        raise DataError(f"{raw.path}: not recognised; its first line is {printable(shown(lines[0]))}")
    require_few_columns(max(line.count(separator) for line in lines), str(raw.path))
    wide = (f" {separator} ", f"{separator} ")
    return next((each for each in wide if all(line.count(separator) == line.count(each) for line in lines)), separator)


def cells_of(line: str, separator: str) -> list[str]:
    """What the separator cuts a line into, without blanks and quotes around it."""
    return [cell.strip().strip('"') for cell in line.split(separator)]


def _of_text(raw: RawFile, lines: list[str], columns: dict[str, str]) -> dict[str, Any]:
    """The `read` of lines with one interaction each: the separator that cuts all of them alike, and the columns."""
    separator = separator_of(raw, lines)
    first, *rest = (cells_of(line, separator) for line in lines)
    positions = {name: column for name, column in columns.items() if column.isdigit()}
    require(
        not positions or len(positions) == len(columns),
        f"{raw.path}: give the columns all by name or all by position, not {', '.join(columns.values())}",
    )
    chosen = [int(column) for column in positions.values()] or [0, 1]
    cells, *below = ([line[each] for each in chosen if each < len(line)] for line in (first, *rest))
    # Above ids with letters, a header is known by its names; positions do not say whether there is one.
    named = _has_usual_name(cells) or _looks_like_names(cells, below)
    if (columns or len(first) <= 4) and (_is_header(first, rest, chosen) or (positions and named)):
        if not columns and not _has_usual_name(first):
            raise _no_columns(raw, first)
        columns = {name: first[int(column)] for name, column in positions.items()} or columns
    if _has_usual_name(first) or columns.keys() & {"user", "item"}:
        separated = {} if separator == "," else {"separator": separator}
        if not any(column.isdigit() for column in columns.values()):
            return {"format": "delimited"} | separated | _columns(first, columns, raw)
        return {"format": "delimited"} | separated | {"header": False} | {key: int(value) for key, value in columns.items()}
    if not 2 <= len(first) <= 4 or not first[0] or any(re.search(r"[A-Za-z]", cell) for cell in first[2:]):
        raise _no_columns(raw, first)
    if _looks_like_names(first[:2], [line[:2] for line in rest]):
        raise _no_columns(raw, first)
    if any(re.match(r"\d{4}-\d{2}-\d{2}", cell) for cell in first[:2]):
        raise _no_columns(raw, first)  # a date is no id
    if separator == "\t" and not any(map(_is_time, first[2:3])) and all(map(_is_time, first[3:4])):
        return {"format": "cornac"}
    at: dict[str, Any] = {"user": 0, "item": 1}
    for position, cell in enumerate(first[2:], start=2):
        at.setdefault("time" if _is_time(cell) else "value", position)
    return {"format": "delimited", "separator": separator, "header": False} | at


def usual_columns(present: Sequence[str], usual: Mapping[str, Sequence[str]] = USUAL) -> dict[str, str]:
    """The names in `usual` → the column that is called so, as far as there is one."""
    by_plain: dict[str, str] = {}
    for column in present:
        by_plain.setdefault(_plain(column), column)
    found = {name: next((by_plain[each] for each in words if each in by_plain), None) for name, words in usual.items()}
    return {name: column for name, column in found.items() if column is not None}


def _columns(present: list[str], given: dict[str, str], raw: RawFile) -> dict[str, str]:
    """user, item and, if there are any, value and time → the column that is given, or has a usual name."""
    found = usual_columns(present) | given
    chosen = {name: found[name] for name in USUAL if name in found}
    # Of several, such as release_date and rated_at, none is taken: the wrong one would make another split without a word.
    if "time" not in chosen and len(like := [each for each in present if LIKE_A_TIME.search(each)]) == 1:
        chosen["time"] = like[0]
    if not {"user", "item"} <= chosen.keys():
        raise _no_columns(raw, present)
    return chosen


def _no_columns(raw: RawFile, present: list[str]) -> DataError:
    return DataError(f"{raw.path}: which columns are user and item? Say so by --user and --item; columns: {listed(present)}")


def _plain(column: str) -> str:
    return re.sub(r"[^a-z0-9]", "", column.lower())


def _has_usual_name(cells: Sequence[str]) -> bool:
    """Whether one of the cells is called as the user or the item usually is."""
    return not usual_columns(cells).keys().isdisjoint({"user", "item"})


def _is_header(first: list[str], rest: list[list[str]], columns: list[int]) -> bool:
    """Whether the first line has words above whole numbers in one of the columns."""

    def words_above_numbers(column: int) -> bool:
        below = [line[column] for line in rest if column < len(line)]
        return column < len(first) and bool(below) and not first[column].isdigit() and all(each.isdigit() for each in below)

    return any(map(words_above_numbers, columns))


def _looks_like_names(first: list[str], rest: list[list[str]]) -> bool:
    """Whether the first line has words without digits above ids that all have digits: names of columns, and not ids."""
    below = [cell for line in rest for cell in line]
    return bool(below) and not any(map(_has_digit, first)) and all(map(_has_digit, below))


def _has_digit(cell: str) -> bool:
    return any(letter.isdigit() for letter in cell)


def _is_time(cell: str) -> bool:
    try:
        return float(cell) >= SMALLEST_TIME
    except ValueError:
        return bool(re.match(r"\d{4}-\d{2}-\d{2}", cell))


def parquet_columns(raw: RawFile) -> list[str]:
    with raw.open() as file:
        return [*opened(raw, file).schema_arrow.names]


def _keys(line: str) -> list[str]:
    return re.findall(r"""[{,]\s*u?["'](\w+)["']\s*:""", line)
