"""From a card to a Dataset: read, apply the card's steps, split, and store in a content-addressed cache."""

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
import pyarrow.compute as pc
import pyarrow.parquet as pq
import scipy.sparse as sp
from filelock import FileLock

from rankbench.core import rng
from rankbench.core.data_notes import data_notes
from rankbench.core.display import as_html, as_text
from rankbench.core.environment import Environment
from rankbench.core.errors import DataError, DownloadError
from rankbench.core.files import atomic_folder, make_folder, sweep_scratch, write_json
from rankbench.core.plugins import guarded, loaded
from rankbench.data.blocks import csr_from_parts
from rankbench.data.cards import Card, Step, load_card
from rankbench.data.fetch import fetch
from rankbench.data.interactions import NO_TIME, PARTS, Encoder, Interactions, alike_ids
from rankbench.data.protocols.spec import SplitSpec, protocols
from rankbench.data.raw import RawFile
from rankbench.data.readers import READERS, reader
from rankbench.data.readers.parquet import MIRROR
from rankbench.data.shared import copy_prepared, store_prepared, stored_manifests
from rankbench.data.splits import LABELS, Split, assemble, split
from rankbench.data.synthetic import generate

log = logging.getLogger(__name__)

Progress = Callable[[str, int, int | None], None]

_LAST = np.iinfo(np.int64).max  # a time after all others
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
            name = None if verify else _prepared_here(card, environment) or stored_before(card, environment)
            folder = environment.data / "prepared" / (name or "")
            if name and _is_here(folder, environment):
                log.info("%s; using the data prepared earlier", error)
                return replace(_open(card, folder), raw_gone=RAW_GONE)
            raw = fetch(card, environment, lambda done, total: progress("download", done, total), verify)
    content = json.dumps([card.content_key(), [_key(file) for file in raw], code_version(), *_plugins_of(card)])
    folder = environment.data / "prepared" / f"{card.name}-{hashlib.sha256(content.encode()).hexdigest()[:16]}"
    _is_here(folder, environment, lambda scratch: _build(card, raw, scratch, progress))
    return _open(card, folder)


def _is_here(folder: Path, environment: Environment, build: Callable[[Path], None] | None = None) -> bool:
    """Whether the folder is in the cache, perhaps now: it is copied from the store of data, or else built and stored."""
    if folder.is_dir():
        return True
    make_folder(folder.parent)
    # One process prepares while others wait; a killed process releases the lock.
    with FileLock(folder.parent / f".{folder.name}.lock"):
        sweep_scratch(folder)
        if not folder.is_dir() and not copy_prepared(folder, environment) and build is not None:
            with atomic_folder(folder) as scratch:
                build(scratch)
            store_prepared(folder, environment)
        return folder.is_dir()


def prepared_before(card: Card, environment: Environment) -> Path | None:
    """The folder that this code version prepared from the card's source, whether or not the raw files still exist. None if
    there is none, or if there are several with different data, because the raw files changed in between.
    """
    name = _prepared_here(card, environment)
    return environment.data / "prepared" / name if name else None


def _prepared_here(card: Card, environment: Environment) -> str | None:
    def manifests() -> Iterator[tuple[str, bytes]]:
        for path in sorted((environment.data / "prepared").glob(f"{card.name}-*/manifest.json")):
            with suppress(OSError):  # it may be removed at this moment
                yield path.parent.name, path.read_bytes()

    return _only(card, manifests())


def stored_before(card: Card, environment: Environment) -> str | None:
    """The name of the folder in the store of data, as `prepared_before`."""
    return _only(card, stored_manifests(card.name, environment))


def prepared_already(card: Card, environment: Environment) -> Dataset | None:
    """The dataset, if it is prepared on this machine; None if it is not. Nothing is written, and the network is not used."""
    folder = prepared_before(card, environment)
    return None if folder is None else _open(card, folder)


def _only(card: Card, manifests: Iterable[tuple[str, bytes]]) -> str | None:
    """Of folders with their manifests, the one that this code version prepared from the card's source."""
    known = card.name, code_version(), _plugins_of(card), _source_key(card)
    folders = {}
    for name, content in manifests:
        try:
            manifest = json.loads(content)
            about = manifest["dataset"], manifest["code"], manifest.get("plugins", []), manifest["source"]
            if about == known:
                folders[manifest["fingerprint"]] = name
        except (ValueError, KeyError, TypeError, AttributeError):
            continue  # damaged, or of an earlier version
    return next(iter(folders.values())) if len(folders) == 1 else None


def _plugins_of(card: Card) -> list[str]:
    """The hashes of the plugins that read or split the card's data."""
    reader(card.read.format)  # registers it
    origins = {READERS.origin(card.read.format), protocols().origin(card.split.protocol)}
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


def _build(card: Card, raw: list[RawFile], folder: Path, progress: Progress) -> None:
    data, n_raw, n_missing = _read(card, raw, progress)
    raw_counts = {"users": len(data.users), "items": len(data.items), "interactions": n_raw}
    n_alike = _warn_of_alike_ids(data, card.name)
    for number, step in enumerate(card.prepare):
        data = apply(step, data, f"{card.name}: prepare.{number}")
    data = data.compact().sorted()
    try:
        parts, data = split(data, card.split)
    except DataError as error:
        raise DataError(f"{card.name}: {error}") from None
    matrices = {name: getattr(parts, name) for name in LABELS}
    for name, matrix in matrices.items():
        np.save(folder / f"{name}.indptr.npy", matrix.indptr.astype(np.int32))
        np.save(folder / f"{name}.indices.npy", matrix.indices.astype(np.int32))
    pq.write_table(pa.table({"user": data.users}), folder / "users.parquet")
    pq.write_table(pa.table({"item": data.items}), folder / "items.parquet")
    sources = [{"part": f.part, "file": f.path.name, "origin": f.origin, "sha256": f.sha256} for f in raw]
    manifest = {
        "dataset": card.name,
        "code": code_version(),
        "plugins": _plugins_of(card),
        "source": _source_key(card),
        "shape": list(parts.train.shape),
        "fingerprint": _fingerprint(matrices, parts, card.split),
        "raw_counts": raw_counts,
        "counts": _counts(parts)
        | card.split.counts(data)
        | ({"dropped_missing": n_missing} if card.drops_missing else {})
        | n_alike,
        "time_span": _time_span(data),
        "sources": sources,
    }
    write_json(folder / "manifest.json", manifest)


def _read(card: Card, raw: list[RawFile], progress: Progress) -> tuple[Interactions, int, int]:
    """All interactions, the number of rows in the files, and how many of them `drop_missing` dropped. That step, and
    `min_value` after it or as the first one, are applied while reading, so that the dropped rows need no memory. A row that
    lacks only its time is dropped if the split needs it.
    """
    steps = card.prepare[1:] if card.drops_missing else card.prepare
    encoder, n_missing = Encoder(card.name, steps[0].min_value if steps else None), 0
    if card.source.generator:
        encoder.add(generate(card.source.generator), PARTS.index("all"))
    for file in raw:
        before, missing_before = encoder.n_raw, n_missing
        for table in reader(file.spec.format)(replace(file, keep_missing=card.drops_missing)):
            if card.drops_missing:
                n_rows = len(table)
                table = _named(table, card) if file.spec is MIRROR else table
                for name in table.column_names:
                    if table[name].null_count and (name != "time" or card.split.by_time):
                        table = table.filter(pc.is_valid(table[name]))
                n_missing += n_rows - len(table)
            if len(table):
                encoder.add(table, PARTS.index(file.part))
                progress("read", encoder.n_raw, None)
        if encoder.n_raw == before:
            n_rows = n_missing - missing_before
            reason = f": drop_missing drops all of its {n_rows:,} rows; are the columns in `read` the right ones?"
            raise DataError(f"{file.path}: no interactions{reason if n_rows else ''}")
    return encoder.finish(), encoder.n_raw + n_missing, n_missing


def _warn_of_alike_ids(data: Interactions, source: str) -> dict[str, int]:
    """Warn of ids that may be meant as one but are read as two. Returns their numbers, as counts of the dataset."""
    counts = {}
    for name, ids in (("user", data.users), ("item", data.items)):
        n, example = alike_ids(ids)
        if n:
            counts[f"alike_{name}_ids"] = n
            log.warning(
                "%s: %s", source, f"{n:,} {name} ids equal another one but for blanks or Unicode form, such as {example}"
            )
    return counts


def _named(table: pa.Table, card: Card) -> pa.Table:
    """The columns of a mirror's file that the card names: gaps in the others are no reason to drop a row."""
    named = [name for name in ("value", "time") if name in table.column_names and getattr(card.read, name) is not None]
    return table.select(["user", "item", *named])


def _time_span(data: Interactions) -> list[int] | None:
    """First and last known time in seconds since 1970; None if no interaction has one."""
    known = data.time[data.time != NO_TIME] if data.time is not None else []
    return [int(known.min()) // data.per_second, int(known.max()) // data.per_second] if len(known) else None


def apply(step: Step, data: Interactions, source: str = "prepare") -> Interactions:
    """Apply one preparation step. Raises DataError if a column that it needs is missing, or if no interaction is left."""
    (name,) = step.model_fields_set
    if name == "drop_missing":
        return data  # applied while the files were read: what has no id has no code
    amount = getattr(step, name)
    if name in ("min_value", "duplicates") and data.value is None and amount not in ("first", "last"):
        raise DataError(f"{source}: {name} needs a value column; name it in the card's read.value")
    if name == "timed" and data.time is None:
        raise DataError(f"{source}: timed needs a time column; name it in the card's read.time")
    if name == "timed":
        data = data.keep(data.time != NO_TIME)
    elif name == "min_value":
        data = data.keep(data.value >= amount)
    elif name == "duplicates":
        data = _deduplicate(data, amount)
    else:
        per_user = 1 if name == "min_users_per_item" else amount
        per_item = 1 if name == "min_items_per_user" else amount
        data = data.keep(_core(data, per_user, per_item, repeat=name == "k_core"))
    if len(data) == 0:
        raise DataError(f"{source}: {name}: {amount} leaves no interaction")
    return data


def _deduplicate(data: Interactions, keep: str) -> Interactions:
    """Keep one interaction per pair: the first or last in time (without times, in the file), or that with the largest value.

    Of equal times, the largest value is kept, and of equal values the first, so that the order of rows does not matter.
    """
    row = np.arange(len(data))
    time = row if data.time is None else data.time
    if keep != "last" and data.time is not None:
        time = np.where(time == NO_TIME, _LAST, time)  # of a pair, the first one whose time is known
    tie = row if data.value is None else -data.value if keep == "first" else data.value
    keys = (-time, data.value) if keep == "max" else (tie, time)
    order = np.lexsort((row, *keys, data.item, data.user))
    user, item = data.user[order], data.item[order]
    starts = np.r_[True, (user[1:] != user[:-1]) | (item[1:] != item[:-1])]
    chosen = starts if keep == "first" else np.r_[starts[1:], True]
    if data.time is not None and not starts.all():
        data = replace(data, span=_spans(data.time, order, starts))
    return data.keep(np.sort(order[chosen]))


def _spans(time: np.ndarray, order: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """The first and the last known time of each interaction's pair; `starts`: where a pair begins in `order`."""
    begins, pair = np.flatnonzero(starts), np.cumsum(starts) - 1
    ordered = time[order]
    first = np.minimum.reduceat(np.where(ordered == NO_TIME, _LAST, ordered), begins)
    first[first == _LAST] = NO_TIME
    span = np.empty((len(time), 2), np.int64)
    span[order] = np.stack([first, np.maximum.reduceat(ordered, begins)], axis=1)[pair]
    return span


def _core(data: Interactions, per_user: int, per_item: int, repeat: bool) -> np.ndarray:
    """A mask of the interactions whose user and item have enough of them; repeated until nothing changes for a k-core."""
    mask = np.ones(len(data), bool)
    while True:
        users = np.bincount(data.user[mask], minlength=len(data.users))
        items = np.bincount(data.item[mask], minlength=len(data.items))
        kept = mask & (users[data.user] >= per_user) & (items[data.item] >= per_item)
        if not repeat or kept.sum() == mask.sum():
            return kept
        mask = kept


def _counts(parts: Split) -> dict[str, int]:
    """Counts of the split, including cold items and users without targets."""
    train, valid, test = parts.train, parts.valid_target, parts.test_target
    history = parts.valid_history.nnz + parts.test_history.nnz
    known = parts.fit_matrix(parts.final_fit)
    fitted = np.bincount(known.indices, minlength=parts.n_items) > 0
    in_test = np.bincount(test.indices, minlength=parts.n_items) > 0
    holdout = parts.holdout("test", parts.final_fit)
    test_sizes = np.diff(holdout.target.indptr)
    return {
        "users": parts.n_users,
        "items": parts.n_items,
        "interactions": train.nnz + valid.nnz + test.nnz + history,
        "train": train.nnz,
        "valid": valid.nnz,
        "test": test.nnz,
        **({"fold_in": history} if history else {}),
        "users_with_test_items": int((test_sizes > 0).sum()),
        "users_without_test_items": int((test_sizes == 0).sum()),
        **({"cold_test_users": int(holdout.cold.sum())} if holdout.cold.any() else {}),
        "users_without_train_items": int((np.diff(known.indptr) == 0).sum()),
        "cold_items": int((~fitted).sum()),
        "cold_test_items": int((in_test & ~fitted).sum()),
        "cold_test_interactions": int((~fitted[test.indices]).sum()),
    }


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


def _fingerprint(matrices: dict[str, sp.csr_array], parts: Split, spec: SplitSpec) -> str:
    """A hash of the matrices, and of the candidates where they are not those that the protocol has by default. Where users have
    no history, it also depends on how they are measured.
    """
    digest = hashlib.sha256(b"rank_valid" if spec.rank_valid else b"")
    if parts.has_cold_users:
        digest.update(f"cold_users {spec.cold_users}".encode())
    if getattr(spec, "self_candidate", False):
        digest.update(b"self_candidate")
    for name, matrix in matrices.items():
        if name.endswith("_history") and not matrix.nnz:
            continue  # without held-out users, a split consists of its three parts
        digest.update(f"{name} {matrix.shape}".encode())
        digest.update(np.ascontiguousarray(matrix.indptr, "<i8"))
        digest.update(np.ascontiguousarray(matrix.indices, "<i4"))
    return digest.hexdigest()[:16]


@cache
def code_version() -> str:
    """A hash of the source code that prepares data, and draws splits: data prepared by other code are not reused."""
    digest = hashlib.sha256()
    for path in (*sorted(Path(__file__).parent.rglob("*.py")), Path(rng.__file__)):
        digest.update(path.read_bytes())
    return digest.hexdigest()
