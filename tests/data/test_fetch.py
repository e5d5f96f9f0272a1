"""Raw files: where they are looked for, what they are held to, and that offline means offline."""

import hashlib
import json
import socket
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from packed import zipped

from rankbench.cli import _main
from rankbench.core.errors import DataError, DownloadError
from rankbench.data.cards import load_card, without_query
from rankbench.data.download import download
from rankbench.data.fetch import fetch
from rankbench.data.prepare import prepare

CONTENT = b"user,item\n1,2\n3,4\n"
SHA256, MD5 = hashlib.sha256(CONTENT).hexdigest(), hashlib.md5(CONTENT, usedforsecurity=False).hexdigest()
WRONG = {"sha256": "0" * 64, "md5": "0" * 32}
URL = "https://example.org/data/raw.csv"
MOVED = "https://example.org/2024/raw.csv"


@pytest.fixture(autouse=True)
def network(monkeypatch):
    """Any attempt to leave this machine fails the test, whatever the product makes of the error."""
    attempts, connect = [], socket.socket.connect

    def refuse(self, address):
        if address[0] == "127.0.0.1":
            return connect(self, address)
        attempts.append(address)
        raise OSError("no network in tests")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    yield
    assert not attempts


@pytest.fixture
def mirrored(tmp_path, environment):
    """Environment with an empty mirror, and the folder of the dataset `toy` in it."""
    folder = tmp_path / "mirror" / "toy"
    folder.mkdir(parents=True)
    return replace(environment, mirror=folder.parent), folder


@pytest.fixture
def internet(file_server, monkeypatch):
    """Every URL leads to a server of this test, at once and over http."""
    file_server.content = CONTENT

    def through(url, *arguments):
        download(file_server.url, *arguments, allowed=lambda url: None, pause=lambda seconds: None)

    monkeypatch.setattr("rankbench.data.fetch.download", through)
    return file_server


def read(file) -> bytes:
    with file.open() as content:
        return content.read()


def test_a_local_file_lies_beside_its_card(write, environment):
    (file,) = fetch(load_card(write({"source": {"file": "raw.csv"}}, {"raw.csv": CONTENT}), environment), environment)
    assert (file.part, file.origin, file.sha256, read(file)) == ("all", "file", SHA256, CONTENT)


def test_parts_come_in_the_order_train_valid_test(write, environment):
    parts = {part: {"file": f"{part}.csv"} for part in ("test", "train", "valid")}
    card = load_card(
        write({"source": {"files": parts}, "split": {"protocol": "published"}}, {f"{part}.csv": part for part in parts}),
        environment,
    )
    assert [(file.part, read(file)) for file in fetch(card, environment)] == [
        ("train", b"train"),
        ("valid", b"valid"),
        ("test", b"test"),
    ]


@pytest.mark.parametrize("kind", ["sha256", "md5"])
def test_a_checksum_is_held_to(kind, write, environment):
    right = {"sha256": SHA256, "md5": MD5}[kind]
    source = {"files": {"all": {"file": "raw.csv", kind: right}}}
    assert fetch(load_card(write({"source": source}, {"raw.csv": CONTENT}), environment), environment)[0].sha256 == SHA256
    source["files"]["all"][kind] = WRONG[kind]
    with pytest.raises(DataError, match=rf"raw\.csv: {kind} is {right}, the card toy says {WRONG[kind]}"):
        fetch(load_card(write({"source": source}), environment), environment)


def test_a_member_is_read_out_of_its_archive_and_nothing_is_extracted(write, environment):
    archive = zipped({"deep/raw.csv": CONTENT, "other.csv": b"x"})
    path = write({"source": {"files": {"all": {"file": "raw.zip", "member": "deep/raw.csv"}}}}, {"raw.zip": archive})
    before = sorted(Path(path).parent.rglob("*"))
    (file,) = fetch(load_card(path, environment), environment)
    assert read(file) == CONTENT
    assert file.sha256 == hashlib.sha256(archive).hexdigest()
    assert sorted(Path(path).parent.rglob("*")) == before


@pytest.mark.parametrize("known", [{}, {"sha256": SHA256}, {"md5": MD5}])
def test_a_file_is_downloaded_once(known, write, environment, internet):
    online = replace(environment, offline=False)
    card = load_card(write({"source": {"files": {"all": {"url": URL, **known}}}}), online)
    files = [fetch(card, online)[0] for _ in range(2)]
    assert [read(file) for file in files] == [CONTENT, CONTENT]
    assert [file.origin for file in files] == [URL, URL]
    assert len(internet.requests) == 1


def test_a_file_of_another_address_is_downloaded_anew(write, environment, internet):
    """Two cards may have one name, and a card may be edited."""
    online = replace(environment, offline=False)
    old, new = (load_card(write({"source": {"files": {"all": {"url": url}}}}), online) for url in (URL, MOVED))
    fetch(old, online)
    internet.content = b"user,item\n5,6\n"
    with pytest.raises(DownloadError, match=r"raw\.csv is not in the cache .* offline is set"):
        fetch(new, environment)
    (file,) = fetch(new, online)
    assert (read(file), file.origin) == (internet.content, MOVED)
    assert len(internet.requests) == 2 and fetch(new, online)[0] == file


def test_a_download_that_is_killed_at_its_end_leaves_its_address(write, environment, internet, monkeypatch):
    online = replace(environment, offline=False)
    old, new = (load_card(write({"source": {"files": {"all": {"url": url}}}}), online) for url in (URL, MOVED))

    def killed(url, *arguments):
        download(internet.url, *arguments, allowed=lambda url: None)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("rankbench.data.fetch.download", killed)
        fetch(old, online)
    internet.content = b"user,item\n5,6\n"
    assert read(fetch(new, online)[0]) == internet.content


def test_a_file_with_a_checksum_may_move(write, environment, internet):
    online = replace(environment, offline=False)
    for url in (URL, MOVED):
        fetch(load_card(write({"source": {"files": {"all": {"url": url, "sha256": SHA256}}}}), online), online)
    assert len(internet.requests) == 1


@pytest.mark.parametrize("kind", ["sha256", "md5"])
def test_a_download_with_a_wrong_checksum_is_refused_and_not_kept(kind, write, environment, internet):
    online = replace(environment, offline=False)
    card = load_card(write({"source": {"files": {"all": {"url": URL, kind: WRONG[kind]}}}}), online)
    with pytest.raises(DataError, match=rf"toy: .*: {kind} is .*, the card says 0+.*RANKBENCH_MIRROR") as error:
        fetch(card, online)
    assert not isinstance(error.value, DownloadError)
    assert [path for path in environment.data.rglob("*") if path.is_file() and path.suffix != ".lock"] == []


def test_the_lock_pins_a_file_without_checksum_at_its_first_fetch(write, mirrored):
    environment, folder = mirrored
    card = load_card(write({"source": {"files": {"all": {"url": URL}}}}), environment)
    (folder / "raw.csv").write_bytes(CONTENT)
    fetch(card, environment)
    assert json.loads((environment.data / "lock.json").read_text()) == {"toy/raw.csv": SHA256}

    (folder / "raw.csv").write_bytes(CONTENT + b"5,6\n")
    with pytest.raises(DataError, match=rf"raw\.csv: sha256 is .* but {SHA256} when first fetched"):
        fetch(card, environment)

    (folder / "raw.csv").write_bytes(CONTENT)
    assert fetch(card, environment)[0].sha256 == SHA256


def test_a_file_beside_a_card_is_the_users_to_edit(write, environment):
    for content in (CONTENT, CONTENT + b"5,6\n"):
        (file,) = fetch(load_card(write({"source": {"file": "raw.csv"}}, {"raw.csv": content}), environment), environment)
        assert file.sha256 == hashlib.sha256(content).hexdigest()
    assert not (environment.data / "lock.json").exists()


@pytest.mark.parametrize("content", ["{", "null", "[1]"])
def test_a_damaged_lock_is_named(content, write, mirrored):
    environment, folder = mirrored
    (folder / "raw.csv").write_bytes(CONTENT)
    environment.data.mkdir()
    (environment.data / "lock.json").write_text(content)
    with pytest.raises(DataError, match=r"lock\.json: damaged"):
        fetch(load_card(write({"source": {"files": {"all": {"url": URL}}}}), environment), environment)


def test_the_mirrors_raw_file_comes_before_cache_and_url(write, mirrored):
    environment, folder = mirrored
    cached = environment.data / "raw" / "toy" / "raw.csv"
    cached.parent.mkdir(parents=True)
    cached.write_bytes(b"from the cache")
    (folder / "raw.csv").write_bytes(CONTENT)
    (file,) = fetch(load_card(write({"source": {"files": {"all": {"url": URL}}}}), environment), environment)
    assert (file.origin, read(file)) == ("mirror", CONTENT)


@pytest.mark.parametrize("name", ["all.parquet", "edges.parquet"])
def test_the_mirrors_parquet_comes_before_its_raw_file(name, write, mirrored):
    environment, folder = mirrored
    (folder / "raw.csv").write_bytes(CONTENT)
    pq.write_table(pa.table({"user": [1], "item": [2]}), folder / name)
    (file,) = fetch(load_card(write({"source": {"files": {"all": {"url": URL}}}}), environment), environment)
    assert (file.origin, file.path.name, file.spec.format) == ("mirror", name, "parquet")


@pytest.mark.parametrize("name", ["all.parquet", "raw.csv"])
def test_describe_says_where_ids_may_be_others_than_the_published_ones(name, write, mirrored, monkeypatch, capsys):
    environment, folder = mirrored
    pairs = [(u, i) for u in range(12) for i in range(u % 4, 10)]
    if name == "raw.csv":
        (folder / name).write_text("user,item\n" + "".join(f"{u},{i}\n" for u, i in pairs))
    else:
        pq.write_table(pa.table({"user": [u for u, _ in pairs], "item": [i for _, i in pairs]}), folder / name)
    for variable, value in {"DATA": environment.data, "MIRROR": folder.parent, "OFFLINE": 1}.items():
        monkeypatch.setenv(f"RANKBENCH_{variable}", str(value))
    assert _main(["data", "describe", write({"source": {"files": {"all": {"url": URL}}}})]) == 0
    assert ("ids are those of the mirror" in capsys.readouterr().out) == (name == "all.parquet")


def test_the_mirror_may_hold_the_dataset_under_another_name(write, mirrored):
    environment, folder = mirrored
    (folder.parent / "other").mkdir()
    pq.write_table(pa.table({"user": [1], "item": [2]}), folder.parent / "other" / "all.parquet")
    source = {"files": {"all": {"url": URL}}, "mirror": {"folder": "other"}}
    assert fetch(load_card(write({"source": source}), environment), environment)[0].path.parent.name == "other"


def test_data_that_only_a_mirror_has_are_read_as_the_card_says_and_held_out_users_may_lie_in_folds(write, mirrored):
    environment, folder = mirrored
    for name, user, items in (
        *(("train", 1, [1, 2, 3]), ("validfold", 2, [1, 2]), ("valid", 2, [3])),
        *(("testfold", 3, [1]), ("test", 3, [2, 3])),
    ):
        table = {"user": [user] * len(items), "item": items, "position": range(len(items))}
        pq.write_table(pa.table(table), folder / f"{name}.parquet")
    card = {
        "source": {"mirror": {"parts": ["train", "valid", "test", "valid_history", "test_history"]}},
        "read": {"format": "parquet", "time": "position"},
        "prepare": [{"timed": True}],
        "split": {"protocol": "published"},
    }
    split = prepare(load_card(write(card), environment), environment).split
    held_out = [split.holdout(part, "train") for part in ("valid", "test")]
    assert [(part.history.nnz, part.target.nnz) for part in held_out] == [(2, 1), (1, 2)]


def test_the_mirrors_checksum_is_held_to(write, mirrored):
    environment, folder = mirrored
    pq.write_table(pa.table({"user": [1], "item": [2]}), folder / "all.parquet")
    source = {"files": {"all": {"url": URL}}, "mirror": {"sha256": {"all": WRONG["sha256"]}}}
    with pytest.raises(DataError, match=rf"all\.parquet: sha256 is .* the card toy says {WRONG['sha256']}"):
        fetch(load_card(write({"source": source}), environment), environment)


def test_half_a_dataset_in_the_mirror_is_refused(write, mirrored):
    """Else train would come from the mirror and test from elsewhere."""
    environment, folder = mirrored
    pq.write_table(pa.table({"user": [1], "item": [2]}), folder / "train.parquet")
    parts = {part: {"url": f"https://example.org/{part}.txt"} for part in ("train", "test")}
    with pytest.raises(DataError, match=r"has train\.parquet but no test\.parquet"):
        fetch(load_card(write({"source": {"files": parts}, "split": {"protocol": "published"}}), environment), environment)


def test_the_mirror_does_not_replace_a_file_beside_the_card(write, mirrored):
    environment, folder = mirrored
    pq.write_table(pa.table({"user": [1], "item": [2]}), folder / "all.parquet")
    (file,) = fetch(load_card(write({"source": {"file": "raw.csv"}}, {"raw.csv": CONTENT}), environment), environment)
    assert (file.origin, read(file)) == ("file", CONTENT)


def test_what_was_prepared_before_comes_before_a_second_download(write, environment, internet):
    card, online = (
        load_card(write({"source": {"files": {"all": {"url": URL}}}}), environment),
        replace(environment, offline=False),
    )
    internet.content = b"user,item\n" + b"".join(b"%d,%d\n" % (user, item) for user in range(9) for item in range(8))
    first = prepare(card, online)
    (environment.data / "raw" / "toy" / "raw.csv").unlink()
    assert prepare(card, online).raw_gone and prepare(card, environment).fingerprint == first.fingerprint
    assert len(internet.requests) == 1


@pytest.mark.parametrize(
    ("source", "brief", "message"),
    [
        ({"file": "raw.csv"}, "no such file", r"raw\.csv: no such file \(dataset toy\)"),
        ({"files": {"all": {"url": URL}}}, "offline", r"toy: raw\.csv is not in the cache .*offline is set"),
        ({"mirror": {"parts": ["all"]}}, "no mirror", "only from a mirror"),
    ],
)
def test_what_cannot_be_had_is_told_from_what_is_wrong(write, environment, source, brief, message):
    with pytest.raises(DownloadError, match=message) as error:
        fetch(load_card(write({"source": source}), environment), environment)
    assert error.value.brief == brief and error.value.exit_code == 2


def test_a_mirror_without_the_file_says_which_one_it_lacks(write, mirrored):
    environment, folder = mirrored
    card = load_card(write({"source": {"mirror": {"parts": ["all"]}}}), environment)
    with pytest.raises(DownloadError, match=rf"only from a mirror, and {folder} has no all\.parquet"):
        fetch(card, environment)


def test_a_server_without_the_file_is_a_failed_download_that_says_where_to_put_it(write, environment, internet):
    online = replace(environment, offline=False)
    internet.plan = [{"status": 404}]
    message = r"toy: cannot download .* answers 404 .*; or put raw\.csv into .* or set RANKBENCH_MIRROR"
    with pytest.raises(DownloadError, match=message) as error:
        fetch(load_card(write({"source": {"files": {"all": {"url": URL}}}}), online), online)
    assert error.value.brief == "download failed"
    assert [path for path in environment.data.rglob("*") if path.is_file() and path.suffix != ".lock"] == []


def test_the_query_of_an_address_is_shown_nowhere(environment, write, monkeypatch):
    """It may be a key that gives access to the file."""
    address, online = "https://example.org/data/raw.csv?key=secret", replace(environment, offline=False)
    card = load_card(write({"source": {"files": {"all": {"url": address}}}}), online)

    def refused(url, target, *more):
        assert url == address
        raise DownloadError(f"cannot download {without_query(url)}: the server answers 403")

    monkeypatch.setattr("rankbench.data.fetch.download", refused)
    with pytest.raises(DownloadError, match=r"https://example\.org/data/raw\.csv\?\.\.\.") as error:
        fetch(card, online)
    assert "secret" not in str(error.value)

    def received(url, target, *more):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("user,item\n" + "".join(f"{u},{i}\n" for u in range(12) for i in range(u % 4, 10)))

    monkeypatch.setattr("rankbench.data.fetch.download", received)
    prepare(card, online)
    (manifest,) = online.data.glob("prepared/*/manifest.json")
    assert "secret" not in manifest.read_text(encoding="utf-8")
