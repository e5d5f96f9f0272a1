"""Texts that are not UTF-8, and a separator that is not the card's: read as the card says, or one line with the advice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbench.core.errors import ConfigError, DataError
from rankbench.data.cards import ENCODINGS, Read, load_card
from rankbench.data.raw import BLOCK

# An id with letters that every encoding below has.
ROWS = [("Zoë", "Amélie"), ("Åsa", "M"), ("Zoë", "Œuvre")]
TEXT = "user,item\n" + "".join(f"{user},{item}\n" for user, item in ROWS)
JSON = "".join(f'{{"user": "{user}", "item": "{item}"}}\n' for user, item in ROWS)


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-16-le", "utf-32", "utf-8", "utf-8-sig", "iso8859-15", "UTF_8"])
@pytest.mark.parametrize(("format", "text"), [("delimited", TEXT), ("json-lines", JSON)])
def test_a_text_is_read_in_its_encoding(encoding, format, text, rows_of):
    assert rows_of(text.encode(encoding), Read(format=format, encoding=encoding)) == ROWS


def test_the_titles_of_movielens_are_latin_1(rows_of):
    movies = "1::Toy Story (1995)::Animation\n73::Misérables, Les (1995)::Drama\n".encode("latin-1")
    spec = Read(separator="::", header=False, user=0, item=1, encoding="latin-1")
    assert rows_of(movies, spec) == [("1", "Toy Story (1995)"), ("73", "Misérables, Les (1995)")]
    # The ids of the same file are plain: a column that nobody asks for may have any bytes.
    assert rows_of(movies, Read(separator="::", header=False, user=0, item=0)) == [("1", "1"), ("73", "73")]


def test_a_letter_on_the_border_of_two_blocks(rows_of):
    lines = BLOCK // 8
    text = "user,item\n" + "ü1,é2\n" * lines
    rows = rows_of(text.encode("utf-16"), Read(encoding="utf-16"))
    assert len(rows) == lines and set(rows) == {("ü1", "é2")}


WORDS = st.lists(st.text("aé€", min_size=1, max_size=3), min_size=1, max_size=9)


@given(words=WORDS, end=st.sampled_from(["\n", "\r\n", "\r"]))
@pytest.mark.parametrize("encoding", ["utf-16-be", "cp1252", "utf-7"])
def test_what_is_written_in_an_encoding_is_read_back(encoding, words, end, rows_of):
    text = "user,item" + end + "".join(f"{word},{word}{end}" for word in words)
    assert rows_of(text.encode(encoding), Read(encoding=encoding)) == [(word, word) for word in words]


ADVICE = "name it: `read: {encoding: latin-1}` in a card, `--encoding latin-1` of `data import`"


@pytest.mark.parametrize(
    ("content", "read", "message"),
    [
        (TEXT.encode("cp1252"), {}, f":2: not utf-8 text; if it has another encoding, {ADVICE}"),
        (TEXT.replace("user", "usér").encode("cp1252"), {}, f":1: not utf-8 text; if it has another encoding, {ADVICE}"),
        (JSON.encode("cp1252"), {"format": "json-lines"}, ":1: expected one object per line: not utf-8 text; if it has"),
        (TEXT.encode("utf-16"), {}, ": not utf-8 but utf-16 text; name its encoding: `read: {encoding: utf-16}` in a card"),
        (JSON.encode("utf-16"), {"format": "json-lines"}, ": not utf-8 but utf-16 text; name its encoding"),
        (b"user,item\n1,2\n\x81,3\n", {"encoding": "cp1252"}, ":3: not cp1252 text (byte 0x81); name its encoding in the card"),
        (TEXT.encode("cp1252"), {"encoding": "ascii"}, ":2: not ascii text (byte 0xeb); name its encoding in the card's"),
        (TEXT.encode("utf-16") + b"x", {"encoding": "utf-16"}, ":5: not utf-16 text (byte 0x78); name its encoding"),
    ],
)  # fmt: skip
def test_a_text_of_another_encoding_is_one_line_with_the_advice(content, read, message, rows_of):
    with pytest.raises(DataError) as error:
        rows_of(content, Read(**read))
    assert f"raw.dat{message}" in str(error.value)
    assert str(error.value).isprintable()


@pytest.mark.parametrize(
    ("encoding", "hint"),
    [("lattin_1", "; did you mean latin-1?"), ("cp12522", "; did you mean cp1252?"), ("hex", ""), ("a\0b", "")],
)
def test_an_unknown_encoding_is_refused_with_the_nearest(encoding, hint, write, environment):
    with pytest.raises(ConfigError, match=r"read\.encoding: unknown encoding") as error:
        load_card(write({"source": {"file": "raw.dat"}, "read": {"encoding": encoding}}), environment)
    assert hint in str(error.value)


def test_every_encoding_that_is_suggested_is_known():
    assert {"latin-1", "cp1252", "utf-8", "utf-16", "shift-jis"} <= set(ENCODINGS)
    assert all("a".encode(name) for name in ENCODINGS)


@pytest.mark.parametrize(
    ("separator", "spelled"), [("\t", r"\t"), (";", ";"), ("::", "::"), ("|", "|"), (" ", " "), (",", ",")]
)
def test_a_header_of_one_long_name_gets_the_separator(separator, spelled, rows_of):
    own = Read(separator=";" if separator == "," else ",")
    text = TEXT.replace(",", separator)
    with pytest.raises(DataError) as error:
        rows_of(text, own)
    assert f"no column 'user'; the first line, {f'user{separator}item'!r}, is one column" in str(error.value)
    assert f'set `read: {{separator: "{spelled}"}}`' in str(error.value)
    assert str(error.value).isprintable()
    with pytest.raises(DataError, match="is one column: if"):
        rows_of(text, Read(separator=own.separator, header=False, user=0, item=1))


def test_other_missing_columns_keep_their_hint(rows_of):
    with pytest.raises(DataError, match="no column 'user'; did you mean usr"):
        rows_of("usr;,item\n1,2\n", Read())
    with pytest.raises(DataError, match=r"no column 'user'; columns: a$"):
        rows_of("a\n1\n", Read())
