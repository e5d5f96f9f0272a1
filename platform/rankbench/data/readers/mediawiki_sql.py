r"""Page links of a wiki, from the SQL dumps of MediaWiki as of 2025: user = the linking page, item = the page linked to.

The part `all` is *-pagelinks.sql.gz; a link refers to a row of linktarget, that row has a title, and the title has a page.
Companions of the card: `linktarget` and `page` (*-linktarget.sql.gz and *-page.sql.gz).

- Both pages of a link are in namespace 0, the articles; ids are page ids.
- A link to a title without a page, or from a deleted page, is dropped.
- A link from a redirect page is dropped, because such a page has no text of its own. One to a redirect page is kept as it is.

A dump, as mysqldump and mariadb-dump write it:

    CREATE TABLE `page` (                        the order of the columns, which differs between years
      `page_id` int(8) unsigned NOT NULL, ...
    ) ENGINE=InnoDB ...;
    INSERT INTO `page` VALUES (1,0,'April',0),(2,0,'Rock \'n\' roll',0), ... ;       a line of a megabyte or more

A statement begins on a line of its own, and text has no line end, because dumps escape it. Other statements, comments and other
tables are skipped. What follows a backslash is the letter itself: MediaWiki's titles have no control characters, of which dumps
write a letter.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

from rankbench.core.errors import DataError, first_line, printable
from rankbench.data.raw import RawFile, blocks_of_lines
from rankbench.data.readers import reads

ARTICLES = 0  # the namespace
MANY = 1 << 21  # rows of titles, which take some 100 MB
NUMBER, TEXT = pa.int64(), pa.binary()
CREATE = re.compile(rb"CREATE TABLE (?:IF NOT EXISTS )?`([^`]+)`", re.IGNORECASE)
COLUMN = re.compile(rb"\s*`([^`]+)`\s")
INSERT = re.compile(rb"INSERT INTO `([^`]+)` VALUES", re.IGNORECASE)
# Quantifiers are possessive: on text that is not SQL a match fails in linear time.
FIELD = rb"(?:[^'(),\\]++|'(?:[^'\\]++|\\.|'')*+')"
ROW = re.compile(rb"\s*+\((%s(?:,%s)*+)\)\s*+[,;]" % (FIELD, FIELD))
ROWS = re.compile(rb"(?:%s)*+\s*+" % ROW.pattern)


@reads("mediawiki-sql")
def read(raw: RawFile) -> Iterator[pa.Table]:
    """Yield the columns user, item: page ids, int64. Memory: about 50 bytes per page, 16 per linked title, two million titles.

    Raises DataError for a missing or an unknown companion, or as `rows` does.
    """
    if unknown := {*raw.companions} - {"linktarget", "page"}:
        raise DataError(f"{raw.path}: the format mediawiki-sql reads no source.companions.{min(unknown)}")
    linktarget, pages = raw.companion("linktarget"), _pages(raw.companion("page"))
    ids, is_redirect = pages["page_id"].to_numpy(), pages["page_is_redirect"].to_numpy() != 0
    target_ids, target_pages = _targets(linktarget, pages)
    for batch in rows(raw, "pagelinks", {"pl_from": NUMBER, "pl_from_namespace": NUMBER, "pl_target_id": NUMBER}):
        article = batch["pl_from_namespace"].to_numpy() == ARTICLES
        user, target = batch["pl_from"].to_numpy()[article], batch["pl_target_id"].to_numpy()[article]
        source, item = _position(ids, user), _position(target_ids, target)
        kept = (source >= 0) & (item >= 0) & ~is_redirect[source]
        if kept.any():
            yield pa.table({"user": user[kept], "item": target_pages[item[kept]]})


def _pages(raw: RawFile) -> pa.Table:
    """The articles, sorted by page_id."""
    columns = {"page_id": NUMBER, "page_namespace": NUMBER, "page_title": TEXT, "page_is_redirect": NUMBER}
    articles = [_articles(batch, "page_namespace") for batch in rows(raw, "page", columns)]
    if not sum(map(len, articles)):
        raise DataError(f"{raw.path}: no page of namespace {ARTICLES}")
    pages = pa.concat_tables(articles).sort_by("page_id")
    if (least := pages["page_id"][0].as_py()) < 0:
        raise DataError(f"{raw.path}: page_id is {least}; page ids are 0 or more")
    return pages


def _targets(raw: RawFile, pages: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """The sorted ids of the linked titles that have a page, and the id of that page."""
    ids, page_ids = [], []
    columns = {"lt_id": NUMBER, "lt_namespace": NUMBER, "lt_title": TEXT}
    for titles in _many(_articles(batch, "lt_namespace") for batch in rows(raw, "linktarget", columns)):
        position = pc.index_in(titles["lt_title"], value_set=pages["page_title"])
        ids.append(titles["lt_id"].filter(pc.is_valid(position)).to_numpy())
        page_ids.append(pages["page_id"].take(position.drop_null()).to_numpy())
    if not sum(map(len, ids)):
        raise DataError(f"{raw.path}: none of its titles has a page; are the dumps of the same wiki and date?")
    order = np.argsort(np.concatenate(ids), kind="stable")
    return np.concatenate(ids)[order], np.concatenate(page_ids)[order]


def _many(batches: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Tables of MANY rows or more, and one of the rest: each look for titles first hashes those of all pages."""
    held: list[pa.Table] = []
    for batch in batches:
        held.append(batch)
        if sum(map(len, held)) >= MANY:
            yield pa.concat_tables(held)
            held = []
    if held:
        yield pa.concat_tables(held)


def _articles(batch: pa.Table, namespace: str) -> pa.Table:
    return batch.filter(pc.equal(batch[namespace], ARTICLES))


def _position(ids: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The position of each of `wanted` in `ids`, which are sorted and not empty, or -1."""
    position = np.searchsorted(ids, wanted)
    position[position == len(ids)] = 0
    return np.where(ids[position] == wanted, position, -1)


def rows(raw: RawFile, table: str, wanted: Mapping[str, pa.DataType]) -> Iterator[pa.Table]:
    """Yield tables of the `wanted` columns (name → int64 or binary; NULL of the latter is empty), in their order.

    Raises DataError, naming the line, if the file is truncated, or has malformed rows, or rows before their CREATE TABLE; also
    if there is no CREATE TABLE of `table`, or a wanted column is missing.
    """
    columns: list[str] | None = None
    is_creating = is_inserting = False
    with raw.open() as file:
        for first, block in blocks_of_lines(file, str(raw.path)):
            found: list[tuple[str, bytes]] = []  # where a line is, and its rows
            for number, line in enumerate(io.BytesIO(block), first):
                where = f"{raw.path}:{number}"
                if is_creating:
                    if column := COLUMN.match(line):
                        columns.append(printable(column[1].decode(errors="replace")))
                    is_creating = not line.startswith(b")")
                elif is_inserting or ((insert := INSERT.match(line)) and insert[1] == table.encode()):
                    if columns is None:
                        raise DataError(
                            f"{where}: rows of {table!r} before its CREATE TABLE, which gives the order of the columns"
                        )
                    found.append((where, line if is_inserting else line[insert.end() :]))
                    is_inserting = not line.rstrip().endswith(b";")
                elif (create := CREATE.match(line)) and create[1] == table.encode():
                    columns, is_creating = [], True
            if found:
                yield _table(found, columns, wanted)
    if columns is None:
        raise DataError(f"{raw.path}: no CREATE TABLE `{table}`; this is not a dump of that table")
    if is_creating or is_inserting:
        raise DataError(f"{where}: the file ends within a statement: it is truncated; delete it and fetch again")


def _table(lines: list[tuple[str, bytes]], columns: list[str], wanted: Mapping[str, pa.DataType]) -> pa.Table:
    """The rows of some lines. Raises DataError for the first line with a malformed one."""
    where, text = lines[0][0], b"".join(text for _, text in lines)
    if missing := [name for name in wanted if name not in columns]:
        listed = ", ".join(columns) or "none"
        raise DataError(f"{where}: no column {missing[0]}; the columns are {listed}. The expected schema is that of 2025")
    try:
        if (bad := ROWS.match(text).end()) < len(text):
            raise ValueError(f"found {text[bad : bad + 24]!r}".replace("b'", "'", 1))
        return _parsed(ROW.sub(rb"\1\n", text), columns, wanted)
    except ValueError as error:  # which pa.ArrowInvalid is
        for line in lines if len(lines) > 1 else ():
            _table([line], columns, wanted)
        example = f"rows of {len(columns)} columns such as (1,0,'Title')"
        raise DataError(f"{where}: expected {example}: {printable(first_line(error))}") from None


def _parsed(text: bytes, columns: list[str], wanted: Mapping[str, pa.DataType]) -> pa.Table:
    """The columns of rows that each end in \\n. Raises ValueError for another number of columns, or a value of another type."""
    table = csv.read_csv(
        pa.BufferReader(text),
        csv.ReadOptions(column_names=columns, block_size=max(len(text), 1)),
        csv.ParseOptions(quote_char="'", escape_char="\\", newlines_in_values=True),
        csv.ConvertOptions(
            include_columns=list(wanted),
            column_types=dict(wanted),
            null_values=["NULL"],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    for name, kind in wanted.items():
        if kind == pa.binary():
            table = table.set_column(table.column_names.index(name), name, pc.fill_null(table[name], b""))
        elif table[name].null_count:
            raise ValueError(f"{name} is NULL")
    return table
