"""Checksums of raw files: read once, remembered while a file is unchanged, and never believed against the card."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from rankbench.cli import _main
from rankbench.core.errors import DataError, DownloadError
from rankbench.data import checksums as room
from rankbench.data.cards import load_card
from rankbench.data.checksums import checksums
from rankbench.data.fetch import fetch
from rankbench.data.prepare import prepare

RAW = "user,item\n" + "".join(f"{u},{i}\n" for u in range(12) for i in range(u % 4, 10))
LONG_AGO = 1_600_000_000


@pytest.fixture
def reads(monkeypatch):
    """The names of the files that were read for their checksums."""
    names, hash_file = [], room.hashed

    def counted(path, kinds):
        names.append(path.name)
        return hash_file(path, kinds)

    monkeypatch.setattr(room, "hashed", counted)
    return names


@pytest.fixture
def raw(tmp_path):
    """A file that was written long ago."""
    return written(tmp_path / "raw.csv", RAW)


def written(path: Path, text: str, at: int = LONG_AGO) -> Path:
    path.write_text(text)
    os.utime(path, (at, at))
    return path


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_an_unchanged_file_is_read_once_for_each_kind_of_checksum(raw, tmp_path, reads):
    for _ in range(3):
        assert checksums(raw, ["sha256"], tmp_path / "cache") == {"sha256": sha256(RAW)}
    assert len(reads) == 1
    both = checksums(raw, ["sha256", "md5"], tmp_path / "cache")
    assert both["md5"] == hashlib.md5(RAW.encode(), usedforsecurity=False).hexdigest() and len(reads) == 2
    assert checksums(raw, ["sha256"], tmp_path / "cache", recompute=True)["sha256"] == sha256(RAW) and len(reads) == 3


def test_a_changed_file_is_read_again_even_with_its_old_size_and_time(raw, tmp_path, reads):
    checksums(raw, ["sha256"], tmp_path / "cache")
    other = RAW.replace("1,2", "2,1")
    replaced = written(tmp_path / "new.csv", other)
    replaced.rename(raw)  # another inode
    assert checksums(raw, ["sha256"], tmp_path / "cache") == {"sha256": sha256(other)}
    written(raw, RAW, LONG_AGO + 1)
    assert checksums(raw, ["sha256"], tmp_path / "cache") == {"sha256": sha256(RAW)}
    assert len(reads) == 3


def test_a_file_that_was_just_written_is_not_remembered(tmp_path, reads, monkeypatch):
    # A second write within one tick of a coarse clock would go unseen.
    monkeypatch.setattr(room, "SETTLED", 3600 * 10**9)
    (tmp_path / "raw.csv").write_text(RAW)
    for _ in range(2):
        checksums(tmp_path / "raw.csv", ["sha256"], tmp_path / "cache")
    assert len(reads) == 2


@pytest.mark.parametrize(
    "memory", [b"{", b"\xff\xfe", b"[]", b'{"format": 2, "files": {"FILE": {}}}', b'{"format": 1, "files": []}',
               b'{"format": 1, "files": {"FILE": {"state": STATE, "sha256": 5}}}', b'{"format": 1, "files": {"FILE": "x"}}'],
)  # fmt: skip
def test_a_memory_that_is_damaged_or_of_another_format_is_ignored_and_written_anew(raw, tmp_path, reads, memory):
    cache = tmp_path / "cache"
    cache.mkdir()
    state = json.dumps(room._state(raw)).encode()
    (cache / "checksums.json").write_bytes(memory.replace(b"FILE", str(raw).encode()).replace(b"STATE", state))
    for _ in range(2):
        assert checksums(raw, ["sha256"], cache) == {"sha256": sha256(RAW)}
    assert len(reads) == 1


def test_a_cache_that_cannot_be_written_costs_a_reading_and_no_more(raw, tmp_path):
    (tmp_path / "cache").write_text("a file where a folder should be")
    assert checksums(raw, ["sha256"], tmp_path / "cache") == {"sha256": sha256(RAW)}


def test_files_that_are_gone_are_forgotten(raw, tmp_path):
    other = written(tmp_path / "other.csv", RAW)
    checksums(raw, ["sha256"], tmp_path / "cache")
    raw.unlink()
    checksums(other, ["sha256"], tmp_path / "cache")
    assert [*json.loads((tmp_path / "cache" / "checksums.json").read_text())["files"]] == [str(other.resolve())]


@pytest.fixture
def card(write, environment):
    """card(**more) → a card on an old raw.csv beside it."""

    def make(raw=RAW, **more):
        path = Path(write({"source": {"file": "raw.csv"}} | more, {"raw.csv": raw}))
        os.utime(path.with_name("raw.csv"), (LONG_AGO, LONG_AGO))
        return load_card(str(path), environment)

    return make


def test_preparing_again_reads_no_raw_file(card, environment, reads):
    one = card()
    fingerprint = prepare(one, environment).fingerprint
    reads.clear()
    assert {prepare(one, environment).fingerprint for _ in range(3)} == {fingerprint} and reads == []
    prepare(one, environment, verify=True)
    assert reads == ["raw.csv"]


def test_a_wrong_memory_is_not_held_against_the_file(card, environment):
    pinned = card(source={"files": {"all": {"file": "raw.csv", "sha256": sha256(RAW)}}})
    (file,) = fetch(pinned, environment)
    memory = environment.data / "checksums.json"
    memory.write_text(memory.read_text().replace(sha256(RAW), "0" * 64))
    assert fetch(pinned, environment)[0].sha256 == file.sha256
    with pytest.raises(DataError, match=r"raw\.csv: sha256 is .* the card toy says"):
        fetch(card(RAW + "1,1\n", source={"files": {"all": {"file": "raw.csv", "sha256": sha256(RAW)}}}), environment)


def test_prepared_data_outlive_their_raw_file(card, environment):
    here = prepare(card(), environment)
    assert here.raw_gone is None
    (here.card.folder / "raw.csv").unlink()
    gone = prepare(here.card, environment)
    assert gone.fingerprint == here.fingerprint and gone.sources == here.sources
    assert gone.raw_gone == "raw file is missing; its checksum was verified when the data were prepared"
    with pytest.raises(DownloadError, match=r"raw\.csv: no such file"):
        prepare(here.card, environment, verify=True)
    # Other data would be prepared by another card, and from a file of another checksum.
    path = str(here.card.folder / "toy.yaml")
    pinned = {"source": {"files": {"all": {"file": "raw.csv", "sha256": "0" * 64}}}}
    for changes in ({"prepare": [{"k_core": 2}]}, {"split.seed": 5}, pinned):
        with pytest.raises(DownloadError, match=r"raw\.csv: no such file"):
            prepare(load_card(path, environment, changes), environment)


def test_which_of_two_versions_of_a_raw_file_is_gone_nobody_knows(card, environment):
    prepare(card(), environment)
    second = card(RAW.replace("1,2", "2,1"))
    prepare(second, environment)
    (second.folder / "raw.csv").unlink()
    with pytest.raises(DownloadError, match=r"raw\.csv: no such file"):
        prepare(second, environment)


def test_describe_and_list_say_that_the_raw_file_is_gone(card, environment, monkeypatch, capsys):
    monkeypatch.setenv("RANKBENCH_DATA", str(environment.data))
    monkeypatch.setenv("RANKBENCH_OFFLINE", "1")
    monkeypatch.setenv("RANKBENCH_HOME", str(environment.data.parent / "home"))
    monkeypatch.delenv("RANKBENCH_MIRROR", raising=False)
    folder = environment.data.parent / "home" / "datasets"
    folder.mkdir(parents=True)
    for path in card().folder.iterdir():
        path.rename(folder / path.name)
    assert _main(["data", "describe", "toy", "--verify"]) == 0
    assert "the checksums of the raw files are correct" in capsys.readouterr().out
    (folder / "raw.csv").unlink()
    assert _main(["data", "describe", "toy"]) == 0
    assert "raw file is missing; its checksum was verified when the data were prepared" in capsys.readouterr().out
    assert _main(["data", "describe", "toy", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["raw_gone"].startswith("raw file is missing")
    assert _main(["data", "list", "--json"]) == 0
    assert {row["name"]: row["at_hand"] for row in json.loads(capsys.readouterr().out)}["toy"] == "prepared only"
    assert _main(["data", "describe", "toy", "--verify"]) == 2
