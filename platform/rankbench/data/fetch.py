"""Local, verified raw files: from the mirror, beside the card, from the cache, or downloaded."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from filelock import FileLock

from rankbench.core.environment import Environment
from rankbench.core.errors import DataError, DownloadError
from rankbench.core.files import make_folder, write_json, write_text
from rankbench.data.cards import Card, Read, RemoteFile, without_query
from rankbench.data.checksums import checksums
from rankbench.data.download import Progress, download
from rankbench.data.formats import format_of_file, format_of_names
from rankbench.data.interactions import PARTS
from rankbench.data.raw import RawFile, is_archive, names_below
from rankbench.data.readers import finder, parts_of
from rankbench.data.readers.parquet import MIRROR

log = logging.getLogger(__name__)
# Mirrors may name the part "all" as link graphs do, and what is known of held-out users a fold.
OTHER_NAMES = {"all": "edges", "valid_history": "validfold", "test_history": "testfold"}
ADDRESS = ".url"  # the ending of the file beside a download that says where it is from
MIRROR_NAMES = {part: [f"{name}.parquet" for name in dict.fromkeys((part, OTHER_NAMES.get(part, part)))] for part in PARTS}


def fetch(
    card: Card, environment: Environment, progress: Progress = lambda done, total: None, verify: bool = False
) -> list[RawFile]:
    """Fetch every part of the card's raw data, in the order of PARTS. With `verify` the checksums of unchanged files are
    computed again, too.

    Raises DownloadError if a part is not available, DataError if its checksum differs from the card's (or from that of the
    first fetch).
    """
    source = card.source
    # A mirror replaces the internet, not files beside the card.
    if source.folder is None and environment.mirror is not None and all(remote.url for remote in source.parts().values()):
        mirrored = _mirrored_parquet(card, environment, verify)
        if mirrored:
            return mirrored
    if source.mirror.parts:
        folder = environment.mirror and environment.mirror / card.mirror_folder
        missing = f"{folder} has no {source.part_names[0]}.parquet" if folder else "RANKBENCH_MIRROR is not set"
        brief = "not in the mirror" if folder else "no mirror"
        raise DownloadError(f"{card.name} is available only from a mirror, and {missing}", brief)
    if source.folder is not None:
        return _in_folder(card, environment, verify)
    companions = {name: _raw(card, name, remote, environment, progress, verify) for name, remote in source.companions.items()}
    files = [_raw(card, part, source.parts()[part], environment, progress, verify) for part in source.part_names]
    return [each for file in files for each in _in_archive(replace(file, companions=companions))]


def _in_folder(card: Card, environment: Environment, verify: bool) -> list[RawFile]:
    """The files that the format finds in the folder of the card."""
    folder = card.local(str(card.source.folder))
    if not folder.is_dir():
        raise DownloadError(f"{folder}: no such folder (dataset {card.name})", "no such folder")
    names = names_below(folder)
    spec = _said(card.read, format_of_names(names)) if _is_open(card.read) else card.read

    def raw(part: str, name: str) -> RawFile:
        path = folder / name
        return RawFile(part, path, _verified(card, path, {}, "file", environment, verify), spec, "file")

    return _in_order(parts_of(spec.format, names, str(folder)), raw)


def _in_archive(raw: RawFile) -> list[RawFile]:
    """The parts that the format finds in an archive whose member the card does not name; otherwise the file itself."""
    if raw.member is not None or raw.part != "all" or finder(raw.spec.format) is None or not is_archive(raw.path):
        return [raw]
    parts = parts_of(raw.spec.format, raw.names(), str(raw.path))
    return _in_order(parts, lambda part, member: replace(raw, part=part, member=member))


def _in_order(parts: dict[str, str], file: Callable[[str, str], RawFile]) -> list[RawFile]:
    """The parts in the order of PARTS; `file` makes one of them from what it is and its name."""
    return [file(part, parts[part]) for part in PARTS if part in parts]


def _raw(card: Card, part: str, remote: RemoteFile, environment: Environment, progress: Progress, verify: bool) -> RawFile:
    path, origin = _locate(card, remote, environment, progress)
    digest = _verified(card, path, remote.checksums, origin, environment, verify)
    return _recognised(RawFile(part, path, digest, card.read, origin, remote.member))


def _recognised(raw: RawFile) -> RawFile:
    """The file with the format that its name or its first bytes tell, unless the card says how to read it."""
    if not _is_open(raw.spec):
        return raw
    if raw.member is None and is_archive(raw.path):
        return replace(raw, spec=_said(raw.spec, format_of_names(raw.names())))
    return replace(raw, spec=_said(raw.spec, format_of_file(raw, raw.spec.columns({}) != {})))


def _is_open(spec: Read) -> bool:
    """Whether a card leaves open what the file is: text by commas, with a header, is what nothing else is known of."""
    return (spec.format, spec.separator, spec.header) == (Read().format, None, True)


def _said(spec: Read, format: str | None) -> Read:
    return spec if format is None else spec.model_copy(update={"format": format})


def _mirrored_parquet(card: Card, environment: Environment, verify: bool) -> list[RawFile]:
    """The mirror's Parquet files of all parts that the card names, or an empty list if it has none of them."""
    folder = environment.mirror / card.mirror_folder
    spec = card.read.model_copy(update={"format": "parquet"}) if card.source.mirror.parts else MIRROR
    files: list[RawFile] = []
    for part in card.source.part_names:
        path = next((folder / name for name in MIRROR_NAMES[part] if (folder / name).is_file()), None)
        if path is not None:
            known = card.source.mirror.sha256
            expected = {"sha256": known[part]} if part in known else {}
            digest = _verified(card, path, expected, "mirror", environment, verify)
            files.append(RawFile(part, path, digest, spec, "mirror"))
    missing = [part for part in card.source.part_names if part not in [file.part for file in files]]
    if files and missing:
        raise DownloadError(f"{folder}: has {files[0].path.name} but no {missing[0]}.parquet", "incomplete in the mirror")
    return files


def _locate(card: Card, remote: RemoteFile, environment: Environment, progress: Progress) -> tuple[Path, str]:
    if remote.file is not None:
        path = card.local(remote.file)
        if not path.is_file():
            raise DownloadError(f"{path}: no such file (dataset {card.name})", "no such file")
        return path, "file"
    if environment.mirror is not None:
        path = environment.mirror / card.mirror_folder / remote.filename
        if path.is_file():
            return path, "mirror"
    cached = cached_file(card, remote, environment)
    fetched_from = cached.with_name(cached.name + ADDRESS)
    stale = _is_of_another_address(fetched_from, remote)
    if cached.is_file() and not stale:
        return cached, without_query(remote.url)
    if environment.offline:
        searched = f"; not in the mirror {environment.mirror / card.mirror_folder}" if environment.mirror else ""
        raise DownloadError(
            f"{card.name}: {remote.filename} is not in the cache {cached.parent}{searched}, and offline is set", "offline"
        )
    log.info("downloading %s", without_query(remote.url))
    if stale:
        cached.unlink(missing_ok=True)
        with _first_checksums(environment.data / "lock.json") as known:
            known.pop(f"{card.name}/{cached.name}", None)
    write_text(fetched_from, remote.url)  # first, because a file without it counts as put there by the user
    try:
        download(remote.url, cached, remote.checksums, progress)
    except DataError as error:
        fetched_from.unlink(missing_ok=True)
        kind = DownloadError if isinstance(error, DownloadError) else DataError
        raise kind(f"{card.name}: {error}; or put {remote.filename} into {cached.parent}, or set RANKBENCH_MIRROR") from None
    return cached, without_query(remote.url)


def cached_file(card: Card, remote: RemoteFile, environment: Environment) -> Path:
    """Where a downloaded file is, or will be."""
    return environment.data / "raw" / card.name / remote.filename


def _is_of_another_address(fetched_from: Path, remote: RemoteFile) -> bool:
    """Whether the file in the cache was downloaded from another address than the card has now. A file with a checksum is known
    by that, and one that was put there by hand has no address.
    """
    if remote.checksums or not fetched_from.is_file():
        return False
    return fetched_from.read_text(encoding="utf-8") != remote.url


def _verified(card: Card, path: Path, expected: dict[str, str], origin: str, environment: Environment, verify: bool) -> str:
    """The file's sha256, after comparing with the card's checksums or, if it has none, with that of the first fetch."""
    actual = checksums(path, {"sha256", *expected}, environment.data, recompute=verify)
    if any(actual[kind] != checksum for kind, checksum in expected.items()):
        actual = checksums(path, actual, environment.data, recompute=True)  # the stored checksums may be wrong
    for kind, checksum in expected.items():
        if actual[kind] != checksum:
            raise DataError(
                f"{path}: {kind} is {actual[kind]}, the card {card.name} says {checksum}; delete the file to fetch it again"
            )
    digest = actual["sha256"]
    # Users may edit a file beside a card; its checksum goes into the fingerprint, not into the lock file.
    if not expected and origin != "file":
        lock_file = environment.data / "lock.json"
        with _first_checksums(lock_file) as known:
            first = known.setdefault(f"{card.name}/{path.name}", digest)
        if first != digest:
            raise DataError(
                f"{path}: sha256 is {digest}, but {first} when first fetched ({lock_file}); "
                "the data changed: restore them, or remove that line to accept the change"
            )
    return digest


@contextmanager
def _first_checksums(lock_file: Path) -> Iterator[dict[str, str]]:
    """The checksums of files at their first fetch, by card and file name; what is changed in them is written."""
    make_folder(lock_file.parent)
    with FileLock(lock_file.with_suffix(".lock")):
        try:
            known = dict(json.loads(lock_file.read_text(encoding="utf-8"))) if lock_file.is_file() else {}
        except (ValueError, TypeError):
            raise DataError(f"{lock_file}: damaged; restore it, or delete it to accept the files as they are") from None
        before = dict(known)
        yield known
        if known != before:
            write_json(lock_file, known)
