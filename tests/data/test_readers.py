"""Readers against handmade files; what a file may look like, and what is refused with its name and line."""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from packed import parquet

from rankbench.core.errors import ConfigError, DataError
from rankbench.data.cards import Read
from rankbench.data.columns import MISSING_TEXT
from rankbench.data.prepare import load
from rankbench.data.readers import readers, user_lines

BOM = b"\xef\xbb\xbf"
HEADER = "user,item,rating,time\n"
RATED = Read(value="rating", time="time")
# Enough for every user to have train, valid and test items: what is wrong in a file below is not its size.
PAIRS = [(user, item) for user in range(6) for item in range(8) if (user + item) % 3]
ROWS = "".join(f"{user},{item},5,{10 * user + item}\n" for user, item in PAIRS)
USER_LINES = "".join(f"{u} " + " ".join(str(item) for user, item in PAIRS if user == u) + "\n" for u in range(6))


def test_every_format_has_its_file():
    own = {"delimited", "json-lines", "mediawiki-sql", "netflix-prize", "parquet", "user-lines"}
    assert {*readers().names()} == own | {"cornac", "elliot", "movielens", "recbole"}


@pytest.mark.parametrize(
    ("text", "spec", "rows"),
    [
        ("time,extra,rating,item,user\n9,x,4.5,b,a\n", RATED, [("a", "b", 4.5, 9)]),
        ("a\tb\t4.5\t9\n", Read(separator="\t", header=False, user=0, item=1, value=2, time=3), [("a", "b", 4.5, 9)]),
        ("1::2::5::9\n3::4::1::8\n", Read(separator="::", header=False, user=0, item=1), [("1", "2"), ("3", "4")]),
        ("user→item\n1→2\n", Read(separator="→"), [("1", "2")]),
        ('user::item\n"a::b"::"c, d"\n"::"::2\n', Read(separator="::"), [("a::b", "c, d"), ("::", "2")]),
        # An id keeps its spelling: 007 is not 7, and 1e5 no number.
        ("user,item\n007,1e5\n+3,1.50\n", Read(), [("007", "1e5"), ("+3", "1.50")]),
        ("user,item\n123456789012345678901234567890,2\n", Read(), [("123456789012345678901234567890", "2")]),
        ('user,item\n"a,b","say ""x"""\n', Read(), [("a,b", 'say "x"')]),
        ("user,item\r\n1,2\r\n", Read(), [("1", "2")]),
        ("user,item\n\n1,2\n\n\n3,4", Read(), [("1", "2"), ("3", "4")]),
        ("\n\nuser,item\r1,2\r\r3,4\r", Read(), [("1", "2"), ("3", "4")]),
        # A quote inside a value is a letter.
        ('user,item\n5" disk,2\n3,4\n', Read(), [('5" disk', "2"), ("3", "4")]),
        ("user,item,day\n1,2,2005-09-06\n", Read(time="day"), [("1", "2", 1125964800)]),
        ("user,item,day\n1,2,2010-10-19T23:55:27Z\n", Read(time="day"), [("1", "2", 1287532527)]),
        ("user,item,day\n1,2,1970-01-01T00:00:01.5Z\n", Read(time="day"), [("1", "2", datetime(1970, 1, 1, 0, 0, 1, 500_000))]),
        ("user,item,day\n1,2,2010-10-19 23:55:27.000\n", Read(time="day"), [("1", "2", 1287532527)]),
        (BOM + b"user,item\n1,2\n", Read(), [("1", "2")]),
        (BOM + b"1::2\n", Read(separator="::", header=False, user=0, item=1), [("1", "2")]),
        # A missing time is allowed; whole numbers may be written as floats.
        (HEADER + "1,2,3,\n4,5,6,1e9\n7,8,9,5.0\n", RATED, [("1", "2", 3, None), ("4", "5", 6, 10**9), ("7", "8", 9, 5)]),
        (HEADER + "1,2,3,NULL\n4,5,6,2005-09-06\n", RATED, [("1", "2", 3, None), ("4", "5", 6, 1125964800)]),
        # JSON has a null, so that a text is none.
        ('{"user": "None", "item": "null"}\n', Read(format="json-lines"), [("None", "null")]),
        ("a,b\n1,2\n", Read(user="a", item="a"), [("1", "1")]),
        ("0 1 2\n5 3\n", Read(format="user-lines"), [(0, 1), (0, 2), (5, 3)]),
        # A user may have several lines, or a line without items.
        ("7 1\n8\n\n7 2\n", Read(format="user-lines"), [(7, 1), (7, 2)]),
        ("1 2\t3\r\n", Read(format="user-lines"), [(1, 2), (1, 3)]),
        (BOM + b"1 2\n", Read(format="user-lines"), [(1, 2)]),
        ("1 2\r3 4\r", Read(format="user-lines"), [(1, 2), (3, 4)]),
    ],
)  # fmt: skip
def test_a_handmade_file_is_read_as_it_is_meant(text, spec, rows, rows_of):
    assert rows_of(text, spec) == rows


WIDE = 10_001


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("user,item" + (WIDE - 2) * ",x" + "\n1,2" + (WIDE - 2) * ",3" + "\n", Read()),
        ("\n1::2" + (WIDE - 2) * "::3" + "\n", Read(separator="::", header=False, user=0, item=1)),
        ("1\t2" + (WIDE - 2) * "\t3" + "\n", Read(format="cornac", user=0, item=1)),
        ("user_id:token\titem_id:token" + (WIDE - 2) * "\tx:float" + "\n", Read(format="recbole")),
    ],
    ids=["delimited", "wide separator", "cornac", "recbole"],
)
def test_a_line_has_ten_thousand_columns_at_most(text, spec, rows_of):
    with pytest.raises(DataError, match=r"raw\.dat:[12]: 10,001 columns in one line; at most 10,000 are read; leave out"):
        rows_of(text, spec)


def test_ten_thousand_columns_are_read(rows_of):
    names = ["user", "item", *(f"x{n}" for n in range(WIDE - 3))]
    assert rows_of(",".join(names) + "\n" + ",".join(map(str, range(WIDE - 1))) + "\n", Read()) == [("0", "1")]


@pytest.mark.parametrize(
    ("text", "spec", "where"),
    [
        ("user,item\na,b\na,{}\n", Read(), ":3"),
        ('{{"user": 1, "item": "{}"}}\n', Read(format="json-lines", user="user", item="item"), ":1"),
    ],
)
def test_an_id_has_a_thousand_bytes_at_most(text, spec, where, rows_of):
    assert rows_of(text.format("é" * 500), spec)[-1][1] == "é" * 500
    with pytest.raises(DataError, match=rf"raw\.dat{where}: item is a text of 1,002 bytes; at most 1,000 are read"):
        rows_of(text.format("é" * 501), spec)


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        (pa.array([3, 1], pa.int32()), [3, 1]),
        (pa.array([3, 1], pa.uint64()), [3, 1]),
        (pa.array(["b", "a"]), ["b", "a"]),
        (pa.array(["b", "a"], pa.large_string()), ["b", "a"]),
        (pa.array(["b", "a"]).dictionary_encode(), ["b", "a"]),
        (pa.array([3, 1]).dictionary_encode(), [3, 1]),
        # pandas turns whole numbers to floats when a value is missing somewhere.
        (pa.array([3.0, 1.0]), [3, 1]),
        (pa.array([3.0, 1.0]).dictionary_encode(), [3, 1]),
        (pa.array([2.0**53 - 1, 1.0]), [2**53 - 1, 1]),
    ],
)
def test_parquet_ids_come_in_many_types(user, expected, rows_of):
    content = parquet(user=user, item=["x", "y"], stars=[1, 2])
    rows = rows_of(content, Read(format="parquet", value="stars"))
    assert rows == [(expected[0], "x", 1.0), (expected[1], "y", 2.0)]


@pytest.mark.parametrize(
    "user",
    [pa.array([76561198000000001.0, 76561198000000003.0]), pa.array([1.0, 2.0**24], pa.float32())],
    ids=["float64", "float32"],
)
def test_ids_that_a_float_cannot_tell_apart_are_refused(user, rows_of):
    with pytest.raises(DataError, match=r"'user': ids of 2\^53 or more .* different ones could become one"):
        rows_of(parquet(user=user, item=["x", "y"], stars=[1, 2]), Read(format="parquet", value="stars"))


@pytest.mark.parametrize(
    "time",
    [
        pa.array([1125964800, None]),
        pa.array([1125964800.0, None]),
        pa.array([1125964800, np.nan]),
        pa.array(["1125964800", None], pa.large_string()),
        pa.array(["2005-09-06", None]).dictionary_encode(),
        pa.array([datetime(2005, 9, 6), None], pa.timestamp("ns")),
        pa.array([datetime(2005, 9, 6, tzinfo=UTC), None], pa.timestamp("us", tz="Asia/Tokyo")),
        pa.array([datetime(2005, 9, 6), None], pa.date32()),
        pa.array([datetime(2005, 9, 6), None], pa.date64()),
    ],
    ids=lambda time: str(time.type),
)
def test_parquet_times_come_in_many_types(time, rows_of):
    rows = rows_of(parquet(user=[1, 2], item=[3, 4], time=time), Read(format="parquet", time="time"))
    assert rows == [(1, 3, 1125964800), (2, 4, None)]


@pytest.mark.parametrize("value", [pa.array([Decimal("4.5")]), pa.array(["4.5"]), pa.array([np.float16(4.5)])])
def test_parquet_values_come_in_many_types(value, rows_of):
    assert rows_of(parquet(user=[1], item=[3], stars=value), Read(format="parquet", value="stars")) == [(1, 3, 4.5)]


ids = st.text(
    st.characters(codec="utf-8", exclude_characters='\x00\x1f\r\n",:\t|', exclude_categories=["Cs", "Cc"]), min_size=1
).filter(lambda word: not re.search(MISSING_TEXT, word))
entries = st.lists(st.tuples(ids, ids, st.floats(-1e6, 1e6), st.integers(-(2**53), 2**53) | st.none()), min_size=1, max_size=20)


@given(entries=entries, separator=st.sampled_from([",", "\t", "|", "::", ":::"]), end=st.sampled_from(["\n", "\r\n"]))
def test_what_is_written_as_text_is_read_back(entries, separator, end, rows_of):
    lines = [("user", "item", "rating", "time")]
    lines += [(user, item, repr(value), "" if time is None else str(time)) for user, item, value, time in entries]
    text = "".join(separator.join(line) + end for line in lines)
    assert rows_of(text, Read(separator=separator, value="rating", time="time")) == entries


@given(
    blank=st.lists(st.integers(0, 3), min_size=8, max_size=8),
    at=st.integers(0, 6),
    bad=st.sampled_from(
        ["1,2", "1,2,3,4,5", "1,2,x,4", "1,2,nan,4", "1,2,,4", "1,2,3,4.5", "1,2,3,1e300", ",2,3,4", "1,2\0,3,4"]
    ),
)
def test_the_line_of_a_bad_row_is_the_one_an_editor_shows(blank, at, bad, rows_of):
    lines = ["user,item,rating,time"] + ["7,8,9,10"] * at + [bad] + ["7,8,9,10"] * (6 - at)
    text = "".join("\n" * n + line + "\n" for n, line in zip(blank, lines, strict=True))
    shown = text.split("\n").index(bad) + 1
    with pytest.raises(DataError, match=rf"raw\.dat:{shown}: "):
        rows_of(text, RATED)


def test_the_line_is_right_beyond_the_first_block_of_the_parser(rows_of):
    lines = 1_200_000  # 9.6 MB; Arrow parses 8 MiB at once
    good = "user,item\n" + "123,567\n" * lines
    assert len(rows_of(good, Read())) == lines
    for bad in ("1,2,3", ",2"):
        with pytest.raises(DataError, match=rf"raw\.dat:{lines + 2}: "):
            rows_of(good + bad + "\n", Read())


@pytest.mark.parametrize(
    ("content", "read", "message"),
    [
        ("", {}, "no interactions"),
        ("\n\n", {}, "no interactions"),
        (HEADER, {}, "no interactions"),
        (HEADER + ROWS + "1,9,nan,0\n", {}, ":34: value is nan"),
        (HEADER + ROWS + "1,9,-inf,0\n", {}, ":34: value is -inf"),
        (HEADER + ROWS + "1,9,1e39,0\n", {}, ":34: value is 1e+39"),
        (HEADER + ROWS + "1,9,,0\n", {}, ":34: value is nan"),
        (HEADER + ROWS + "1,9,good,0\n", {}, ":34: expected the value to be a number, found 'good'"),
        (HEADER + ROWS + "1,9,5,soon\n", {}, ":34: expected the time in whole seconds since 1970 or as a date, found 'soon'"),
        (HEADER + ROWS + "1,9,5,0.5\n", {}, ":34: expected the time in whole seconds since 1970 or as a date, found '0.5'"),
        (HEADER + ROWS + "1,9\n", {}, ":34: Expected 4 columns, got 2"),
        (HEADER + ROWS + "1,9,5,0,0\n", {}, ":34: Expected 4 columns, got 5"),
        (HEADER + ROWS + ",9,5,0\n", {}, ":34: user is None"),
        (HEADER + ROWS + "1,\x009,5,0\n", {}, r":34: item is '\x009'"),
        ((HEADER + ROWS).encode() + b"\xe9,9,5,0\n", {}, ":34: "),
        (b"us\xe9r,item,rating,time\n" + ROWS.encode(), {}, "utf-8"),
        ((HEADER + ROWS).encode("utf-16"), {}, "utf-8"),
        ("us\x00er,item,rating,time\n" + ROWS, {}, r"no column 'user'; did you mean us\x00er?"),
        ('user,"it\nem",rating,time\n' + ROWS, {}, ""),
        (HEADER + ROWS + '1,"9\n",5,0\n', {}, ":34: "),
        (HEADER + ROWS + '1,9,5,"0\n' + ROWS, {}, ":34: a quote is open at the end of the line"),
        (HEADER + ROWS + ROWS + '1,9,5,"0\n', {}, ":66: a quote is open at the end of the line"),
        (HEADER + '5" disk,9,5,0\n' + ROWS + '1,9,5,"0', {}, ":35: a quote is open at the end of the line"),
        (HEADER + 300_000 * "1,2,3,4\n" + "1,2\n" + 300_000 * "1,2,3,4\n", {}, ":300002: Expected 4 columns, got 2: 1,2"),
        (HEADER + ROWS + HEADER + ROWS, {}, ":34: the header comes again; remove this line"),
        (b"\x00" * (9 << 20), {}, ":1: the line is longer than 8 MB"),
        (HEADER + ROWS + 9_000_000 * "1", {}, ":34: the line is longer than 8 MB"),
        (HEADER.replace("item", "itm") + ROWS, {}, "no column 'item'; did you mean itm?"),
        (HEADER.replace(",item", ", item") + ROWS, {}, "no column 'item'; a blank comes before it: if ', ' separates"),
        ("user,item,item,time\n" + ROWS, {"value": None}, "2 columns are called 'item'"),
        ((HEADER + ROWS).replace(",", ";"), {}, "no column 'user'"),
        (ROWS, {"header": False, "user": 0, "item": 4, "value": 2, "time": 3}, "no column '4'; there are 4"),
        (HEADER + ROWS + "1,2\x1f,3,4\n", {"separator": "::"}, "control character 0x1f"),
        ("", {"format": "user-lines"}, "no interactions"),
        ("1\n2\n", {"format": "user-lines"}, "no interactions"),
        (USER_LINES + "7 one two\n", {"format": "user-lines"}, ":7: expected whole numbers"),
        (USER_LINES + "7 1.5\n", {"format": "user-lines"}, ":7: expected whole numbers"),
        (USER_LINES + "7 99999999999999999999\n", {"format": "user-lines"}, ":7: expected whole numbers below 2^63"),
        (USER_LINES + "7 1\x00\n", {"format": "user-lines"}, ":7: expected whole numbers"),
        (USER_LINES + "7 1_000\n", {"format": "user-lines"}, ":7: expected whole numbers"),
        (USER_LINES + "7 +1\n", {"format": "user-lines"}, ":7: expected whole numbers"),
        (USER_LINES + "7 -1\n", {"format": "user-lines"}, ":7: -1 is below 0"),
        (USER_LINES + "7 " + 3_000_000 * "10 ", {"format": "user-lines"}, ":7: the line is longer than 8 MB"),
        (USER_LINES.replace(" ", ","), {"format": "user-lines"}, ":1: expected whole numbers"),
        (parquet(user=[1], item=[2])[:100], {"format": "parquet"}, "not a Parquet file"),
        (b"PAR1" + b"\xff" * 60 + parquet(user=[1], item=[2])[64:], {"format": "parquet"}, ""),
        ("user,item\n1,2\n", {"format": "parquet"}, "not a Parquet file"),
        (parquet(usr=[1], item=[2]), {"format": "parquet"}, "no column 'user'; did you mean usr?"),
        (parquet(user=pa.array([], pa.int64()), item=pa.array([], pa.int64())), {"format": "parquet"}, "no interactions"),
        (parquet(user=[1, None], item=[2, 3]), {"format": "parquet"}, "row 2: user is None"),
        (parquet(user=[1.5], item=[2]), {"format": "parquet"}, "1.5"),
        (parquet(user=[float("nan")], item=[2]), {"format": "parquet"}, "row 1: user is None"),
        (parquet(user=pa.array([2**63], pa.uint64()), item=[2]), {"format": "parquet"}, "9223372036854775808"),
        (parquet(user=[[1]], item=[2]), {"format": "parquet"}, "'user' is list<element: int64>; user needs whole"),
        (parquet(user=[{"a": 1}], item=[2]), {"format": "parquet"}, "the column 'user' is struct<a: int64>"),
        (parquet(user=[1], item=[True]), {"format": "parquet"}, "the column 'item' is bool; item needs whole numbers"),
        (parquet(user=[Decimal("1.5")], item=[2]), {"format": "parquet"}, "the column 'user' is decimal"),
        (parquet(user=[None], item=[2]), {"format": "parquet"}, "the column 'user' is null"),
        (parquet(user=[1], item=[2], r=[True]), {"format": "parquet", "value": "r"}, "'r' is bool; value needs numbers"),
        (parquet(user=[1], item=[2], t=[timedelta(1)]), {"format": "parquet", "time": "t"}, "'t' is duration"),
        (parquet(user=[-1], item=[2]), {"format": "parquet"}, "row 1: user is -1"),
        (parquet(user=[b"\xff"], item=[2]), {"format": "parquet"}, "UTF8"),
        (parquet(user=[1], item=[2], rating=["x"]), {"format": "parquet", "value": "rating"}, "'x'"),
        (parquet(user=[1, 1], item=[2, 3], stars=[1, None]), {"format": "parquet", "value": "stars"}, "row 2: value is nan"),
        (parquet(user=[1], item=[2], rating=[1.0], time=[0.5]), {"format": "parquet", "time": "time"}, "0.5"),
    ],
)  # fmt: skip
def test_a_malformed_file_is_one_line_that_names_it_and_leaves_nothing(content, read, message, write, environment):
    if "format" not in read:
        read = {"value": "rating", "time": "time"} | read
    path = write({"source": {"file": "raw.dat"}, "read": read}, {"raw.dat": content})
    with pytest.raises((DataError, ConfigError)) as error:
        load(path, environment)
    assert error.value.exit_code == 2
    assert str(error.value).startswith(str(Path(path).parent / "raw.dat") + ":")
    assert message in str(error.value)
    assert str(error.value).isprintable()
    assert [path for path in (environment.data / "prepared").glob("*") if path.suffix != ".lock"] == []


@pytest.mark.parametrize(
    ("content", "read"),
    [
        (HEADER + ROWS, {"value": "rating", "time": "time"}),
        (BOM + (HEADER + ROWS).encode(), {"value": "rating", "time": "time"}),
        (USER_LINES, {"format": "user-lines"}),
        (BOM + USER_LINES.encode(), {"format": "user-lines"}),
        (parquet(user=[u for u, _ in PAIRS], item=[i for _, i in PAIRS]), {"format": "parquet"}),
    ],
    ids=["csv", "csv-bom", "user-lines", "user-lines-bom", "parquet"],
)
def test_the_same_files_unharmed_are_read(content, read, write, environment):
    """The oracle of the test above: what it refuses is the harm, not the rest of the file."""
    data = load(write({"source": {"file": "raw.dat"}, "read": read}, {"raw.dat": content}), environment)
    assert data.users.to_pylist() == list(range(6))
    assert data.items.to_pylist() == list(range(8))
    total = data.split.train + data.split.valid_target + data.split.test_target
    assert sorted(zip(*np.nonzero(total.toarray()), strict=True)) == PAIRS


def test_a_folder_of_user_lines_is_a_published_split(write, environment):
    parts = {"train.txt": "0 1 2 3 4\n1 2 3 4 5\n", "test.txt": "0 5\n1 1\n", "item_list.txt": "org_id remap_id\n"}
    card = {"source": {"folder": "."}, "read": {"format": "user-lines"}, "split": {"protocol": "published", "valid": 0.3}}
    data = load(write(card, parts), environment)
    assert (data.counts["train"] + data.counts["valid"], data.counts["test"]) == (8, 2)
    with pytest.raises(DataError, match=r"no train\.txt with its test\.txt"):
        user_lines.find(["train.txt"], "x")
