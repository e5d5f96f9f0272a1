"""Records: written whole, read back equal, and never overwritten by a later run of the same setting."""

import dataclasses
import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rankbench.core.errors import DataError
from rankbench.evaluation.metrics import PerUser
from rankbench.evaluation.summary import summarise
from rankbench.tracking.record import (
    DatasetInfo,
    Measured,
    RunRecord,
    about_cold_users,
    find_record,
    keep_aside,
    per_user_table,
    read_per_user,
    read_record,
    read_records,
    write_record,
)

RECORD = RunRecord(
    id="run-x-ease-0",
    method="ease",
    params={"lam": 3.0},
    dataset=DatasetInfo("x", "f"),
    fit_on="train+valid",
    measured_on="test",
    seed=0,
    dtype="float32",
    metrics={"ndcg@20": Measured(0.25, 0.2, 0.3)},
)


def test_a_record_reads_back_as_it_was_written(tmp_path):
    values = {"ndcg@20": np.array([0.1, 0.4])}
    folder = write_record(tmp_path, RECORD, per_user_table(pa.array(["b", "a"]), values))
    assert read_record(folder) == RECORD
    stored = json.loads((folder / "record.json").read_text())
    unknown = {"searched": None, "lists": None, "joules": None}
    assert stored | unknown == dataclasses.asdict(RECORD) and not unknown.keys() & stored
    table = read_per_user(folder)
    assert table["user"].to_pylist() == ["b", "a"]
    np.testing.assert_allclose(table["ndcg@20"].to_numpy(), values["ndcg@20"], rtol=1e-7)


@pytest.mark.parametrize("changes", [{"id": "/home/"}, {"environment": {"code": "../.."}}])
def test_a_record_of_others_names_no_folder_elsewhere(tmp_path, changes):
    folder = write_record(tmp_path / "runs", RECORD, None)
    with pytest.raises(DataError, match="remove the folder"):
        keep_aside(folder, dataclasses.replace(RECORD, **changes))
    assert [each.name for each in tmp_path.rglob("*")] == ["runs", RECORD.id, "record.json"]


def test_users_without_a_history_are_told_by_the_parts_that_were_fitted():
    """As on yelp-sslrec, where 222 users have interactions in validation and test alone."""

    def fitted(parts: str, measured: int, cold: int) -> RunRecord:
        users = {"measured": measured} | ({"without_history": cold} if cold else {})
        info = DatasetInfo("x", "f", cold_users="drop")
        return dataclasses.replace(RECORD, fit_on=parts, users=users, dataset=info, groups={"without_history": {}})

    alone, both, none = fitted("train", 30_094, 533), fitted("train+valid", 30_316, 311), fitted("train+valid", 30_627, 0)
    for records, words in (
        ([alone], "533 of 30,627 users with test items have no history for a model fitted on train, and they are left out"),
        ([both, alone], "311 of 30,627 users [^,]* fitted on train.valid .533 for one fitted on train., and"),
        ([none, alone], "533 of 30,627 users [^,]* fitted on train .0 for one fitted on train.valid., and"),
    ):
        assert re.match(words, about_cold_users(records))
    assert about_cold_users([none]) is None


def test_a_finished_record_is_kept_and_a_failed_one_replaced(tmp_path):
    failed = dataclasses.replace(RECORD, status="failed", error="no memory", metrics={})
    folder = write_record(tmp_path, failed, None)
    write_record(tmp_path, RECORD, None)
    assert read_record(folder) == RECORD
    write_record(tmp_path, failed, None)
    assert read_record(folder) == RECORD


@pytest.mark.parametrize("status", ["finished", "failed"])
def test_the_record_from_before_stays_until_the_new_one_is_whole(status, tmp_path):
    earlier = dataclasses.replace(RECORD, status=status)
    folder = write_record(tmp_path, earlier, None)
    bad = dataclasses.replace(RECORD, metrics={"ndcg@20": Measured(float("nan"))})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_record(tmp_path, bad, None, replace=True)
    assert read_record(folder) == earlier
    assert list(tmp_path.iterdir()) == [folder]


def test_a_finished_record_is_replaced_where_that_is_asked_for(tmp_path):
    write_record(tmp_path, RECORD, per_user_table(pa.array(["b"]), {"ndcg@20": np.array([0.1])}))
    newer = dataclasses.replace(RECORD, seconds={"fit": 2.0})
    folder = write_record(tmp_path, newer, None, replace=True)
    assert read_record(folder) == newer
    assert [path.name for path in folder.iterdir()] == ["record.json"]


@pytest.mark.parametrize("left", [[], ["per_user.parquet"]])
def test_a_folder_without_a_record_is_absent(left, tmp_path):
    """As a process leaves it that was killed while it removed a record."""
    (tmp_path / RECORD.id).mkdir()
    for name in left:
        (tmp_path / RECORD.id / name).write_bytes(b"PAR1")
    assert find_record(tmp_path / RECORD.id) is None and read_records(tmp_path) == []
    folder = write_record(tmp_path, RECORD, None)
    assert read_record(folder) == RECORD
    assert [path.name for path in folder.iterdir()] == ["record.json"]


def with_values(**values):
    return json.dumps(dataclasses.asdict(RECORD) | values)


@pytest.mark.parametrize(
    "text",
    [
        '{"format": 99, "name": "of then"}',
        "", "{", "[]", "{}", "null", '{"format": 1, "id": "x"}', "[" * 100_000, '{"id":' * 100_000,
        with_values(dataset=None), with_values(dataset={}), with_values(dataset={"name": "x"}),
        with_values(dataset={"name": "x", "fingerprint": None}), with_values(dataset={"name": None, "fingerprint": None}),
        with_values(params=None), with_values(metrics=None), with_values(measured_on=None), with_values(method=None),
        with_values(metrics={"ndcg@20": None}), with_values(metrics={"ndcg@20": {"mean": None, "low": None, "high": None}}),
        with_values(metrics={"ndcg@20": {}}), with_values(curve=[None]), with_values(status="done"), with_values(id=None),
        with_values(seconds={"fit": "long"}), with_values(unknown=1),
        with_values(metrics={"ndcg@20": {"mean": float("nan"), "low": None, "high": None}}),
    ],
)  # fmt: skip
def test_a_damaged_record_is_named(tmp_path, text):
    folder = tmp_path / "r"
    folder.mkdir()
    (folder / "record.json").write_text(text)
    with pytest.raises(DataError, match=r"record\.json: not a run record \(") as error:
        read_record(folder)
    assert "\n" not in str(error.value) and len(str(error.value)) < 500
    if "99" in text:
        assert "format 99, this version reads 1)" in str(error.value)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"ndcg@20": [0.5]}, "no column user"),
        ({"user": ["a", None], "ndcg@20": [0.5, 0.5]}, "1 rows have no user"),
        ({"user": ["a", "b"], "ndcg@20": [0.5, None]}, "1 rows have no ndcg@20"),
        ({"user": ["a"], "ndcg@20": ["0.5"]}, "column ndcg@20 holds string, not numbers"),
    ],
)
def test_damaged_per_user_values_are_named(table, message, tmp_path):
    pq.write_table(pa.table(table), tmp_path / "per_user.parquet")
    with pytest.raises(DataError, match=rf"per_user\.parquet: {message}"):
        read_per_user(tmp_path)


def test_scratch_folders_of_a_killed_writer_are_not_read(tmp_path):
    write_record(tmp_path, RECORD, None)
    (tmp_path / ".tmp-other").mkdir()
    (tmp_path / ".tmp-other" / "record.json").write_text("{")
    assert [record.id for record in read_records(tmp_path)] == [RECORD.id]


def test_the_record_of_an_unfinished_run_stores_only_the_name_of_its_dataset(tmp_path):
    failed = dataclasses.replace(RECORD, dataset=DatasetInfo("x"), status="failed", error="no memory", metrics={})
    folder = write_record(tmp_path, failed, None)
    assert json.loads((folder / "record.json").read_text())["dataset"] == {"name": "x"}
    assert read_record(folder) == failed


def test_a_record_that_knows_less_or_more_of_its_dataset_is_read(tmp_path):
    (tmp_path / "record.json").write_text(with_values(dataset={"name": "x", "fingerprint": "f", "later": [1]}))
    assert read_record(tmp_path) == RECORD


def measured(values: dict[str, list[float]]) -> RunRecord:
    """A record of these values by user, summarised as every run is."""
    n_users = len(next(iter(values.values())))
    per_user = PerUser(np.arange(n_users), {name: np.array(column) for name, column in values.items()}, {"coverage@5": 0.5})
    metrics = {name: Measured(each.mean, each.low, each.high) for name, each in summarise(per_user, 0).items()}
    return dataclasses.replace(RECORD, metrics=metrics, users={"measured": n_users})


def test_an_interval_that_tells_nothing_is_said():
    assert measured({"ndcg@5": [0.3], "recall@5": [1.0]}).interval_warning() == (
        "only one user was measured, so no interval or test says anything about other users"
    )
    # The mean of three times 0.1 is not exactly 0.1 in every resample.
    flat = measured({"ndcg@5": [0.1] * 3000, "recall@5": [0.0] * 3000, "mrr@5": [0.0] * 2999 + [1.0]})
    assert flat.interval_warning() == (
        "all 3,000 users have the same ndcg@5, recall@5, so an interval of no width is no sign of precision"
    )
    assert flat.interval_warning(["recall@5"]).startswith("all 3,000 users have the same recall@5, so")
    assert flat.interval_warning(["mrr@5", "coverage@5", "hit_rate@5"]) is None
    assert measured({"ndcg@5": [0.1, 0.2]}).interval_warning() is None and RECORD.interval_warning() is None
    # A list as long as the catalogue has every target.
    full = measured({"recall@5": [1.0, 1.0]})
    assert full.interval_warning() is not None
    assert dataclasses.replace(full, dataset=DatasetInfo("x", "f", counts={"items": 5})).interval_warning() is None
