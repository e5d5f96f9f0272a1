"""Page links from SQL dumps, against dumps written row by row and links resolved with dictionaries."""

import gzip
import random
import re
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbench.core.errors import DataError
from rankbench.data import sql_dump
from rankbench.data.cards import Read
from rankbench.data.prepare import load
from rankbench.data.raw import RawFile
from rankbench.data.readers.mediawiki_sql import read
from rankbench.data.sql_dump import LENGTH, NUMBER, TEXT

COLUMNS = {
    "pagelinks": ["pl_from", "pl_from_namespace", "pl_target_id"],
    "linktarget": ["lt_id", "lt_namespace", "lt_title"],
    "page": ["page_id", "page_namespace", "page_title", "page_is_redirect", "page_random", "page_lang"],
    "redirect": ["rd_from", "rd_namespace", "rd_title", "rd_interwiki", "rd_fragment"],
}
# What a dump puts a backslash before, and the letter that it writes then.
ESCAPES = {0: b"0", 10: b"n", 13: b"r", 26: b"Z", ord("'"): b"'", ord('"'): b'"', ord("\\"): b"\\"}

# Articles 10, 20, 30; redirects 11 -> Rock 'n' roll, 12 -> elsewhere, 13 -> nowhere, 14 -> 11; a talk page 40.
PAGES = [
    (10, 0, b"April", 0, 0.25, None),
    (20, 0, b"Rock 'n' roll", 0, 1e-05, None),
    (30, 0, "C:\\Жук\n".encode(), 0, 0.5, b"en"),
    (11, 0, b"Rock", 1, 0.5, None),
    (12, 0, b"Wikt", 1, 0.5, None),
    (13, 0, b"Lost", 1, 0.5, None),
    (14, 0, b"Rocks", 1, 0.5, None),
    (40, 1, b"April", 0, 0.5, None),
]
REDIRECTS = [
    (11, 0, b"Rock 'n' roll", b"", b"History"),
    (12, 0, b"April", b"w", None),
    (13, 0, b"Nowhere", None, None),
    (14, 0, b"Rock", b"", None),
    (10, 0, b"Rock", b"", None),  # stale: page 10 is no redirect
    (99, 0, b"April", b"", None),  # of a page that is gone
]
TARGETS = [(2, 1, b"April"), (1, 0, b"April"), (3, 0, b"Rock 'n' roll"), (4, 0, "C:\\Жук\n".encode()), (5, 0, b"Nowhere")]
TARGETS += [(6, 0, b"Rock"), (7, 0, b"Wikt"), (8, 0, b"Lost"), (9, 0, b"Rocks"), (10, -1, b"Random")]
LINKS = [(10, 0, target) for target in range(1, 12)]
LINKS += [(20, 0, 1), (30, 0, 4), (11, 0, 1), (40, 1, 1), (40, 0, 1), (99, 0, 1)]
WIKI = {"pagelinks": LINKS, "linktarget": TARGETS, "page": PAGES, "redirect": REDIRECTS}


def literal(value) -> bytes:
    if isinstance(value, bytes):
        return b"'" + b"".join(b"\\" + ESCAPES[letter] if letter in ESCAPES else bytes([letter]) for letter in value) + b"'"
    return b"NULL" if value is None else str(value).encode()


def dump(table: str, rows, columns=None, between: bytes = b",", per_insert: int = 3) -> bytes:
    """A dump as mariadb-dump writes it, with the columns in the order of `columns`."""
    columns = columns or COLUMNS[table]
    places = [COLUMNS[table].index(name) for name in columns]
    lines = [b"/*M!999999\\- enable the sandbox mode */ ", b"-- it's a `dump`; of 2025", b"/*!40101 SET NAMES utf8mb4 */;"]
    lines += [b"DROP TABLE IF EXISTS `%s`;" % table.encode(), b"CREATE TABLE `%s` (" % table.encode()]
    lines += [b"  `%s` varbinary(255) NOT NULL DEFAULT ';'," % name.encode() for name in columns]
    lines += [b"  PRIMARY KEY (`%s`)" % columns[0].encode(), b") ENGINE=InnoDB;", b"LOCK TABLES `x` WRITE;", b"# rows"]
    for start in range(0, len(rows), per_insert):
        values = [b"(" + b",".join(literal(row[place]) for place in places) + b")" for row in rows[start : start + per_insert]]
        lines.append(b"INSERT INTO `%s` VALUES " % table.encode() + between.join(values) + b";")
    return b"\n".join([*lines, b"UNLOCK TABLES;", b"-- Dump completed"])


def raw_of(folder: Path, contents: dict[str, bytes], suffix: str = ".sql") -> RawFile:
    """The part, with every other table as companion."""
    files = {}
    for table, content in contents.items():
        path = folder / f"{table}{suffix}"
        path.write_bytes(content)
        files[table] = RawFile("all", path, "", Read(format="mediawiki-sql"), "file")
    part = files.pop("pagelinks")
    return RawFile("all", part.path, "", part.spec, "file", companions=files)


def links_of(contents: dict[str, bytes], block: int = 1 << 20, suffix: str = ".sql", batch: int = 1 << 20) -> list[tuple]:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sql_dump, "BLOCK", block)
        patch.setattr(sql_dump, "BATCH", batch)
        raw = raw_of(Path(folder), contents, suffix)
        found = []
        for table in read(raw):
            assert table.schema == pa.schema({"user": pa.int64(), "item": pa.int64()})
            found += zip(table["user"].to_pylist(), table["item"].to_pylist(), strict=True)
        return found


def resolved(wiki: dict[str, list]) -> list[tuple[int, int]]:
    """What the reader's docstring says, link by link."""
    articles = {title: number for number, namespace, title, *_ in wiki["page"] if namespace == 0}
    is_redirect = {number: bool(flag) for number, namespace, _, flag, *_ in wiki["page"] if namespace == 0}
    points_to = {}
    for source, namespace, title, interwiki, _ in wiki.get("redirect", []):
        if namespace == 0 and not interwiki and title in articles and is_redirect.get(source):
            points_to[source] = articles[title]
    titles = {number: title for number, namespace, title in wiki["linktarget"] if namespace == 0}
    found = []
    for source, namespace, target in wiki["pagelinks"]:
        if namespace != 0 or is_redirect.get(source, True) or titles.get(target) not in articles:
            continue
        page = articles[titles[target]]
        if is_redirect[page] and "redirect" in wiki:
            if page not in points_to:
                continue
            page = points_to[page]
        found.append((source, page))
    return found


def contents_of(wiki: dict[str, list], **form) -> dict[str, bytes]:
    return {table: dump(table, rows, **form) for table, rows in wiki.items()}


def test_a_handmade_wiki_with_and_without_its_redirects():
    # 10 links to itself, to 20 and 30, and to the redirects 11, 12, 13, 14.
    plain = {table: rows for table, rows in WIKI.items() if table != "redirect"}
    assert links_of(contents_of(plain)) == [
        (10, 10), (10, 20), (10, 30), (10, 11), (10, 12), (10, 13), (10, 14), (20, 10), (30, 30),
    ]  # fmt: skip
    # 11 leads to 20; 12 out of the wiki; 13 nowhere; 14, a double redirect, one step to 11.
    assert links_of(contents_of(WIKI)) == [(10, 10), (10, 20), (10, 30), (10, 20), (10, 11), (20, 10), (30, 30)]


titles = st.sampled_from(
    [b"", b"A", b"a", b"'", b'"', b"\\", b"\\'", b"a;b", b"),(", b"\xff\xfe", "é東".encode(), b"--", b"\n\x1a"]
)
small = st.integers(1, 12)
namespaces = st.sampled_from([0, 0, 0, 1])


@st.composite
def wikis(draw):
    """Ids and titles are few, so that most links lead somewhere; ids are unique, and titles in a namespace, as in MediaWiki."""
    page = st.tuples(small, namespaces, titles, st.integers(0, 1), st.just(0.5), st.none())
    pages = draw(st.lists(page, min_size=1, max_size=12, unique_by=(lambda p: p[0], lambda p: (p[1], p[2]))))
    pages += [(100, 0, b"Certain", 0, 0.5, None)]
    redirect = st.tuples(small, namespaces, titles, st.sampled_from([None, b"", b"w"]), st.none())
    targets = draw(st.lists(st.tuples(small, namespaces, titles), max_size=12, unique_by=lambda t: t[0]))
    wiki = {
        "page": pages,
        "linktarget": [*targets, (100, 0, b"Certain")],
        "pagelinks": [*draw(st.lists(st.tuples(small, namespaces, small), max_size=40)), (100, 0, 100)],
    }
    if draw(st.booleans()):
        wiki["redirect"] = draw(st.lists(redirect, max_size=12, unique_by=lambda r: r[0]))
    return wiki


@given(
    wiki=wikis(),
    block=st.integers(1, 200),
    batch=st.sampled_from([1, 7, 1000]),
    shuffle=st.randoms(use_true_random=False),
    between=st.sampled_from([b",", b",\n", b" ,\t"]),
    per_insert=st.integers(1, 50),
    suffix=st.sampled_from([".sql", ".sql.gz"]),
)
def test_links_are_those_of_dictionaries_whatever_the_form_of_the_dump(
    wiki, block, batch, shuffle, between, per_insert, suffix
):
    contents = {}
    for table, rows in wiki.items():
        columns = shuffle.sample(COLUMNS[table], len(COLUMNS[table]))
        contents[table] = dump(table, rows, columns, between, per_insert)
    if suffix == ".sql.gz":
        contents = {table: gzip.compress(content) for table, content in contents.items()}
    assert links_of(contents, block, suffix, batch) == resolved(wiki)


@given(
    rows=st.lists(st.tuples(st.integers(-(10**17), 10**17), st.binary(max_size=30), st.none() | st.binary(max_size=5))),
    block=st.integers(1, 100),
)
def test_whatever_bytes_a_title_has_they_are_read_back(rows, block, tmp_path_factory):
    columns = COLUMNS["linktarget"]
    path = tmp_path_factory.mktemp("titles") / "linktarget.sql"
    path.write_bytes(dump("linktarget", rows, columns))
    raw = RawFile("all", path, "", Read(format="mediawiki-sql"), "file")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sql_dump, "BLOCK", block)
        found = list(sql_dump.rows(raw, "linktarget", {"lt_id": NUMBER, "lt_namespace": TEXT, "lt_title": LENGTH}))
    assert [row for table in found for row in table.to_pylist()] == [
        {"lt_id": number, "lt_namespace": title, "lt_title": len(last or b"")} for number, title, last in rows
    ]


def test_quotes_may_be_doubled_and_other_tables_lie_between():
    contents = contents_of({"page": PAGES, "linktarget": TARGETS, "pagelinks": LINKS[:1]})
    other = dump("redirect", REDIRECTS)
    page = contents["page"].replace(b"\\'", b"''")
    assert links_of({**contents, "page": other + b"\n" + page, "pagelinks": contents["pagelinks"] + b"\n" + other}) == [
        (10, 10)
    ]


def test_tables_come_in_batches():
    links = [(10, 0, 1)] * 1000
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sql_dump, "BATCH", 100)
        sizes = [len(table) for table in read(raw_of(Path(folder), contents_of({**WIKI, "pagelinks": links})))]
    assert sum(sizes) == 1000
    assert len(sizes) > 5 and max(sizes) < 110


GOOD = contents_of({table: rows for table, rows in WIKI.items() if table != "redirect"})
ROW = b"(10,0,3)"
END = GOOD["pagelinks"].index(ROW)


def links(old: bytes, new: bytes) -> bytes:
    return GOOD["pagelinks"].replace(old, new)


@pytest.mark.parametrize(
    ("table", "content", "message"),
    [
        ("pagelinks", b"", "no CREATE TABLE `pagelinks`"),
        ("pagelinks", b"user,item\n1,2\n", "byte 0 (unpacked): the file ends within a statement, or is not an SQL dump"),
        ("pagelinks", b"x" * 1_100_000, "byte 0 (unpacked): no statement ends within 1 MB; found 'xxx"),
        ("pagelinks", b"\x00" + GOOD["pagelinks"], "the file ends within a statement, or is not an SQL dump"),
        ("pagelinks", GOOD["page"], "no CREATE TABLE `pagelinks`; this is not a dump of that table"),
        ("pagelinks", GOOD["pagelinks"][GOOD["pagelinks"].index(b"INSERT") :], "rows of 'pagelinks' before"),
        ("pagelinks", b"INSERT INTO `pagelinks` VALUES (1,0,2);", "rows of 'pagelinks' before its CREATE TABLE"),
        ("pagelinks", links(b"`pl_target_id`", b"`pl_title`"), "no column pl_target_id; its columns: pl_from, "),
        ("pagelinks", links(b" VALUES", b" (`pl_from`) VALUES"), "expected INSERT INTO `table` VALUES"),
        ("pagelinks", GOOD["pagelinks"][: END + 4], f"byte {END} (unpacked): the file ends within a row: it is truncated"),
        ("pagelinks", links(ROW, b"(10,0)"), f"byte {END + 5} (unpacked): expected rows of 3 columns such as (1,0,'Title')"),
        ("pagelinks", links(ROW, b"(10,0,3,4)"), f"byte {END + 7}"),
        ("pagelinks", links(ROW, b"(10,0,3x)"), f"byte {END + 6}"),
        ("pagelinks", links(ROW, b"(10,0,-)"), f"byte {END + 6}"),
        ("pagelinks", links(ROW, b"(10,0,'3')"), f"byte {END + 6}"),
        ("pagelinks", links(ROW, b"(10,0,NULL)"), f"byte {END + 6}"),
        ("pagelinks", links(ROW, b"(10,0,9999999999999999999)"), f"byte {END + 6}"),
        ("pagelinks", links(ROW, b"(10,0,\x003)"), f"byte {END + 6}"),
        ("pagelinks", links(ROW, b"(10,0,3)(10,0,3)"), f"byte {END + 8}"),
        ("pagelinks", links(ROW, b"(" + b" " * 2_200_000), "a row is longer than 1 MB"),
        ("page", GOOD["page"].replace(b"'April'", b"'Ap\x00ril'"), "expected rows of 6 columns"),
        ("page", GOOD["page"].replace(b"'April'", b"April"), "expected rows of 6 columns"),
        ("page", GOOD["page"].replace(b"(10,0,", b"(-10,0,"), "page_id is -10"),
        ("page", dump("page", [PAGES[-1]]), "no page of namespace 0"),
        ("page", GOOD["linktarget"], "no CREATE TABLE `page`"),
        ("linktarget", GOOD["linktarget"].replace(b"'April'", b"'April"), "expected rows of 3 columns"),
        ("linktarget", dump("linktarget", [TARGETS[4]]), "none of its titles has a page"),
    ],
)  # fmt: skip
def test_a_damaged_dump_is_one_line_that_names_file_and_byte(table, content, message):
    with pytest.raises(DataError) as error:
        links_of({**GOOD, table: content})
    assert f"{table}.sql: " in str(error.value)
    assert message in str(error.value)
    assert str(error.value).isprintable()


@pytest.mark.parametrize("table", ["pagelinks", "linktarget", "page"])
def test_a_gzip_cut_anywhere_is_refused(table):
    packed = {name: gzip.compress(content, mtime=0) for name, content in GOOD.items()}
    for length in range(1, len(packed[table]), 7):
        with pytest.raises(DataError, match=f"{table}.sql.gz: damaged"):
            links_of({**packed, table: packed[table][:length]}, suffix=".sql.gz")


def test_a_plain_dump_cut_anywhere_gives_its_first_rows_or_is_refused():
    whole = links_of(GOOD)
    refused = 0
    for length in range(len(GOOD["pagelinks"])):
        try:
            found = links_of({**GOOD, "pagelinks": GOOD["pagelinks"][:length]})
        except DataError:
            refused += 1
        else:
            assert found == whole[: len(found)]
    # All that a cut between two statements can look like is a shorter dump.
    assert refused > 0.9 * GOOD["pagelinks"].index(b"UNLOCK")


@pytest.mark.parametrize("missing", ["linktarget", "page"])
def test_a_companion_that_is_missing_is_named(missing):
    with pytest.raises(DataError, match=rf"pagelinks\.sql: the format mediawiki-sql needs source\.companions\.{missing}"):
        links_of({table: content for table, content in GOOD.items() if table != missing})


pieces = st.binary(max_size=4) | st.sampled_from([b"'", b"\\", b"(", b");", b"/*", b"INSERT"])


@given(table=st.sampled_from(sorted(GOOD)), content=st.binary(max_size=300), block=st.integers(1, 300))
def test_any_bytes_are_links_or_a_clear_error(table, content, block):
    harmless({**GOOD, table: content}, block)


@given(
    table=st.sampled_from(sorted(GOOD)),
    edits=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 3), pieces)),
    block=st.integers(1, 3000),
)
def test_a_mutated_dump_is_links_or_a_clear_error(table, edits, block):
    content = GOOD[table]
    for place, cut, paste in edits:
        at = int(place * len(content))
        content = content[:at] + paste + content[at + cut :]
    harmless({**GOOD, table: content}, block)


def harmless(contents, block):
    try:
        links_of(contents, block)
    except DataError as error:
        assert ".sql: " in str(error) and str(error).isprintable()


def test_many_small_statements_cost_no_more_than_a_pass():
    """Each of them would copy or scan the block again if the parser went back: minutes instead of a second."""
    head, _, tail = GOOD["pagelinks"].partition(b"INSERT")
    small = b"".join(b"INSERT INTO `pagelinks` VALUES (10,0,3);;-- x\n" for _ in range(20_000))
    assert links_of({**GOOD, "pagelinks": head + small + b"INSERT" + tail}, 4 << 20) == [(10, 20)] * 20_000 + links_of(GOOD)


def test_two_million_empty_lines_in_a_statement_are_read_once():
    """If all lines that follow were tried from each of them, this would take an hour."""
    contents = contents_of(WIKI)
    contents["pagelinks"] = contents["pagelinks"].replace(b"\n) ENGINE", (2 << 20) * b"\n" + b") ENGINE")
    assert links_of(contents, block=4 << 20) == links_of(contents_of(WIKI))


@given(statement=st.text("`a \t\r\n", max_size=40))
def test_columns_are_the_quoted_names_that_begin_a_line(statement):
    names = re.findall(r"^\s*`([^`]+)`\s", statement, re.MULTILINE)
    assert [name.decode() for name in sql_dump.COLUMN.findall(statement.encode())] == names


def test_from_card_to_split(write, environment):
    """Through the card: companions beside the part, a page that links to itself, the same page on both sides."""
    n = 12
    pages = [(7 * i + 1, 0, b"Page %d" % i, 0, 0.5, None) for i in range(n)]
    targets = [(i + 1, 0, b"Page %d" % i) for i in range(n)]
    links = [(7 * i + 1, 0, j + 1) for i in range(n) for j in range(n)]
    random.Random(0).shuffle(links)
    wiki = {"page": pages, "linktarget": targets, "pagelinks": links}
    card = {
        "source": {
            "files": {"all": {"file": "pagelinks.sql.gz"}},
            "companions": {name: {"file": f"{name}.sql.gz"} for name in ("linktarget", "page")},
        },
        "read": {"format": "mediawiki-sql"},
        "split": {"protocol": "link-prediction"},
    }
    files = {f"{table}.sql.gz": gzip.compress(content) for table, content in contents_of(wiki).items()}
    data = load(write(card, files), environment)
    assert data.users.to_pylist() == data.items.to_pylist() == [page[0] for page in pages]
    total = data.split.train + data.split.valid_target + data.split.test_target
    assert (total.toarray() == 1 - np.eye(n)).all()
