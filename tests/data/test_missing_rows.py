"""`drop_missing`: rows without a user, an item, a value or a needed time are dropped, by every reader, and counted."""

import json
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import packed
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rankbench.core.errors import DataError
from rankbench.data.prepare import load

PAIRS = [(user, item) for user in range(6) for item in range(8) if (user + item) % 3]
WHOLE = [(f"u{user}", f"i{item}", 5.0, 10 * user + item) for user, item in PAIRS]
# What is missing in a row: the user, the item, the value, the time; both ids.
GAPS = [(None, "i1", 5.0, 1), ("u1", None, 5.0, 1), ("u1", "i9", None, 1), ("u9", "i1", 5.0, None), (None, None, 5.0, 1)]
NAMES = ("user", "item", "value", "time")
READ = {name: name for name in NAMES}
BY_TIME = {"split": {"protocol": "leave-one-out"}}


def csv(rows: list[tuple], missing: str = "") -> str:
    lines = [",".join(missing if value is None else str(value) for value in row) for row in rows]
    return "\n".join([",".join(NAMES), *lines]) + "\n"


def json_lines(rows: list[tuple], keep_nulls: bool) -> str:
    objects = [{n: v for n, v in zip(NAMES, row, strict=True) if keep_nulls or v is not None} for row in rows]
    return "".join(json.dumps(each) + "\n" for each in objects)


def tabs(rows: list[tuple], head: str = "") -> str:
    return head + "\n".join(csv(rows).replace(",", "\t").split("\n")[1:])


def mixed() -> list[tuple]:
    """The gaps between the whole rows, the first and the last row among them."""
    rows = list(WHOLE)
    for position, gap in zip((0, 7, 11, 20, len(rows)), GAPS, strict=True):
        rows.insert(position, gap)
    return [*rows, GAPS[0]]


FORMS = {
    "csv": (csv(mixed()), READ),
    **{f"csv-{word}": (csv(mixed(), word), READ) for word in ("NaN", "NULL", "null", "None", "<NA>", r"\N", " ")},
    "json-null": (json_lines(mixed(), True), READ | {"format": "json-lines"}),
    "json-without-the-key": (json_lines(mixed(), False), READ | {"format": "json-lines"}),
    "parquet": (packed.parquet(**dict(zip(NAMES, zip(*mixed(), strict=True), strict=True))), READ | {"format": "parquet"}),
    "recbole": (tabs(mixed(), "user_id:token\titem_id:token\trating:float\ttimestamp:float\n"), {"format": "recbole"}),
    "cornac": (tabs(mixed()), {"format": "cornac"}),
    # As pandas writes it by itself.
    "pandas": (pd.DataFrame(mixed(), columns=NAMES).to_csv(index=False), READ),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_reader_drops_and_counts_the_same_rows(form, write, environment):
    content, read = FORMS[form]
    raw = {"source": {"file": "raw.dat"}, "read": read} | BY_TIME
    data = load(write(raw | {"prepare": ["drop_missing"]}, {"raw.dat": content}), environment)
    assert data.counts["dropped_missing"] == len(GAPS) + 1
    assert data.raw_counts == {"users": 6, "items": 8, "interactions": len(WHOLE) + len(GAPS) + 1}
    clean = load(write(raw | {"prepare": [], "read": READ, "name": "toy"}, {"raw.dat": csv(WHOLE)}), environment)
    assert data.fingerprint == clean.fingerprint
    assert "dropped_missing" not in clean.counts


def test_a_row_that_lacks_only_its_time_is_kept_unless_the_split_needs_it(write, environment):
    content, split = csv(mixed()), {"protocol": "held-out-users", "valid": 2, "test": 2, "convention": "every-user"}
    card = {"source": {"file": "raw.dat"}, "read": READ, "prepare": ["drop_missing"], "split": split}
    path = write(card, {"raw.dat": content})
    for by, rows in (("random", len(WHOLE) + 1), ("time", len(WHOLE))):
        data = load(path, environment, {"split.targets_by": by, "split.item_vocabulary": "all"})
        assert data.counts["interactions"] == rows
        assert data.counts["dropped_missing"] == len(WHOLE) + len(GAPS) + 1 - rows


@pytest.mark.parametrize("form", FORMS)
def test_without_the_step_the_first_gap_is_an_error_that_advises_it(form, write, environment):
    content, read = FORMS[form]
    with pytest.raises(DataError, match=r"drop_missing") as error:
        load(write({"source": {"file": "raw.dat"}, "read": read}, {"raw.dat": content}), environment)
    row = ":2: " if form.startswith(("csv", "pandas", "recbole")) else ": row 1: " if form == "parquet" else ":1: "
    assert f"raw.dat{row}" in str(error.value)


def test_only_columns_that_the_card_names_count(write, environment):
    """A row without value or time is kept if the card does not use them."""
    card = {"source": {"file": "raw.dat"}, "prepare": ["drop_missing"]}
    data = load(write(card, {"raw.dat": csv(mixed())}), environment)
    assert data.counts["dropped_missing"] == 4  # without user or item
    assert data.counts["interactions"] == len(WHOLE) + 2


def test_the_files_of_a_mirror_are_judged_by_the_columns_of_the_card(write, environment, tmp_path):
    rows = mixed()
    columns = dict(zip(("user", "item", "rating", "timestamp"), zip(*rows, strict=True), strict=True))
    (tmp_path / "mirror" / "toy").mkdir(parents=True)
    pq.write_table(pa.table(columns), tmp_path / "mirror" / "toy" / "all.parquet")
    mirrored = replace(environment, mirror=tmp_path / "mirror")
    source = {"files": {"all": {"url": "https://example.org/raw.csv"}}}
    without = load(write({"source": source, "prepare": ["drop_missing"]}), mirrored)
    named = {"source": source, "prepare": ["drop_missing"], "read": {"value": "v", "time": "t"}} | BY_TIME
    named = load(write(named), mirrored)
    assert without.counts["dropped_missing"] == 4
    assert named.counts["dropped_missing"] == len(GAPS) + 1


def test_a_threshold_after_it_is_applied_to_what_is_left(write, environment):
    rows = [(u, i, 5.0 if position % 2 else 1.0, t) for position, (u, i, _, t) in enumerate(WHOLE)]
    card = {"source": {"file": "raw.dat"}, "read": {"value": "value"}, "prepare": ["drop_missing", {"min_value": 3}]}
    card |= {"split": {"protocol": "random-per-user", "valid": 0.4}}
    data = load(write(card, {"raw.dat": csv([*rows, *GAPS])}), environment)
    assert data.counts["dropped_missing"] == 4
    assert data.counts["interactions"] == len(WHOLE) // 2 + 1  # and the row that lacks only its time


def test_a_bad_value_is_no_missing_one(write, environment):
    for bad in ("inf", "good"):
        card = {"source": {"file": "raw.dat"}, "read": {"value": "value"}, "prepare": ["drop_missing"]}
        with pytest.raises(DataError, match=rf"raw\.dat:{len(WHOLE) + 2}: "):
            load(write(card, {"raw.dat": csv([*WHOLE, ("u1", "i9", bad, 1)])}), environment)


def test_a_file_that_it_would_empty_is_refused(write, environment):
    content = json_lines([(u, i, None, None) for u, i, _, _ in WHOLE], False)
    card = {"source": {"file": "raw.dat"}, "read": {"format": "json-lines", "value": "values"}, "prepare": ["drop_missing"]}
    with pytest.raises(DataError, match=rf"no interactions: drop_missing drops all of its {len(WHOLE)} rows; are the columns"):
        load(write(card, {"raw.dat": content}), environment)


def test_memory_is_that_of_a_block(write, environment):
    """Thirty blocks, of which nearly every row is dropped, need no more memory than one."""
    Path(write({}, {})).parent.joinpath("raw.dat").write_text(csv(WHOLE) + "," * 3 + "\n" + ",i1,5,1\n" * 12_000_000)
    card = {"source": {"file": "raw.dat"}, "prepare": ["drop_missing"]}
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    data = load(write(card), environment)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert data.counts["dropped_missing"] == 12_000_001
    assert peak < 60 << 20
    assert pa.total_allocated_bytes() - before < 1 << 20
    assert np.diff(data.split.train.indptr).sum() == data.counts["train"]
