"""Atomic files of RecBole, as its own conversion tools and its documentation write them."""

import pytest

from rankbench.core.errors import DataError
from rankbench.data.cards import Read
from rankbench.data.prepare import load
from rankbench.data.readers import recbole

HEAD = "user_id:token\titem_id:token\trating:float\ttimestamp:float\n"
ML_100K = HEAD + "196\t242\t3\t881250949\n186\t302\t3\t891717742\n"
YELP = "review_id:token\tuser_id:token\tbusiness_id:token\tstars:float\tdate:float\nr1\tu1\tb1\t5.0\t1457654400.0\n"
PAIRS = [(user, item) for user in range(9) for item in range(9) if (user + item) % 4]


@pytest.mark.parametrize(
    ("text", "read", "rows"),
    [
        (ML_100K, {}, [("196", "242", 3.0, 881250949), ("186", "302", 3.0, 891717742)]),
        # Timestamps are floats.
        (HEAD + "a\tb\t4.5\t1.457e9\n", {}, [("a", "b", 4.5, 1457000000)]),
        ("item_id:token\tuser_id:token\nb\ta\n", {}, [("a", "b")]),
        ("user_id:token\titem_id:token\ttimestamp:float\na\tb\t9\n", {}, [("a", "b", 9)]),
        ("user_id:token\titem_id:token\ttitle:token_seq\na\tb\ttwo words\n", {}, [("a", "b")]),
        (YELP, {"item": "business_id", "value": "stars", "time": "date"}, [("u1", "b1", 5.0, 1457654400)]),
        (YELP, {"item": "business_id:token"}, [("u1", "b1")]),
        (ML_100K.replace("\t", ","), {"separator": ","}, [("196", "242", 3.0, 881250949), ("186", "302", 3.0, 891717742)]),
        (ML_100K.replace("\n", "\r\n"), {}, [("196", "242", 3.0, 881250949), ("186", "302", 3.0, 891717742)]),
        ("", {}, []),
        (HEAD, {}, []),
    ],
)  # fmt: skip
def test_a_file_is_read_by_its_typed_header(text, read, rows, rows_of):
    assert rows_of(text, Read(format="recbole", **read), "x.inter") == rows


@pytest.mark.parametrize(
    ("text", "read", "message"),
    [
        ("user_id\titem_id\n1\t2\n", {}, r":1: expected fields with their types, such as user_id:token"),
        ("user_id:token\titem_id:tokn\n1\t2\n", {}, r":1: expected fields with their types"),
        ("user_id:token,item_id:token\n1,2\n", {}, r":1: expected fields with their types"),
        (YELP, {}, r":1: no field 'item_id'; fields: review_id, .*; name it in the card's read.item"),
        (ML_100K, {"value": "stars"}, r":1: no field 'stars'; .*read.value"),
        ("user_id:token\titem_id:token_seq\n1\t2 3\n", {}, r":1: item_id is a token_seq; item needs one value per line"),
        (HEAD + "1\t2\t3\n", {}, r":2: Expected 4 columns, got 3"),
        (HEAD + "1\t2\tgood\t4\n", {}, r":2: expected the value to be a number, found 'good'"),
        (HEAD + "1\t\t3\t4\n", {}, r":2: item is None.*drop_missing"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_one_line(text, read, message, rows_of):
    with pytest.raises(DataError, match=message) as error:
        rows_of(text, Read(format="recbole", **read), "x.inter")
    assert "x.inter" in str(error.value) and str(error.value).isprintable()


@pytest.mark.parametrize(
    ("names", "parts"),
    [
        (["ml.inter", "ml.user", "ml.item"], {"all": "ml.inter"}),
        (
            ["ml.train.inter", "ml.valid.inter", "ml.test.inter", "ml.item"],
            {"train": "ml.train.inter", "valid": "ml.valid.inter", "test": "ml.test.inter"},
        ),
        # The whole beside its split: the split is what `benchmark_filename` names.
        (["ml.inter", "ml.test.inter", "ml.train.inter"], {"train": "ml.train.inter", "test": "ml.test.inter"}),
        (["ml-1m.v2.inter", "__MACOSX/._ml.inter"], {"all": "ml-1m.v2.inter"}),
        (["a/yelp.inter", "a/yelp.user"], {"all": "a/yelp.inter"}),
    ],
)
def test_the_files_of_a_folder_are_found(names, parts):
    assert recbole.find(names, "x") == parts


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["ml.user"], r"^x: no file NAME\.inter"),
        (["a.inter", "b.inter"], r"^x: files of several datasets, a, b; name the files of one in source\.file"),
        (
            ["ml.train.inter", "ml.test.inter", "ml.valid.inter", "ml.val.inter"],
            r"^x: both ml\.valid\.inter and ml\.val\.inter",
        ),
    ],
)
def test_a_folder_that_is_not_one_dataset_is_refused(names, message):
    with pytest.raises(DataError, match=message):
        recbole.find(names, "x")


def test_a_split_in_a_folder_is_the_published_one(write, environment):
    parts = {"train": [], "valid": [], "test": []}
    for position, (user, item) in enumerate(PAIRS):
        parts[("train", "train", "train", "valid", "test")[position % 5]].append((user, item))
    files = {
        f"toy.{part}.inter": HEAD + "".join(f"{user}\t{item}\t1\t{user}\n" for user, item in pairs)
        for part, pairs in parts.items()
    }
    card = {"source": {"folder": "."}, "read": {"format": "recbole"}, "split": {"protocol": "published"}}
    data = load(write(card, files), environment)
    assert {part: data.counts[part] for part in parts} == {part: len(pairs) for part, pairs in parts.items()}
    assert [source["file"] for source in data.sources] == ["toy.train.inter", "toy.valid.inter", "toy.test.inter"]
