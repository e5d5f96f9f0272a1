"""From a card to a Dataset: from the content-addressed cache, from the store of data, or built anew."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp
from filelock import FileLock

from rankbench.core import rng
from rankbench.core.data_notes import data_notes
from rankbench.core.display import as_html, as_text
from rankbench.core.environment import Environment
from rankbench.core.errors import DataError, DownloadError
from rankbench.core.files import atomic_folder, make_folder, sha256_of, sweep_scratch
from rankbench.core.plugins import guarded, loaded, sources_digest
from rankbench.core.progress import Progress
from rankbench.data.blocks import csr_from_parts
from rankbench.data.build import build
from rankbench.data.cards import Card, load_card
from rankbench.data.fetch import fetch
from rankbench.data.protocols.spec import protocols
from rankbench.data.raw import RawFile
from rankbench.data.readers import readers
from rankbench.data.shared import copy_prepared, store_prepared, stored_manifests
from rankbench.data.splits import LABELS, Split, assemble

log = logging.getLogger(__name__)
RAW_GONE = "raw file is missing; its checksum was verified when the data were prepared"


@dataclass(frozen=True, repr=False)
class Dataset:
    """A prepared dataset: the split, the raw ids of its rows and columns, and facts about it.

    `fingerprint` is a hash of the matrices and of what is ranked, so equal data have equal fingerprints, whatever their origin.
    `differences` are sentences about counts that differ from the published ones. `raw_gone` is a note if the raw files
    are no longer on this machine.
    """

    card: Card
    split: Split
    users: pa.Array
    items: pa.Array
    fingerprint: str
    raw_counts: dict[str, int]
    counts: dict[str, int]
    differences: tuple[str, ...]
    sources: tuple[dict[str, str], ...]
    time_span: tuple[int, int] | None = None
    raw_gone: str | None = None

    @property
    def name(self) -> str:
        return self.card.name

    @property
    def facts(self) -> dict[str, str]:
        """What the data are, in words: counts, parts, protocol and fingerprint."""
        counts, raw = self.counts, self.raw_counts["interactions"]
        sizes = ", ".join(f"{counts[name]:,} {name}" for name in ("users", "items", "interactions"))
        dropped = f" (of {raw:,} rows)" if raw != counts["interactions"] else ""
        parts = ", ".join(f"{part} {counts[part]:,}" for part in ("train", "valid", "test"))
        facts = {
            "size": sizes + dropped,
            "split": f"{self.card.split.protocol}: {parts}",
            "fingerprint": self.fingerprint,
            "note": "; ".join(data_notes(counts)),
            "stand-in": self.card.stand_in or "",
            "differs": "; ".join(self.differences),
            "raw files": self.raw_gone or "",
        }
        return {name: fact for name, fact in facts.items() if fact}

    def __repr__(self) -> str:
        return as_text(f"Dataset {self.name}", self.facts)

    def _repr_html_(self) -> str:
        return as_html(f"Dataset {self.name}", self.facts)


def load(dataset: str, environment: Environment, changes: dict[str, Any] | None = None) -> Dataset:
    """Load the dataset of a card name or card file; it is prepared at first use and memory-mapped from the cache later."""
    return prepare(load_card(dataset, environment, changes), environment)


@guarded("prepare")
def prepare(
    card: Card, environment: Environment, progress: Progress = lambda phase, done, total: None, verify: bool = False
) -> Dataset:
    """Load the card's dataset from the cache, or prepare and store it. Raises DataError as fetch, the readers and split do.

    If the raw files are missing, data that were prepared earlier, here or in the store of data, are used before anything is
    downloaded. With `verify` the raw files are required, and their checksums are computed again. `progress(phase, done, total)`
    counts bytes of a download, then rows read; total is None if unknown.
    """
    raw: list[RawFile] = []
    if not card.source.generator:
        try:
            raw = fetch(card, replace(environment, offline=True), verify=verify)
        except DownloadError as error:
            before = None if verify else prepared_before(card, environment) or stored_before(card, environment)
            if before and _is_here(before, environment):
                log.info("%s; using the data prepared earlier", error)
                return replace(_open(card, before), raw_gone=RAW_GONE)
            raw = fetch(card, environment, lambda done, total: progress("download", done, total), verify)
    content = json.dumps([card.content_key(), [_key(file) for file in raw], code_version(), *_plugins_of(card)])
    folder = environment.data / "prepared" / f"{card.name}-{hashlib.sha256(content.encode()).hexdigest()[:16]}"
    _is_here(folder, environment, lambda scratch: build(card, raw, scratch, _made_by(card), progress))
    return _open(card, folder)


def _is_here(folder: Path, environment: Environment, make: Callable[[Path], None] | None = None) -> bool:
    """Whether the folder is in the cache, perhaps now: it is copied from the store of data, or else built and stored."""
    if folder.is_dir():
        return True
    make_folder(folder.parent)
    # One process prepares while others wait; a killed process releases the lock.
    with FileLock(folder.parent / f".{folder.name}.lock"):
        sweep_scratch(folder)
        if not folder.is_dir() and not copy_prepared(folder, environment) and make is not None:
            with atomic_folder(folder) as scratch:
                make(scratch)
            store_prepared(folder, environment)
        return folder.is_dir()


def prepared_before(card: Card, environment: Environment) -> Path | None:
    """The folder that this code version prepared from the card's source, whether or not the raw files still exist. None if
    there is none, or if there are several with different data, because the raw files changed in between.
    """

    def manifests() -> Iterator[tuple[str, bytes]]:
        for path in sorted((environment.data / "prepared").glob(f"{card.name}-*/manifest.json")):
            with suppress(OSError):  # it may be removed at this moment
                yield path.parent.name, path.read_bytes()

    return _only(card, manifests(), environment)


def stored_before(card: Card, environment: Environment) -> Path | None:
    """As `prepared_before`, of the folders in the store of data: the folder to which that one is copied."""
    return _only(card, stored_manifests(card.name, environment), environment)


def prepared_already(card: Card, environment: Environment) -> Dataset | None:
    """The dataset, if it is prepared on this machine; None if it is not. Nothing is written, and the network is not used."""
    folder = prepared_before(card, environment)
    return None if folder is None else _open(card, folder)


def _only(card: Card, manifests: Iterable[tuple[str, bytes]], environment: Environment) -> Path | None:
    """Of folders by name, with their manifests, the one that this code version prepared from the card's source."""
    made_by, folders = _made_by(card), {}
    for name, content in manifests:
        try:
            manifest = json.loads(content)
            if {key: manifest[key] for key in made_by} == made_by:
                folders[manifest["fingerprint"]] = name
        except (ValueError, KeyError, TypeError, AttributeError):
            continue  # damaged, or of an earlier version
    return environment.data / "prepared" / next(iter(folders.values())) if len(folders) == 1 else None


def _made_by(card: Card) -> dict[str, Any]:
    """What a manifest says of the code and the source that its data are made by."""
    return {"dataset": card.name, "code": code_version(), "plugins": _plugins_of(card), "source": _source_key(card)}


def _plugins_of(card: Card) -> list[str]:
    """The hashes of the plugins that read or split the card's data."""
    origins = {readers().origin(card.read.format), protocols().origin(card.split.protocol)}
    return sorted(plugin.sha256 for plugin in loaded() if plugin.origin in origins)


def _source_key(card: Card) -> str:
    """A hash of the card's content and of the source of its raw data, including checksums."""
    source = card.source.model_dump(mode="json", exclude={"home", "licence"})
    remotes = [*card.source.parts().values(), *card.source.companions.values()]
    folder = str(card.folder) if card.source.folder or any(remote.file for remote in remotes) else None
    return hashlib.sha256(json.dumps([card.content_key(), source, folder], sort_keys=True).encode()).hexdigest()


def _key(file: RawFile) -> list:
    """The properties of a raw file that determine what is read from it."""
    companions = {name: _key(each) for name, each in sorted(file.companions.items())}
    return [file.part, file.sha256, file.member, file.spec.model_dump(), companions]


@cache
def code_version() -> str:
    """A hash of the source code that prepares data, and draws splits: data prepared by other code are not reused."""
    return hashlib.sha256(f"{sources_digest(Path(__file__).parent)} {sha256_of(Path(rng.__file__))}".encode()).hexdigest()


code_version()  # now, because a process prepares data by the code that it has loaded, whatever the files have later


def _open(card: Card, folder: Path) -> Dataset:
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        n_items = manifest["shape"][1]
        matrices = {name: _mapped(folder, name, n_items) for name in LABELS}
        users = pq.ParquetFile(folder / "users.parquet").read()["user"].combine_chunks()
        items = pq.ParquetFile(folder / "items.parquet").read()["item"].combine_chunks()
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{folder}: damaged ({type(error).__name__}); delete the folder to prepare it again") from None
    return Dataset(
        card=card,
        split=assemble(matrices, card.split, users, items),
        users=users,
        items=items,
        fingerprint=manifest["fingerprint"],
        raw_counts=manifest["raw_counts"],
        counts=manifest["counts"],
        differences=_differences(card, manifest["raw_counts"], manifest["counts"]),
        sources=tuple(manifest["sources"]),
        time_span=tuple(manifest["time_span"]) if manifest["time_span"] else None,
    )


def _mapped(folder: Path, name: str, n_items: int) -> sp.csr_array:
    arrays = [np.load(folder / f"{name}.{half}.npy", mmap_mode="r", allow_pickle=False) for half in ("indptr", "indices")]
    return csr_from_parts(*arrays, n_items)


def _differences(card: Card, raw: dict[str, int], prepared: dict[str, int]) -> tuple[str, ...]:
    lines = []
    for stage, counts in (("raw", raw), ("prepared", prepared)):
        expected = getattr(card.expect, stage).model_dump(exclude_none=True)
        actual = dict(counts)
        # Published train counts include the interactions that are carved out for validation here.
        if "valid" not in expected and stage == "prepared":
            actual["train"] = counts["train"] + counts["valid"]
        lines += [
            f"{stage} {name}: {actual[name]:,}, published {number:,} ({actual[name] - number:+,})"
            for name, number in expected.items()
            if actual.get(name) != number
        ]
    return tuple(lines)
