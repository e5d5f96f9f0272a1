"""Prepared data in a store: a host without the raw data has the same dataset. Damaged copies: core/test_replica.py."""

import json
from dataclasses import replace

import numpy as np
import pytest

from rankbench.core.errors import DownloadError
from rankbench.core.storage import Storage
from rankbench.data.cards import load_card
from rankbench.data.describe import raw_data
from rankbench.data.prepare import load, prepare

ROWS = "".join(f"{u},{i},1\n" for u in range(12) for i in range(u % 3, 12, 1 + u % 2))
CARD = {
    "name": "shop",
    "source": {"files": {"all": {"url": "https://example.invalid/shop.csv"}}},
    "read": {"format": "delimited", "user": "user", "item": "item", "value": "value"},
    "split": {"protocol": "random-per-user", "seed": 1, "test": 0.2, "valid": 0.1},
}


@pytest.fixture
def hosts(environment, s3, tmp_path):
    """Environments of two hosts that share a store; only the first has the raw file."""
    store = Storage.from_env(f"{s3}/data", "here")
    first, second = (replace(environment, data=tmp_path / name, data_store=store) for name in ("first", "second"))
    raw = first.data / "raw" / "shop" / "shop.csv"
    raw.parent.mkdir(parents=True)
    raw.write_text("user,item,value\n" + ROWS)
    return first, second


@pytest.fixture
def card(write, environment):
    return load_card(write(CARD), environment)


def assert_same(ours, theirs):
    assert ours.fingerprint == theirs.fingerprint and ours.sources == theirs.sources and ours.counts == theirs.counts
    assert ours.users.equals(theirs.users) and ours.items.equals(theirs.items)
    assert np.array_equal(ours.split.train.indices, theirs.split.train.indices)


def test_a_host_without_the_raw_data_copies_what_another_prepared(hosts, card):
    first, second = hosts
    with pytest.raises(DownloadError):
        prepare(card, second)
    assert raw_data(card, second) == "offline"
    prepared = prepare(card, first)
    assert raw_data(card, second) == "prepared only"
    copy = prepare(card, second)
    assert_same(copy, prepared)
    assert copy.raw_gone and not (second.data / "raw").exists()
    (there,), (here,) = ((each.data / "prepared").glob("[!.]*") for each in hosts)
    names = {path.name for path in there.iterdir()}
    assert names == {path.name for path in here.iterdir()} and "checksums.json" in names
    assert all((there / name).read_bytes() == (here / name).read_bytes() for name in names)
    first.data_store.remove(next(key for key in first.data_store.objects() if key.endswith("users.parquet")))
    assert_same(prepare(card, second), prepared)  # from its own copy


def test_it_is_stored_once_and_generated_data_are_copied_too(hosts, environment):
    first, second = hosts
    changes = {"source.generator": {"users": 20, "items": 15, "interactions_per_user": 5}}
    prepared = load("synthetic", first, changes)
    keys = first.data_store.objects()
    assert_same(load("synthetic", second, changes), prepared)
    assert first.data_store.objects() == keys and len([key for key in keys if key.endswith("checksums.json")]) == 1
    assert_same(load("synthetic", environment, changes), prepared)  # without a store


def test_what_other_code_prepared_is_not_taken(hosts, card):
    first, second = hosts
    prepare(card, first)
    key = next(key for key in first.data_store.objects() if key.endswith("manifest.json"))
    first.data_store.write(key, json.dumps(json.loads(first.data_store.read(key)) | {"code": "other"}).encode())
    with pytest.raises(DownloadError):
        prepare(card, second)
