"""Datasets as LensKit 2025 saves them: schema.json, and Parquet tables whose rows are the numbers of users and items."""

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from packed import parquet
from whole_files import harmed

from rankbench.core.errors import DataError
from rankbench.data.cards import Read
from rankbench.data.columns import checked
from rankbench.data.prepare import load
from rankbench.data.raw import RawFile
from rankbench.data.readers import lenskit

USERS, ITEMS = [7, 10, 99, 200, 201, 202], [3, 5, 8, 9, 11, 12]
PAIRS = [(user, item) for user in range(6) for item in range(6) if (user + item) % 4]
SECONDS = 978300760


def schema(name: str = "rating", entities: dict | None = None, **fields) -> bytes:
    relationship = {"entities": entities or {"user": None, "item": None}, "interaction": True, "repeats": "forbidden"}
    content = {"version": "2025.3", "name": None, "default_interaction": name, "relationships": {name: relationship}}
    return json.dumps(content | fields).encode()


def interactions(**columns) -> bytes:
    numbers = {"user_num": pa.array([u for u, _ in PAIRS], pa.int32()), "item_num": pa.array([i for _, i in PAIRS], pa.int32())}
    return parquet(**numbers | columns)


def saved() -> dict[str, bytes]:
    """The files of `Dataset.save`."""
    times = pa.array([SECONDS * 10**6] * len(PAIRS), pa.timestamp("us"))
    return {
        "schema.json": schema(),
        "user.parquet": parquet(user_id=USERS),
        "item.parquet": parquet(item_id=ITEMS, title=[f"t{item}" for item in ITEMS]),
        "rating.parquet": interactions(rating=[4.0] * len(PAIRS), timestamp=times),
        "summary.md": b"# Summary",
    }


@pytest.fixture(scope="module")
def rows_in(tmp_path_factory):
    """rows_in(files, **read) → the rows of the interactions."""
    folder = tmp_path_factory.mktemp("lenskit")

    def rows_in(files: dict[str, bytes], **read) -> list[dict]:
        for name, content in files.items():
            (folder / name).write_bytes(content)
        spec = Read(format="lenskit", **read)
        layout = lenskit.find(list(files), str(folder))
        tables = {name: RawFile(name, folder / path, "", spec, "file") for name, path in layout.companions.items()}
        raw = RawFile("all", folder / layout.parts["all"], "", spec, "file", None, tables)
        return [row for table in lenskit.read(raw) for row in checked(table, str).to_pylist()]

    return rows_in


def test_numbers_become_ids(rows_in):
    rows = rows_in(saved())
    assert rows == [{"user": USERS[u], "item": ITEMS[i], "value": 4.0, "time": SECONDS} for u, i in PAIRS]


def test_clicks_have_neither_value_nor_time_and_ids_may_be_text(rows_in):
    files = {"schema.json": schema("click"), "click.parquet": interactions(), "item.parquet": parquet(item_id=ITEMS)}
    rows = rows_in(files | {"user.parquet": parquet(user_id=[f"u{user}" for user in USERS])})
    assert rows == [{"user": f"u{USERS[u]}", "item": ITEMS[i]} for u, i in PAIRS]


def test_an_entity_may_have_an_alias_and_the_item_comes_second(rows_in):
    entities = {"item": None, "reader": "user"}
    table = parquet(item_num=[i for _, i in PAIRS], reader_num=[u for u, _ in PAIRS], stars=[2] * len(PAIRS))
    files = saved() | {"schema.json": schema("read", entities), "read.parquet": table}
    rows = rows_in(files, value="stars")
    assert rows == [{"user": USERS[u], "item": ITEMS[i], "value": 2.0} for u, i in PAIRS]


def test_without_a_default_the_only_interactions_are_taken(rows_in):
    content = json.loads(schema())
    content["relationships"] = {"friend": {"entities": {"a": "user", "b": "user"}, "interaction": False}} | content[
        "relationships"
    ]
    rows = rows_in(saved() | {"schema.json": json.dumps(content | {"default_interaction": None}).encode()})
    assert len(rows) == len(PAIRS)


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        ({"schema.json": b"{"}, r"schema\.json: not a schema of LensKit"),
        ({"schema.json": b"[]"}, r"schema\.json: not a schema of LensKit"),
        ({"schema.json": schema(relationships={})}, r"schema\.json: not a schema of LensKit"),
        ({"schema.json": schema("../up")}, r"schema\.json: not a schema of LensKit"),
        ({"schema.json": schema(entities={"user": None})}, r"schema\.json: rating is between 1 entities; two are needed"),
        ({"schema.json": schema("click")}, r"schema\.json: the format lenskit needs source\.companions\.click"),
        ({"rating.parquet": b"x"}, r"rating\.parquet: not a Parquet file"),
        ({"user.parquet": parquet(id=USERS)}, r"user\.parquet: no column 'user_id'"),
        ({"user.parquet": parquet(user_id=USERS[:5])}, r"rating\.parquet: row \d+: user_num is 5, but there are 5 of them"),
        ({"user.parquet": parquet(user_id=[*USERS[:5], -1])}, r"rating\.parquet: row \d+: user is -1"),
        ({"rating.parquet": parquet(user_num=[-1], item_num=[0])}, r"row 1: user_num is -1"),
        ({"rating.parquet": parquet(user_num=["a"], item_num=[0])}, r"rating\.parquet: "),
        ({"rating.parquet": parquet(user=[0], item_num=[0])}, r"no column 'user_num'; columns: user, item_num"),
        ({"rating.parquet": parquet(user_num=[None], item_num=[0])}, r"rating\.parquet: "),
    ],
)  # fmt: skip
def test_a_damaged_dataset_is_one_line(harm, message, rows_in):
    with pytest.raises(DataError, match=message) as error:
        rows_in(saved() | harm)
    assert str(error.value).isprintable()


@pytest.mark.parametrize("name", [name for name in saved() if name != "summary.md"])
@given(data=st.data())
def test_a_harmed_file_is_read_or_refused(name, data, rows_in):
    files = saved()
    try:
        rows_in(files | {name: data.draw(harmed(files[name]))})
    except DataError as error:
        assert (str(error).isprintable() and ".parquet" in str(error)) or ".json" in str(error)


def test_a_card_names_the_folder(write, environment):
    card = {"source": {"folder": "."}, "read": {"format": "lenskit"}, "split": {"protocol": "random-per-user", "valid": 0.3}}
    data = load(write(card, saved()), environment)
    assert (data.users.to_pylist(), data.items.to_pylist()) == (USERS, ITEMS)
    assert data.counts["interactions"] == len(PAIRS)
    # Another id in a table of entities is other data, although the interactions are the same file.
    changed = saved() | {"user.parquet": parquet(user_id=[*USERS[:5], 203])}
    other = load(write(card, changed), environment)
    assert other.users.to_pylist() == [*USERS[:5], 203]


def test_find_wants_one_schema():
    with pytest.raises(DataError, match=r"^x: no schema\.json; is it a dataset that LensKit has saved\?"):
        lenskit.find(["rating.parquet"], "x")
    with pytest.raises(DataError, match=r"^x: 2 schema\.json"):
        lenskit.find(["a/schema.json", "b/schema.json"], "x")
    layout = lenskit.find(["a/schema.json", "a/user.parquet", "b/user.parquet"], "x")
    assert layout.companions == {"user": "a/user.parquet"}


def test_interactions_without_a_number_are_dropped(write, environment):
    table = parquet(user_num=[u for u, _ in PAIRS] + [None, 1], item_num=[i for _, i in PAIRS] + [1, None])
    card = {"source": {"folder": "."}, "read": {"format": "lenskit"}, "split": {"protocol": "random-per-user", "valid": 0.3}}
    data = load(write(card | {"prepare": ["drop_missing"]}, saved() | {"rating.parquet": table}), environment)
    assert (data.counts["dropped_missing"], data.counts["interactions"]) == (2, len(PAIRS))
