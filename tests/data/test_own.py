"""Data in memory: what becomes of a DataFrame, an Arrow table, a sparse matrix, or several parts."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

import rankbench.api as rb
from rankbench.core.errors import ConfigError, DataError
from rankbench.data import cache
from rankbench.data.cards import load_card
from rankbench.data.export import export
from rankbench.data.own import _of_matrix

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "customer": [f"c{u}" for u in RNG.integers(0, 40, 1500)],
        "product": RNG.integers(0, 30, 1500),
        "when": pd.Timestamp("2024-01-01") + pd.to_timedelta(RNG.integers(0, 10**6, 1500), unit="s"),
        "stars": RNG.integers(1, 6, 1500),
    }
)
NAMED = {"user": "customer", "item": "product"}


def pairs(dataset):
    """All (user, item) pairs of a dataset, by raw ids."""
    split = dataset.split
    coo = (split.train + split.valid_target + split.test_target).tocoo()
    users, items = dataset.users.to_pylist(), dataset.items.to_pylist()
    return {(users[u], items[i]) for u, i in zip(*coo.coords, strict=True)}


def test_a_table_becomes_the_dataset_of_its_pairs_from_whatever_library(environment):
    expected = set(FRAME[["customer", "product"]].itertuples(index=False, name=None))
    tables = [FRAME, pa.table(FRAME), FRAME.astype({"customer": "category"}), FRAME.set_index("stars")]
    made = [rb.dataset(each, **NAMED, environment=environment) for each in tables]
    assert all(pairs(each) == expected for each in made)
    assert len({each.fingerprint for each in made}) == 1
    assert "1,500 rows" in repr(made[0]) and "40 users, 30 items" in made[0]._repr_html_()


def test_columns_may_have_names_of_any_type_and_be_sparse(environment, tmp_path):
    expected = rb.dataset(FRAME, **NAMED, environment=environment).fingerprint
    numbers = FRAME.assign(product=FRAME["product"].astype(pd.SparseDtype("int64", 0)))
    numbers.columns = pd.Index([0, 1, np.nan, ("a", "b")], tupleize_cols=False)
    levels = pd.concat({"a": FRAME}, axis=1)
    FRAME.to_csv(tmp_path / "plain.csv", index=False, header=False)
    given = [(numbers, {"user": 0, "item": 1}), (levels, {"user": ("a", "customer"), "item": ("a", "product")})]
    given.append((tmp_path / "plain.csv", {"user": 0, "item": 1}))
    assert {rb.dataset(data, **named, environment=environment).fingerprint for data, named in given} == {expected}


def test_a_sparse_matrix_has_positions_as_ids_and_stored_zeros_are_no_interactions(environment):
    matrix = sp.random(30, 20, 0.5, format="csr", random_state=1)
    matrix.data[:5] = 0
    dataset = rb.dataset(matrix, environment=environment)
    assert pairs(dataset) == set(zip(*map(np.ndarray.tolist, np.nonzero(matrix.toarray())), strict=True))
    liked = rb.dataset(matrix, prepare=[{"min_value": 0.5}], environment=environment)
    assert liked.counts["interactions"] == int((matrix.data >= 0.5).sum())


def test_equal_data_are_stored_once_and_the_card_is_found_again(environment):
    first = rb.dataset(FRAME, **NAMED, environment=environment)
    again = rb.dataset(FRAME.copy(), **NAMED, environment=environment)
    other = rb.dataset(FRAME.iloc[1:], **NAMED, environment=environment)
    assert first.name == again.name != other.name and first.card.path == again.card.path
    assert [entry.kind for entry in cache.entries(environment)].count("own") == 2
    model = rb.fit(first, "ease", lam=10.0, environment=environment)
    assert model.evaluate(environment=environment).metrics == model.evaluate(first, environment=environment).metrics


def test_the_split_is_a_protocol_its_parameters_or_a_column(environment):
    by_time = rb.dataset(FRAME, **NAMED, time="when", split="temporal", environment=environment)
    assert by_time.card.split.protocol == "temporal" and by_time.time_span is not None
    seeded = rb.dataset(FRAME, **NAMED, split={"protocol": "random-per-user", "seed": 7}, environment=environment)
    assert seeded.card.split.seed == 7
    unique = FRAME.drop_duplicates(["customer", "product"]).assign(
        fold=lambda f: np.where(np.arange(len(f)) % 5, "train", "test")
    )
    by_column = rb.dataset(unique, **NAMED, split="fold", environment=environment)
    assert by_column.counts["test"] == (unique["fold"] == "test").sum()
    parts = {part: rows.drop(columns="fold") for part, rows in unique.groupby("fold")}
    assert rb.dataset(parts, **NAMED, environment=environment).fingerprint == by_column.fingerprint


def test_keys_of_a_split_without_a_protocol_are_those_of_the_parts_that_are_given(environment, tmp_path):
    """A new split of train and test together would have test items in train."""
    users, items = (each.ravel() for each in np.meshgrid(np.arange(5), np.arange(8)))
    parts = {name: pd.DataFrame({"user": users, "item": items + first}) for name, first in (("train", 0), ("test", 10))}
    (tmp_path / "x").mkdir()
    for name, each in parts.items():
        each.to_csv(tmp_path / "x" / f"{name}.csv", index=False)
    for given in (parts, tmp_path / "x"):
        made = rb.dataset(given, user="user", item="item", split={"seed": 7}, environment=environment)
        assert (made.card.split.protocol, made.card.split.seed) == ("published", 7)
    files = "files: {train: {file: x/train.csv}, test: {file: x/test.csv}}"
    (tmp_path / "x.yaml").write_text(f"name: x\nsource: {{{files}}}\n")
    with pytest.raises(ConfigError, match="missing; the source has its own train and test"):
        load_card(str(tmp_path / "x.yaml"), environment)
    (tmp_path / "x.yaml").write_text(f"name: x\nsource: {{{files}}}\nsplit: {{protocol: temporal}}\n")
    changed = load_card(str(tmp_path / "x.yaml"), environment, {"split": {"seed": 1}})
    assert (changed.split.protocol, changed.split.seed) == ("temporal", 1)


def test_a_file_of_interactions_is_read_where_it_lies(environment, tmp_path):
    FRAME.to_csv(tmp_path / "clicks.csv", index=False)
    FRAME.to_csv(tmp_path / "clicks.tsv", index=False, sep="\t")
    FRAME.to_parquet(tmp_path / "clicks.parquet")
    made = [rb.dataset(tmp_path / f"clicks.{kind}", **NAMED, environment=environment) for kind in ("csv", "tsv", "parquet")]
    assert {each.fingerprint for each in made} == {rb.dataset(FRAME, **NAMED, environment=environment).fingerprint}
    assert made[0].name == "clicks" and made[0].card.folder.parent == environment.data / "own"


def test_an_archive_of_movielens_is_read_as_downloaded(environment, tmp_path):
    rows = "".join(f"{user}::{(user * item) % 37}::4::978300760\n" for user in range(1, 40) for item in range(1, 15))
    with zipfile.ZipFile(tmp_path / "ml-1m.zip", "w") as archive:
        archive.writestr("ml-1m/ratings.dat", rows)
    dataset = rb.dataset(
        tmp_path / "ml-1m.zip", prepare=[{"duplicates": "first"}, {"min_items_per_user": 5}], environment=environment
    )
    assert dataset.name == "ml-1m" and dataset.card.read.format == "movielens"
    assert pairs(dataset) <= {(user, (user * item) % 37) for user in range(1, 40) for item in range(1, 15)}


@pytest.mark.parametrize(
    ("data", "arguments", "message"),
    [
        (FRAME, {"user": "custmer", "item": "product"}, r"no column 'custmer'; did you mean customer\?"),
        (FRAME, NAMED | {"split": "tempral"}, r"'tempral' is neither a protocol nor a column; did you mean temporal\?"),
        (FRAME, NAMED | {"split": "product"}, "the column 'product' says '"),
        (FRAME.assign(part=[[1]] * 1500), NAMED | {"split": "part"}, "the column 'part' is list.*; expected train"),
        (FRAME.assign(part=[b"\xff"] * 1500), NAMED | {"split": "part"}, "the column 'part' is binary; expected train"),
        (sp.eye_array(9), {"split": "part"}, r"split\.protocol: unknown 'part'"),
        (FRAME.assign(product=pd.Series(["\ud800"] * 1500, dtype=object)), NAMED, "^dataset: .* surrogates not allowed"),
        (FRAME, NAMED | {"split": ""}, "^split: expected the name of a protocol or of a column, got ''$"),
        ({"train": FRAME, "test": FRAME}, NAMED | {"split": ""}, "^split: expected the name"),
        (Path("gone.csv"), {"split": ""}, "^split: expected the name"),
        (pa.chunked_array([[1, 2]]), {}, "^dataset: expected a pandas, Arrow or Polars table, .*, got ChunkedArray$"),
        ({"train": FRAME, "test": [1]}, NAMED, "^dataset: test: expected a pandas, Arrow or Polars table, .*, got list$"),
        (FRAME, NAMED | {"name": "No Name"}, "dataset: name: "),
        (
            FRAME.assign(product=FRAME["product"].where(FRAME.index > 2)),
            NAMED,
            "^dataset: row 0 from 0: item is None; .*; prepare=\\['drop_missing', ...\\] leaves rows without one out",
        ),
        (
            FRAME.assign(product=FRAME["product"] - 1),
            NAMED,
            r"^dataset: row \d+ from 0: item is -1; every interaction needs an id",
        ),
        (FRAME, NAMED | {"time": "customer"}, r"^dataset: row 0 from 0: expected the time, column 'customer', .*, found 'c"),
        (
            FRAME.assign(stars=FRAME["stars"] > 3),
            NAMED | {"value": "stars"},
            "^dataset: the column 'stars' is bool; value needs",
        ),
        (FRAME.assign(stars=np.inf), NAMED | {"value": "stars"}, "^dataset: row 0 from 0: value is inf"),
        (FRAME, NAMED | {"prepare": [{"min_value": 4}]}, r"prepare\.0: min_value needs a value column; value='NAME' names it$"),
        (FRAME, NAMED | {"split": "leave-one-out"}, "needs a time column; time='NAME' names it$"),
        ({"train": FRAME, "test": FRAME.assign(product=-1)}, NAMED, "^dataset: test: row 0 from 0: item is -1"),
        (pd.DataFrame({"user": [1, "a"], "item": [1, 2]}), {}, r"convert the ids with \.astype\(str\)"),
        (pd.DataFrame(FRAME.to_numpy()), {}, r"no column 'user' \(user=0 names the column\); columns: 0, 1, 2, 3$"),
        (pd.concat({"a": FRAME}, axis=1), NAMED, r"no column 'customer'.* \(user=\('a', 'customer'\) names the column\)"),
        (FRAME.rename(columns={"product": np.nan}), NAMED, r"no column 'product' \(item=nan names the column\); columns: cus"),
        (FRAME.rename(columns={"product": b"product"}), NAMED, r"no column 'product'.* \(item=b'product' names the column\)"),
        ({"train": FRAME, "tset": FRAME}, NAMED, r"unknown part 'tset'; did you mean test\?"),
        ({"all": FRAME, "test": FRAME}, NAMED, "the part all cannot be given together with other parts"),
        ({}, {}, "no parts"),
        (7, {}, "got int"),
        (sp.coo_array(np.ones(3)), {}, "got 1 dimensions"),
        (sp.coo_array(np.full((2, 2), 1 + 2j)), {}, "real numbers, got complex128"),
        (FRAME, {**NAMED, "changes": {"split.seed": 1}}, "changes: only for"),
        ("gone.csv", {}, "gone.csv: no such file"),
    ],
)
def test_what_cannot_be_a_dataset_is_refused_in_one_line_and_leaves_nothing(environment, data, arguments, message):
    with pytest.raises((ConfigError, DataError), match=message) as refused:
        rb.dataset(data, **arguments, environment=environment)
    assert "\n" not in str(refused.value)
    assert not list((environment.data / "own").glob("*"))


@pytest.mark.parametrize("as_column", [False, True])
def test_a_pair_in_two_parts_of_the_users_own_split_is_refused(environment, as_column):
    """Which of the two interactions is meant is the user's to say; a pair that is repeated within a part is one interaction."""
    train = pd.DataFrame({"user": [0, 0, 1, 1, 2], "item": [0, 1, 1, 2, 0]})
    valid = pd.DataFrame({"user": [0, 1], "item": [3, 3]})
    test = pd.DataFrame({"user": [0, 1, 2], "item": [2, 0, 1]})

    def prepared(train):
        parts = {"train": train, "valid": valid, "test": test}
        if not as_column:
            return rb.dataset(parts, environment=environment)
        together = pd.concat([each.assign(part=name) for name, each in parts.items()], ignore_index=True)
        return rb.dataset(together, split="part", environment=environment)

    split = prepared(pd.concat([train, train[:2]])).split
    assert (split.train.nnz, split.valid_target.nnz, split.test_target.nnz) == (5, 2, 3)
    with pytest.raises(DataError, match="1 pairs lie in two of train, valid and test"):
        prepared(pd.concat([train, test[:1]]))


def test_of_an_entry_that_is_stored_twice_the_value_is_the_sum():
    rows, columns, values = [0, 0, 0, 1, 1, 2], [5, 5, 5, 3, 3, 4], [1, 1, 1, 2, -2, 7]
    stored = sp.coo_array((values, (rows, columns)), shape=(3, 6))
    for matrix in (stored, stored.tocsr()):
        assert _of_matrix(matrix, "here").to_pydict() == {"user": [0, 2], "item": [5, 4], "value": [3.0, 7.0]}
    seen = sp.coo_array((np.ones(3, bool), ([0, 0, 1], [2, 2, 1])), shape=(2, 3))
    assert _of_matrix(seen, "here").to_pydict() == {"user": [0, 1], "item": [2, 1]}
    assert stored.nnz == 6  # the caller's matrix is not changed
    often = sp.coo_array((np.ones(256, np.uint8), (np.zeros(256, int), np.zeros(256, int))), shape=(1, 1))
    assert _of_matrix(often, "here").to_pydict() == {"user": [0], "item": [0], "value": [256.0]}


def test_ratings_that_all_count_are_named_once_per_call(environment, caplog):
    said = "All rows count as interactions; a step {min_value: 4} in `prepare` would keep high values only"
    rated = FRAME.assign(stars=1)
    for arguments, expected in (
        ({"value": "stars"}, True),
        ({"value": "stars", "prepare": [{"min_value": 1}, {"duplicates": "first"}]}, False),
        ({}, False),
    ):
        caplog.clear()
        rb.dataset(rated, **NAMED, **arguments, environment=environment)
        assert (said in caplog.text) == expected


def test_ratings_of_a_format_and_columns_without_names_are_said(environment, tmp_path, caplog):
    rows = [(user, item, user % 5 + 1, 10**9 + item) for user in range(30) for item in range(9)]
    for name, end, said in (("ratings.dat", "::", "All rows count"), ("log.csv", ",", "no header: column 0 is the user")):
        (tmp_path / name).write_text("".join(end.join(map(str, row)) + "\n" for row in rows))
        caplog.clear()
        rb.dataset(tmp_path / name, environment=environment)
        assert said in caplog.text


def test_an_export_may_lie_in_a_folder_whose_name_is_not_utf8(environment, tmp_path):
    dataset = rb.dataset(FRAME, **NAMED, environment=environment)
    about = export(dataset, tmp_path / "\udcff", "parquet", True, ["shop"])
    assert pq.read_table(io.BytesIO((tmp_path / "\udcff" / "train.parquet").read_bytes())).num_rows == dataset.counts["train"]
    assert len(about["files"]) == 3
