"""Page links from SQL dumps, against dumps written row by row and links resolved with dictionaries."""

import gzip
import random
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbench.core.errors import DataError
from rankbench.data.cards import Read
from rankbench.data.prepare import load
from rankbench.data.raw import RawFile
from rankbench.data.readers.mediawiki_sql import read

COLUMNS = {
    "pagelinks": ["pl_from", "pl_from_namespace", "pl_target_id"],
    "linktarget": ["lt_id", "lt_namespace", "lt_title"],
    "page": ["page_id", "page_namespace", "page_title", "page_is_redirect", "page_random", "page_lang"],
}
ESCAPED = b"'\"\\"  # letters that a dump puts a backslash before

# Articles 10, 20, 30; redirects 11 and 12; a talk page 40.
PAGES = [
    (10, 0, b"April", 0, 0.25, None),
    (20, 0, b"Rock 'n' roll", 0, 1e-05, None),
    (30, 0, "C:\\Жук".encode(), 0, 0.5, b"en"),
    (11, 0, b"Rock", 1, 0.5, None),
    (12, 0, b"Wikt", 1, 0.5, None),
    (40, 1, b"April", 0, 0.5, None),
]
TARGETS = [(2, 1, b"April"), (1, 0, b"April"), (3, 0, b"Rock 'n' roll"), (4, 0, "C:\\Жук".encode()), (5, 0, b"Nowhere")]
TARGETS += [(6, 0, b"Rock"), (7, 0, b"Wikt"), (8, -1, b"Random")]
LINKS = [(10, 0, target) for target in range(1, 10)]
LINKS += [(20, 0, 1), (30, 0, 4), (11, 0, 1), (40, 1, 1), (40, 0, 1), (99, 0, 1)]
WIKI = {"pagelinks": LINKS, "linktarget": TARGETS, "page": PAGES}


def literal(value) -> bytes:
    if isinstance(value, bytes):
        return b"'" + b"".join(b"\\" * (letter in ESCAPED) + bytes([letter]) for letter in value) + b"'"
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


def links_of(contents: dict[str, bytes], block: int = 1 << 20, suffix: str = ".sql") -> list[tuple]:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("rankbench.data.raw.BLOCK", block)
        found = []
        for table in read(raw_of(Path(folder), contents, suffix)):
            assert table.schema == pa.schema({"user": pa.int64(), "item": pa.int64()})
            found += zip(table["user"].to_pylist(), table["item"].to_pylist(), strict=True)
        return found


def resolved(wiki: dict[str, list]) -> list[tuple[int, int]]:
    """What the reader's docstring says, link by link."""
    articles = {title: number for number, namespace, title, *_ in wiki["page"] if namespace == 0}
    is_redirect = {number: bool(flag) for number, namespace, _, flag, *_ in wiki["page"] if namespace == 0}
    titles = {number: title for number, namespace, title in wiki["linktarget"] if namespace == 0}
    links = [(source, articles.get(titles.get(target))) for source, namespace, target in wiki["pagelinks"] if namespace == 0]
    return [(source, page) for source, page in links if page is not None and not is_redirect.get(source, True)]


def contents_of(wiki: dict[str, list], **form) -> dict[str, bytes]:
    return {table: dump(table, rows, **form) for table, rows in wiki.items()}


def test_a_handmade_wiki():
    # 10 links to itself, to 20 and 30, and to the redirects 11 and 12.
    assert links_of(contents_of(WIKI)) == [(10, 10), (10, 20), (10, 30), (10, 11), (10, 12), (20, 10), (30, 30)]


titles = st.sampled_from(
    [b"", b"A", b"a", b"'", b'"', b"\\", b"\\'", b"a;b", b"),(", b"\xff\xfe", "é東".encode(), b"--", b"('"]
)
small = st.integers(1, 12)
namespaces = st.sampled_from([0, 0, 0, 1])


@st.composite
def wikis(draw):
    """Ids and titles are few, so that most links lead somewhere; ids are unique, and titles in a namespace, as in MediaWiki."""
    page = st.tuples(small, namespaces, titles, st.integers(0, 1), st.just(0.5), st.none())
    pages = draw(st.lists(page, min_size=1, max_size=12, unique_by=(lambda p: p[0], lambda p: (p[1], p[2]))))
    pages += [(100, 0, b"Certain", 0, 0.5, None)]
    targets = draw(st.lists(st.tuples(small, namespaces, titles), max_size=12, unique_by=lambda t: t[0]))
    return {
        "page": pages,
        "linktarget": [*targets, (100, 0, b"Certain")],
        "pagelinks": [*draw(st.lists(st.tuples(small, namespaces, small), max_size=40)), (100, 0, 100)],
    }


@given(
    wiki=wikis(),
    block=st.integers(2000, 4000),
    shuffle=st.randoms(use_true_random=False),
    between=st.sampled_from([b",", b",\n", b" ,\t"]),
    per_insert=st.integers(1, 50),
    suffix=st.sampled_from([".sql", ".sql.gz"]),
    many=st.sampled_from([1, 5, 1 << 21]),
)
def test_links_are_those_of_dictionaries_whatever_the_form_of_the_dump(wiki, block, shuffle, between, per_insert, suffix, many):
    contents = {}
    for table, rows in wiki.items():
        columns = shuffle.sample(COLUMNS[table], len(COLUMNS[table]))
        contents[table] = dump(table, rows, columns, between, per_insert)
    if suffix == ".sql.gz":
        contents = {table: gzip.compress(content) for table, content in contents.items()}
    with mock.patch("rankbench.data.readers.mediawiki_sql.MANY", many):
        assert links_of(contents, block, suffix) == resolved(wiki)


def test_quotes_may_be_doubled_and_other_tables_lie_between():
    contents = contents_of({"page": PAGES, "linktarget": TARGETS, "pagelinks": LINKS[:1]})
    other = dump("page", PAGES).replace(b"`page`", b"`redirect`")
    page = other + b"\n" + contents["page"].replace(b"\\'", b"''")
    assert links_of({**contents, "page": page, "pagelinks": contents["pagelinks"] + b"\n" + other}) == [(10, 10)]


GOOD = contents_of(WIKI)
ROW = b"(10,0,3)"
LINE = GOOD["pagelinks"][: GOOD["pagelinks"].index(ROW)].count(b"\n") + 1
SHAPE = f"pagelinks.sql:{LINE}: expected rows of 3 columns such as (1,0,'Title'): "


def links(old: bytes, new: bytes) -> bytes:
    return GOOD["pagelinks"].replace(old, new)


@pytest.mark.parametrize(
    ("table", "content", "message"),
    [
        ("pagelinks", b"", "no CREATE TABLE `pagelinks`; this is not a dump of that table"),
        ("pagelinks", GOOD["page"], "no CREATE TABLE `pagelinks`; this is not a dump of that table"),
        ("pagelinks", GOOD["pagelinks"][GOOD["pagelinks"].index(b"INSERT") :], "sql:1: rows of 'pagelinks' before its CREATE"),
        ("pagelinks", links(b"`pl_target_id`", b"`pl_title`"), "no column pl_target_id; the columns are pl_from, "),
        ("pagelinks", GOOD["pagelinks"][: GOOD["pagelinks"].index(ROW)], f"sql:{LINE}: the file ends within a statement"),
        ("pagelinks", links(ROW, b"(10,0)"), f"{SHAPE}CSV parse error"),
        ("pagelinks", links(ROW, b"(10,0,3,4)"), f"{SHAPE}CSV parse error"),
        *(("pagelinks", links(ROW, b"(10,0,%s)" % bad), SHAPE) for bad in (b"3x", b"-", b"NULL", b"9" * 19, b"\x003", b"")),
        ("pagelinks", links(ROW, ROW + ROW), f"{SHAPE}found '(10,0,3)(10,0,3)"),
        ("pagelinks", links(ROW, b"(" + b" " * 2_200_000), f"{SHAPE}found '"),
        ("page", GOOD["page"].replace(b"(10,0,", b"(-10,0,"), "page_id is -10"),
        ("page", dump("page", [PAGES[-1]]), "no page of namespace 0"),
        ("linktarget", GOOD["linktarget"].replace(b"'April'", b"'April"), "expected rows of 3 columns"),
        ("linktarget", dump("linktarget", [TARGETS[4]]), "none of its titles has a page"),
    ],
)  # fmt: skip
def test_a_damaged_dump_is_one_line_that_names_file_and_line(table, content, message):
    with pytest.raises(DataError) as error:
        links_of({**GOOD, table: content}, 8 << 20)
    assert f"{table}.sql:" in str(error.value)
    assert message in str(error.value)
    assert str(error.value).isprintable()


def test_a_dump_cut_anywhere_gives_its_first_rows_or_is_refused():
    packed = {name: gzip.compress(content, mtime=0) for name, content in GOOD.items()}
    for length in range(1, len(packed["pagelinks"]), 30):
        with pytest.raises(DataError, match=r"pagelinks\.sql\.gz: damaged"):
            links_of({**packed, "pagelinks": packed["pagelinks"][:length]}, suffix=".sql.gz")
    whole, plain = links_of(GOOD), GOOD["pagelinks"]
    for length in range(plain.index(b"INSERT"), plain.index(b"UNLOCK"), 3):
        try:
            assert (found := links_of({**GOOD, "pagelinks": plain[:length]})) == whole[: len(found)]
        except DataError as error:
            assert "pagelinks.sql:" in str(error)


@pytest.mark.parametrize("missing", ["linktarget", "page"])
def test_a_companion_that_is_missing_or_unknown_is_named(missing):
    with pytest.raises(DataError, match=rf"pagelinks\.sql: the format mediawiki-sql needs source\.companions\.{missing}"):
        links_of({table: content for table, content in GOOD.items() if table != missing})
    with pytest.raises(DataError, match=r"reads no source\.companions\.redirect"):
        links_of(GOOD | {"redirect": b""})


pieces = st.binary(max_size=4) | st.sampled_from([b"'", b"\\", b"(", b");", b"/*", b"INSERT"])


@given(table=st.sampled_from(sorted(GOOD)), edits=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 3), pieces)))
def test_a_mutated_dump_is_links_or_a_clear_error(table, edits):
    content = GOOD[table]
    for place, cut, paste in edits:
        at = int(place * len(content))
        content = content[:at] + paste + content[at + cut :]
    try:
        links_of({**GOOD, table: content})
    except DataError as error:
        assert ".sql:" in str(error) and str(error).isprintable()


def test_text_that_is_almost_a_row_is_read_once():
    """If all ways to divide it were tried, this would take longer than the universe has existed."""
    for row in (b"(10,0,'" + b"ab\\'" * 100_000 + b")", b"(10,0," + b"3 ," * 100_000):
        with pytest.raises(DataError, match="expected rows of 3 columns"):
            links_of({**GOOD, "pagelinks": links(ROW, row)}, 8 << 20)


def test_from_card_to_split(write, environment):
    """Through the card: companions beside the part, a page that links to itself, the same page on both sides."""
    n = 12
    pages = [(7 * i + 1, 0, b"Page %d" % i, 0, 0.5, None) for i in range(n)]
    targets = [(i + 1, 0, b"Page %d" % i) for i in range(n)]
    links = [(7 * i + 1, 0, j + 1) for i in range(n) for j in range(n)]
    random.Random(0).shuffle(links)
    card = {
        "source": {
            "files": {"all": {"file": "pagelinks.sql.gz"}},
            "companions": {name: {"file": f"{name}.sql.gz"} for name in ("linktarget", "page")},
        },
        "read": {"format": "mediawiki-sql"},
        "split": {"protocol": "link-prediction"},
    }
    contents = contents_of({"page": pages, "linktarget": targets, "pagelinks": links})
    data = load(write(card, {f"{table}.sql.gz": gzip.compress(each) for table, each in contents.items()}), environment)
    assert data.users.to_pylist() == data.items.to_pylist() == [page[0] for page in pages]
    total = data.split.train + data.split.valid_target + data.split.test_target
    assert (total.toarray() == 1 - np.eye(n)).all()
