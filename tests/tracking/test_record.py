"""Records: written whole, read back equal, and never overwritten by a later run of the same setting."""

import dataclasses
import json

import numpy as np
import pyarrow as pa
import pytest

from rankbench.errors import DataError
from rankbench.tracking.record import RunRecord, per_user_table, read_per_user, read_record, read_records, write_record

RECORD = RunRecord(
    id="run-x-ease-0",
    method="ease",
    params={"lam": 3.0},
    dataset={"name": "x", "fingerprint": "f"},
    fit_on="train+valid",
    measured_on="test",
    seed=0,
    dtype="float32",
    metrics={"ndcg@20": {"mean": 0.25, "low": 0.2, "high": 0.3}},
)


def test_a_record_reads_back_as_it_was_written(tmp_path):
    values = {"ndcg@20": np.array([0.1, 0.4])}
    folder = write_record(tmp_path, RECORD, per_user_table(pa.array(["b", "a"]), values))
    assert read_record(folder) == RECORD
    table = read_per_user(folder)
    assert table["user"].to_pylist() == ["b", "a"]
    np.testing.assert_allclose(table["ndcg@20"].to_numpy(), values["ndcg@20"], rtol=1e-7)


def test_a_finished_record_is_kept_and_a_failed_one_replaced(tmp_path):
    failed = dataclasses.replace(RECORD, status="failed", error="no memory", metrics={})
    folder = write_record(tmp_path, failed, None)
    write_record(tmp_path, RECORD, None)
    assert read_record(folder) == RECORD
    write_record(tmp_path, failed, None)
    assert read_record(folder) == RECORD


def test_a_value_that_json_has_no_word_for_leaves_nothing_behind(tmp_path):
    bad = dataclasses.replace(RECORD, metrics={"ndcg@20": {"mean": float("nan"), "low": None, "high": None}})
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_record(tmp_path, bad, None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": 99}', '{"format": 1, "id": "x"}'])
def test_a_damaged_record_is_named(tmp_path, text):
    folder = tmp_path / "r"
    folder.mkdir()
    (folder / "record.json").write_text(text)
    with pytest.raises(DataError, match=r"record\.json"):
        read_record(folder)


def test_scratch_folders_of_a_killed_writer_are_not_read(tmp_path):
    write_record(tmp_path, RECORD, None)
    (tmp_path / ".tmp-other").mkdir()
    (tmp_path / ".tmp-other" / "record.json").write_text("{")
    assert [record.id for record in read_records(tmp_path)] == [RECORD.id]


def test_records_are_plain_json(tmp_path):
    folder = write_record(tmp_path, RECORD, None)
    assert json.loads((folder / "record.json").read_text()) == dataclasses.asdict(RECORD)
