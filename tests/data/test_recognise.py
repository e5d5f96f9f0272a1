"""`rankbench data import`: a path is recognised, said, and has a card that works; or one line, and no card."""

import json
import shutil
from pathlib import Path

import pytest
import yaml
from packed import parquet, zipped

from rankbench.cli import _main
from rankbench.data.prepare import load
from rankbench.data.recognise import _card_name, card_text, recognise

# Every user has enough items for train, valid and test.
PAIRS = [(user, item) for user in range(9) for item in range(12) if (user + item) % 4]
ROWS = [(f"{user}", f"{item}", "3", f"{881250949 + user}") for user, item in PAIRS]


def text(separator: str, head: tuple[str, ...] = (), rows: list[tuple[str, ...]] = ROWS) -> bytes:
    return "".join(separator.join(row) + "\n" for row in ([head] if head else []) + rows).encode()


ML = ("userId", "movieId", "rating", "timestamp")
PLAIN = ("user", "item", "v", "w")
TYPED = ("user_id:token", "item_id:token", "rating:float", "timestamp:float")
COLUMNS = dict(
    zip(("user_id", "item_id", "rating", "ts"), (list(map(int, each)) for each in zip(*ROWS, strict=True)), strict=True)
)
REVIEWS = "".join(
    f'{{"reviewerID": "{u}", "asin": "{i}", "overall": {v}, "unixReviewTime": {t}}}\n' for u, i, v, t in ROWS
).encode()

# What is imported: the files, the path among them, and the format. All of them are the same interactions.
WHOLE = {
    "ml-100k": ({"ml.zip": zipped({"ml-100k/u.data": text("\t"), "ml-100k/u.item": b"x"})}, "ml.zip", "movielens"),
    "ml-1m": ({"ml-1m/ratings.dat": text("::"), "ml-1m/movies.dat": b"x"}, "ml-1m", "movielens"),
    "ratings.csv": ({"ratings.csv": text(",", ML)}, "ratings.csv", "movielens"),
    "recbole": ({"yelp/yelp.inter": text("\t", TYPED), "yelp/yelp.item": b"x"}, "yelp", "recbole"),
    "inter": ({"yelp.inter": text("\t", TYPED)}, "yelp.inter", "recbole"),
    "cornac": ({"uirt.txt": text("\t")}, "uirt.txt", "cornac"),
    "cornac-ui": ({"ui.txt": text("\t", rows=[row[:2] for row in ROWS])}, "ui.txt", "cornac"),
    "csv": ({"a.csv": text(",", ("customer", "product", "stars", "date"))}, "a.csv", "delimited"),
    "semicolons": ({"a.csv": text(";", ("User ID", "Item ID", "Rating", "TS"))}, "a.csv", "delimited"),
    "no-header": ({"a.dat": text("|")}, "a.dat", "delimited"),
    "user-item-time": ({"a.tsv": text("\t", rows=[(u, i, t) for u, i, _, t in ROWS])}, "a.tsv", "delimited"),
    "user-item-time-value": ({"a.tsv": text("\t", rows=[(u, i, t, v) for u, i, v, t in ROWS])}, "a.tsv", "delimited"),
    "json": ({"reviews.json": REVIEWS}, "reviews.json", "json-lines"),
    "parquet": ({"a.parquet": parquet(**COLUMNS)}, "a.parquet", "parquet"),
    "one-in-a-zip": ({"a.zip": zipped({"x/a.csv": text(",", PLAIN), "__MACOSX/a": b""})}, "a.zip", "delimited"),
    "one-in-a-folder": ({"data/a.csv": text(",", PLAIN)}, "data", "delimited"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def here(home, monkeypatch):
    folder = home / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def put(files: dict[str, bytes]) -> None:
    for name, content in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(content)


@pytest.mark.parametrize("what", WHOLE)
def test_what_is_imported_is_the_same_data_in_every_format(what, here, environment, capsys):
    files, path, format = WHOLE[what]
    put(files)
    assert _main(["data", "import", path, "--name", "mine"]) == 0
    assert capsys.readouterr().out.startswith(f"{path}: {format}, user, item")
    data = load("./mine.yaml", environment)
    assert data.card.read.format == format
    put({"plain.csv": text(",", PLAIN), "plain.yaml": b"name: plain\nsource: {file: plain.csv}\n"})
    assert data.fingerprint == load("./plain.yaml", environment).fingerprint
    if format != "cornac":  # a card need not say what its file is
        card = yaml.safe_load(Path("mine.yaml").read_text())
        card["read"].pop("format")
        Path("mine.yaml").write_text(yaml.safe_dump(card))
        assert load("./mine.yaml", environment).fingerprint == data.fingerprint


@pytest.mark.parametrize(
    ("lines", "words", "read"),
    [
        ([(u, u + 1, u + 2) for u in range(30)], [], {"format": "user-lines"}),
        ([(u, *range(u, u + 9)) for u in range(30)], [], {"format": "user-lines"}),
        ([(u % 29, u + 1, 3) for u in range(30)], [], {"separator": " ", "header": False, "user": 0, "item": 1, "value": 2}),
        ([(u, u + 1) for u in range(30)], [], {"separator": " ", "header": False, "user": 0, "item": 1}),
        (
            [(u, u + 1, 3) for u in range(30)],
            ["--user", "0", "--item", "1"],
            {"separator": " ", "header": False, "user": 0, "item": 1},
        ),
    ],
)
def test_lines_of_one_length_are_those_of_users_if_no_user_comes_again(lines, words, read):
    put({"x.txt": "".join(" ".join(map(str, line)) + "\n" for line in lines).encode()})
    assert _main(["data", "import", "x.txt", *words]) == 0
    assert yaml.safe_load(Path("x.yaml").read_text())["read"] == {"format": "delimited"} | read


@pytest.mark.parametrize(
    ("column", "value", "time"),
    [
        ("order_time", "2024-05-01T10:00:00", "order_time"),
        ("orderedAt", "1714557600", "orderedAt"),
        ("Order Date", "2024-05-01", "Order Date"),
        ("created_at", "2024-05-01 10:00:00.5", "created_at"),
        ("delivery_time", "35", None),  # minutes
        ("returned_at", "", None),
        ("opening_time", "early", None),
        ("format", "flat", None),
    ],
)
def test_a_column_that_is_called_like_a_time_and_holds_times_is_the_time(column, value, time, here, environment):
    put({"orders.csv": f"user,item,{column}\n".encode() + b"".join(f"{n % 4},{n},{value}\n".encode() for n in range(12))})
    assert _main(["data", "import", "orders.csv"]) == 0
    assert yaml.safe_load(Path("orders.yaml").read_text())["read"].get("time") == time


def test_a_rating_with_gaps_that_nobody_named_is_no_reason_to_drop_rows(here, environment):
    rows = "".join(f"{n % 4},{n},{n % 5 if n % 3 else ''}\n" for n in range(12))
    put({"log.csv": f"user,item,rating\n{rows}".encode()})
    guessed = recognise(here / "log.csv", None, here, {}, environment)
    assert "value" not in guessed.card["read"] and not guessed.drops_missing and guessed.n_rows == 12
    named = recognise(here / "log.csv", None, here, {"value": "rating"}, environment)
    assert named.card["read"]["value"] == "rating" and named.drops_missing


def test_of_several_columns_like_a_time_none_is_guessed(here, environment):
    rows = b"".join(f"{n % 4},{n},1999-01-0{n % 9 + 1},2024-05-0{n % 9 + 1}\n".encode() for n in range(12))
    put({"orders.csv": b"user,item,release_date,rated_at\n" + rows})
    assert _main(["data", "import", "orders.csv"]) == 0
    assert "time" not in yaml.safe_load(Path("orders.yaml").read_text())["read"]


@pytest.mark.parametrize("word", ["valid", "val", "dev", "tune"])
def test_a_validation_file_has_one_of_several_names(word, here, environment):
    files = {"train": range(6), word: range(6, 8), "test": range(8, 10)}
    put(
        {
            f"{name}.csv": b"user,item\n" + b"".join(f"{u},{i}\n".encode() for u in range(5) for i in own)
            for name, own in files.items()
        }
    )
    assert _main(["data", "import", ".", "--name", "mine"]) == 0
    assert load("./mine.yaml", environment).counts["interactions"] == 50


def test_parquet_is_known_by_its_first_bytes_and_a_part_may_be_a_bare_name(here, environment):
    users, items = ([int(row[n]) for row in ROWS] for n in (0, 1))
    put({"train.data": parquet(user=users, item=items), "test.pq": parquet(user=users[:9], item=[99] * 9)})
    put({"mine.yaml": b"name: mine\nsource: {files: {train: train.data, test: test.pq}}\nsplit: {protocol: published}\n"})
    assert load("./mine.yaml", environment).counts["test"] == len(set(users[:9]))


THREE = {"train": ROWS[2::4] + ROWS[3::4], "valid": ROWS[1::4], "test": ROWS[::4]}
TRIPLES = {part: [row[:2] for row in rows] for part, rows in THREE.items()}
LINES = {
    part: "".join(
        f"{user} {' '.join(i for u, i in rows if u == user)}\n" for user in dict.fromkeys(u for u, _ in rows)
    ).encode()
    for part, rows in TRIPLES.items()
}
SPLIT = {
    "recbole": ({f"x/x.{part}.inter": text("\t", TYPED, rows) for part, rows in THREE.items()}, "recbole"),
    "elliot": ({"x/0/test.tsv": text("\t", rows=THREE["test"]), "x/0/0/train.tsv": text("\t", rows=THREE["train"])}, "elliot"),
    "lightgcn": ({"x/train.txt": LINES["train"], "x/test.txt": LINES["test"], "x/item_list.txt": b"a 1\n"}, "user-lines"),
    "csv": ({f"x/{part}.csv": text(",", ML, rows) for part, rows in THREE.items()}, "delimited"),
    "parquet": (
        {f"x/{part}.parquet": parquet(user=[r[0] for r in rows], item=[r[1] for r in rows]) for part, rows in TRIPLES.items()},
        "parquet",
    ),
    "zip": ({"x": zipped({f"a/{part}.csv": text(",", ML, rows) for part, rows in THREE.items()})}, "delimited"),
}


@pytest.mark.parametrize("what", SPLIT)
def test_published_parts_are_kept(what, environment, capsys):
    files, format = SPLIT[what]
    path = "x.zip" if what == "zip" else "x"
    put({path if name == "x" else name: content for name, content in files.items()})
    assert _main(["data", "import", path, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["format"], said["card"]) == (format, "x.yaml")
    assert said["parts"] == [
        part for part in ("train", "valid", "test") if part != "valid" or what not in ("elliot", "lightgcn")
    ]
    data = load("./x.yaml", environment)
    assert data.card.split.protocol == "published"
    assert data.counts["test"] == len(THREE["test"])
    assert data.counts["train"] + data.counts["valid"] >= len(THREE["train"])


@pytest.mark.parametrize("third", ["5", "881250949"], ids=["rating", "time"])
def test_a_test_file_with_a_line_of_each_user_does_not_say_what_the_lines_are(third, here, environment):
    lines = [f"{user} {item} {third}\n" for user in range(9) for item in range(user, user + 4)]
    put(
        {
            "x/train.txt": "".join(line for n, line in enumerate(lines) if n % 4).encode(),
            "x/test.txt": "".join(lines[::4]).encode(),
        }
    )
    found = recognise(here / "x", None, here, {}, environment)
    assert found.format == "delimited" and found.columns == ("user", "item", "value" if third == "5" else "time")


def test_train_and_test_with_a_header_are_read_by_its_names(here, environment):
    typed = {
        f"x/{part}.tsv": text("\t", ("user_id", "item_id", "rating", "timestamp"), THREE[part]) for part in ("train", "test")
    }
    put(typed)
    for columns in ({}, {"user": "user_id", "item": "item_id"}):
        found = recognise(here / "x", None, here, columns, environment)
        assert found.format == "delimited" and found.card["read"]["user"] == "user_id" and "train" in found.parts


def test_the_card_works_at_once_and_can_be_moved_apart_from_the_data(here, capsys):
    put({"deep/ml-1m.zip": zipped({"ml-1m/ratings.dat": text("::")})})
    assert _main(["data", "import", "deep/ml-1m.zip"]) == 0
    assert yaml.safe_load(Path("ml-1m.yaml").read_text()) == {
        "name": "ml-1m",
        "source": {"file": "deep/ml-1m.zip"},
        "read": {"format": "movielens"},
        "prepare": [{"duplicates": "first"}],
        "split": {"protocol": "random-per-user", "test": 0.2, "valid": 0.1},
    }
    assert _main(["run", "./ml-1m.yaml", "ease", "--cutoffs", "3", "--no-track"]) == 0
    # A card that lies elsewhere names the data by their whole path.
    Path("cards").mkdir()
    assert _main(["data", "import", "deep/ml-1m.zip", "--out", "cards/mine.yaml"]) == 0
    assert "name: mine\n" in Path("cards/mine.yaml").read_text()  # so that it is found in a folder of cards, too
    shutil.move("cards", "elsewhere")
    assert _main(["run", "elsewhere/mine.yaml", "ease", "--cutoffs", "3", "--no-track"]) == 0
    capsys.readouterr()


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("My data.csv", "my-data"),
        ("a.v1.5.tar.gz", "a.v1.5"),
        ("a.csv.bz2", "a"),
        ("a.csv2", "a.csv2"),
        ("a.c", "a.c"),
        ("a.different", "a.different"),
        (".csv", "my-data"),
        ("folder.csv/", "folder.csv"),
        # As many endings as a file system permits, and one more that is none: all ways to divide them would be tried.
        ("a" + ".gz" * 80 + ".csv1", ("a" + ".gz" * 80)[:64]),
    ],
)
def test_a_card_is_called_as_its_file_without_the_endings(name, card, tmp_path):
    path = tmp_path / name
    if name.endswith("/"):
        path.mkdir()
    assert _card_name(path) == card


def test_times_in_milliseconds_are_described(environment, capsys):
    rows = [(user, item, "3", f"{1_700_000_000_000 + int(user)}") for user, item, *_ in ROWS]
    put({"a.csv": text(",", ("user", "item", "rating", "timestamp"), rows)})
    assert _main(["data", "import", "a.csv"]) == 0
    assert _main(["data", "describe", "./a.yaml"]) == 0
    assert "1700000000000 to 1700000000008" in capsys.readouterr().out


IDS = [(f"b{user}", f"s{item}") for user, item in PAIRS]
WRONG = text(",", ML, [(u, i, "good", f"at {t}") for u, i, _, t in ROWS]).replace(b"userId", b"buyer")
LATIN = text(",", ("buyer", "sku"), [(f"ü{u}", i) for u, i in IDS]).decode().encode("latin-1")
SHOPS = {"x.zip": zipped({"x/shop.csv": LATIN, "x/other.csv": text(",", ML)})}
BUYER = ["--user", "buyer", "--item", "sku"]
AT = {"header": False, "user": 0, "item": 1}


@pytest.mark.parametrize(
    ("files", "words", "read", "n_users"),
    [
        (
            *({"x": text(",", ("buyer", "sku", "rating", "when"))}, [*BUYER, "--time", "when"]),
            *({"user": "buyer", "item": "sku", "value": "rating", "time": "when"}, 9),
        ),
        ({"x": text(" ")}, ["--user", "1", "--item", "0"], {"separator": " ", "header": False, "user": 1, "item": 0}, 12),
        ({"x": text(",", ("buyer", "sku"), IDS)}, BUYER, {"user": "buyer", "item": "sku"}, 9),
        ({"x": text(",", PLAIN)}, ["--user", "1", "--item", "0"], {"user": "item", "item": "user"}, 12),
        # Positions do not say whether there is a header.
        (
            *({"x": text(",", ("customer_id", "n", "sku"), [(u, "17", i) for u, i in IDS])}, ["--user", "0", "--item", "2"]),
            *({"user": "customer_id", "item": "sku"}, 9),
        ),
        # Ids of which some have no digits can stand in the first line.
        ({"x": text(",", ("anna", "bread"), [("bob", "milk1"), *IDS])}, [], {"separator": ",", **AT}, 11),
        ({"x": text(",", (), IDS)}, [], {"separator": ",", **AT}, 9),
        # Without a header, the first number is the value.
        ({"x": text("|", rows=[(u, i, v, "9.50") for u, i, v, _ in ROWS])}, [], {"separator": "|", **AT, "value": 2}, 9),
        ({"x": WRONG}, ["--user", "buyer", "--value", "none", "--time", "none"], {"user": "buyer", "item": "movieId"}, 9),
        (
            *(SHOPS, [*BUYER, "--member", "x/shop.csv", "--encoding", "latin-1"]),
            *({"user": "buyer", "item": "sku", "encoding": "latin-1"}, 9),
        ),
        # A blank before and after each separator belongs to it.
        ({"x": text(" | ", PLAIN)}, [], {"separator": " | ", "user": "user", "item": "item"}, 9),
        ({"x": text(", ", PLAIN)}, [], {"separator": ", ", "user": "user", "item": "item"}, 9),
    ],
)  # fmt: skip
def test_the_columns_are_found_or_given(files, words, read, n_users, environment, capsys):
    put(files)
    (path,) = files
    assert _main(["data", "import", path, "--name", "mine", *words]) == 0
    assert yaml.safe_load(Path("mine.yaml").read_text())["read"] == {"format": "delimited"} | read
    assert load("./mine.yaml", environment).counts["users"] == n_users
    position = "columns by position, from 0: " if "header" in read else "columns: "
    assert f"{position}{read['user']} is the user, {read['item']} is the item" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("files", "words", "message"),
    [
        ({}, ["x"], "x: no such file or folder"),
        ({"x.csv": b""}, ["x.csv"], "x.csv: no interactions"),
        ({"x.csv": 10_000 * b"user," + b"item\n"}, ["x.csv"], "x.csv: 10,001 columns in one line; at most 10,000 are read"),
        ({"x.csv": text(",", ML)[:32]}, ["x.csv"], "x.csv: no interactions"),
        ({"x/a": b"1", "x/b": b"2"}, ["x"], "x: not recognised; it has a, b; name one of them instead"),
        ({"x/.hidden": b"1"}, ["x"], "x: not recognised; it has no files"),
        ({"x.txt": b"once upon a time\n"}, ["x.txt"], "which columns are user and item?"),
        ({"x.dat": b"3 5 8\n3 9\n4 1\n"}, ["x.dat"], "are they baskets? Write a user, such as the number of the line,"),
        ({"x.tsv": 9 * b"2014-03-05\t7\t9\n"}, ["x.tsv"], "which columns are user and item?"),
        ({"x.txt": b"word\n"}, ["x.txt"], "x.txt: not recognised; its first line is 'word'"),
        ({"x.zip": b"PK"}, ["x.zip"], "x.zip: damaged, or not the archive that its name says"),
        ({"x.parquet": b"PK"}, ["x.parquet"], "x.parquet: not a Parquet file"),
        ({"x.inter": b"user_id\titem_id\n"}, ["x.inter"], "x.inter:1: expected fields with their types"),
        ({"x/0/train.tsv": b"", "x/1/train.tsv": b"", "x/test.tsv": b""}, ["x"], "x: 2 folds: 0, 1; name the files"),
        (
            {"x/train.csv": text(",", ML), "x/test.csv": text(",", ML), "x/test_negatives.csv": text(",", ML)},
            *(["x"], "are the test part; name the files in source.files"),
        ),
        (
            {"x/train.txt": b"1 2 3\n", "x/test.txt": b"1 4\n", "x/cold/test.txt": b"2 4\n"},
            *(["x"], "are the test part; name the files in source.files"),
        ),
        ({"x.csv": text(",", ML)}, ["x.csv", "--name", "My Data"], "name"),
        ({"x.json": b'[{"user": 1, "item": 2}]\n'}, ["x.json"], "x.json: a JSON array, of which the whole file is one value"),
        ({"x.csv": text(",", ML)}, ["x.csv", "--member", "a"], "x.csv: member: only an archive has files inside"),
        ({"x.csv": text(",", ML)}, ["x.csv", "--out", "x.txt"], "--out x.txt: expected a name that ends in .yaml"),
        ({"x.csv": b"\xff\xfeu\x00s\x00"}, ["x.csv"], "not utf-8 but utf-16"),
        ({"x.csv": b"user,item\n\xe9,2\n"}, ["x.csv"], "x.csv:2: not utf-8 text"),
        ({"x.csv": text(",", ("buyer", "sku", "n"))}, ["x.csv"], "Say so by --user and --item; columns: buyer, sku, n"),
        *(({"x.csv": text(end, ("buyer", "sku"), IDS)}, ["x.csv"], "which columns are user and item?") for end in ",\t"),
        *(
            ({"x.csv": text(end, ("shopper", "sku"), [row[:2] for row in ROWS])}, ["x.csv"], "columns: shopper, sku")
            for end in ",\t;"
        ),
        ({"x.csv": text(",", ("a", "b"), IDS)}, ["x.csv", "--user", "0", "--item", "b"], "or all by position, not 0, b"),
        ({"x.csv": WRONG}, ["x.csv", "--user", "buyer"], "found 'good'; name another column as the value, or none"),
        ({"x.csv": WRONG}, ["x.csv", "--user", "buyer", "--value", "none"], "name another column as the time, or none"),
        ({"ratings.dat": text("::")}, ["ratings.dat", "--time", "none"], "the format movielens has a time of its own"),
        (SHOPS, ["x.zip"], "it has x/other.csv, x/shop.csv; choose one of them as the member"),
        (SHOPS, ["x.zip", "--member", "x/shop.csv", *BUYER], "`--encoding latin-1` of `data import`"),
        (SHOPS, ["x.zip", "--member", "x/shop.csv", *BUYER, "--encoding", "latn1"], "encoding: unknown encoding 'latn1'"),
        (SHOPS, ["x.zip", "--member", "x/shp.csv"], "x.zip: the archive holds no x/shp.csv; did you mean x/shop.csv?"),
        ({"x.csv": text(",", ML), "x.yaml": b"mine"}, ["x.csv"], "x.yaml: exists; choose another --name or --out"),
    ],
)  # fmt: skip
def test_what_is_not_recognised_is_one_line_and_no_card(files, words, message, capsys):
    put(files)
    assert _main(["data", "import", *words]) == 2
    printed = capsys.readouterr()
    assert message in printed.err and printed.err.count("\n") == 1 and printed.out == ""
    assert [path for path in Path().rglob("*.yaml") if path.read_bytes() != b"mine"] == []


def test_a_file_with_rows_without_an_id_gets_a_card_that_drops_and_counts_them(environment, tmp_path):
    rows = [(user, item) for user in range(12) for item in range(9) if (user + item) % 3]
    text = "user,item\n" + "".join(f"{user},{item}\n" for user, item in rows)
    (tmp_path / "gaps.csv").write_text(text + "5,\n,3\n")
    found = recognise(tmp_path / "gaps.csv", None, tmp_path, {}, environment)
    assert found.drops_missing and found.card["prepare"][0] == "drop_missing"
    (tmp_path / "gaps.yaml").write_text(card_text(found))
    dataset = load(str(tmp_path / "gaps.yaml"), environment)
    assert (dataset.counts["interactions"], dataset.counts["dropped_missing"]) == (len(rows), 2)
    (tmp_path / "whole.csv").write_text(text)
    assert not recognise(tmp_path / "whole.csv", None, tmp_path, {}, environment).drops_missing
