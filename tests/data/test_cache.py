"""The cache: what is current, stale and unfinished, how large it is, and what cleaning removes."""

import fcntl
import json
import os
import time

import pytest
from filelock import FileLock

from rankbench.core.files import ABANDONED
from rankbench.data import cache
from rankbench.data.describe import curves, facts_of
from rankbench.data.prepare import load

CARD = {"source": {"file": "raw.csv"}, "read": {"time": "time"}}
RAW = "user,item,time\n" + "".join(f"{u},{i},{1000 + u + i}\n" for u in range(12) for i in range(u % 4, 10))


@pytest.fixture
def dataset(write, environment):
    return load(write(CARD, {"raw.csv": RAW}), environment)


def prepared(environment):
    return next(path for path in (environment.data / "prepared").iterdir() if path.is_dir() and not path.name.startswith("."))


def kinds(environment):
    return sorted(entry.kind for entry in cache.entries(environment))


def test_what_was_just_prepared_is_current_and_stays(dataset, environment):
    assert kinds(environment) == ["prepared"]
    (entry,) = cache.entries(environment)
    assert entry.dataset == "toy"
    assert entry.n_bytes == sum(path.stat().st_size for path in entry.path.iterdir())


@pytest.mark.parametrize("manifest", ['{"code": "other"}', "{}", "no json", "[]"])
def test_what_other_code_prepared_is_stale_and_goes(dataset, environment, manifest):
    (prepared(environment) / "manifest.json").write_text(manifest, encoding="utf-8")
    assert kinds(environment) == ["stale"]
    assert cache.clean(cache.entries(environment))
    assert cache.entries(environment) == []


def test_unfinished_work_goes_when_it_is_old(dataset, environment):
    scratch = environment.data / "prepared" / ".tmp-toy-0123-4567"
    scratch.mkdir()
    (scratch / "train.npy").write_bytes(b"half")
    unfinished = [entry for entry in cache.entries(environment) if entry.kind == "unfinished"]
    assert [entry.path for entry in unfinished] == [scratch]
    cache.clean(unfinished)
    assert scratch.exists()  # it may be in the making
    old = time.time() - 2 * ABANDONED
    os.utime(scratch, (old, old))
    assert not cache.clean(unfinished)  # a file of it was just written
    os.utime(scratch / "train.npy", (old, old))
    handle = os.open(scratch, os.O_RDONLY)  # as a process does that prepares them, however slowly
    fcntl.flock(handle, fcntl.LOCK_EX)
    assert not cache.clean(unfinished)
    os.close(handle)
    assert sum(entry.n_bytes for entry in cache.clean(unfinished)) == 4
    assert not scratch.exists()


def test_what_a_process_holds_is_left(dataset, environment):
    folder = prepared(environment)
    with FileLock(folder.parent / f".{folder.name}.lock"):
        assert not cache.clean(cache.entries(environment))
    assert folder.is_dir()


def test_downloads_are_listed_and_what_is_left_of_one_is_unfinished(environment):
    folder = environment.data / "raw" / "ml"
    folder.mkdir(parents=True)
    for name in ("ml.zip", "ml.zip.url", "netflix.tar", "other.zip.part", "other.zip.part.json", "ml.zip.lock"):
        (folder / name).write_bytes(b"12345")
    assert {(entry.path.name, entry.kind) for entry in cache.entries(environment)} == {
        ("ml.zip", "raw"), ("ml.zip.url", "raw"), ("netflix.tar", "given"), ("other.zip.part", "unfinished"),
        ("other.zip.part.json", "unfinished"),
    }  # fmt: skip


def test_a_download_that_is_under_way_keeps_the_record_of_its_address(environment):
    folder = environment.data / "raw" / "ml"
    folder.mkdir(parents=True)
    body, about, whole = (folder / name for name in ("other.zip.part", "other.zip.part.json", "ml.zip"))
    for path in (body, about, whole):
        path.write_bytes(b"12345")
    old = time.time() - 2 * ABANDONED
    os.utime(about, (old, old))  # written once, at the start
    with FileLock(folder / "ml.zip.lock"):  # by the process that has just fetched it
        assert not cache.clean(cache.entries(environment))
    os.utime(body, (old, old))
    assert len(cache.clean(cache.entries(environment))) == 3


def test_the_facts_are_those_of_the_rows(dataset):
    facts = facts_of(dataset)
    n_users = [10 - u % 4 for u in range(12)]
    assert facts["interactions_a_user"] == {"min": 7, "median": 8.5, "mean": 8.5, "max": 10}
    assert curves(dataset)["user"].tolist() == sorted(n_users, reverse=True)
    assert curves(dataset)["item"].sum() == sum(n_users)
    assert facts["density"] == sum(n_users) / 120
    assert facts["time_span"] == ["1000", "1020"]  # no dates, as of positions in a sequence
    assert facts["share_of_top_tenth"] == 12 / sum(n_users)
    json.dumps(facts, allow_nan=False)


def test_folders_of_others_are_not_taken_for_prepared_data(dataset, environment):
    foreign = environment.data / "prepared" / "thesis-2024"
    foreign.mkdir()
    (foreign / "only-copy.txt").write_text("x")
    assert kinds(environment) == ["prepared"]
