"""Build the folder of a prepared dataset: read the raw files, apply the card's steps, split, and write."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rankbench.core.errors import DataError
from rankbench.core.files import write_json
from rankbench.core.progress import Progress
from rankbench.data.cards import Card
from rankbench.data.interactions import NO_TIME, PARTS, Encoder, Interactions, alike_ids
from rankbench.data.protocols.spec import SplitSpec
from rankbench.data.raw import RawFile
from rankbench.data.readers import reader
from rankbench.data.readers.parquet import MIRROR
from rankbench.data.splits import Split, split
from rankbench.data.steps import apply
from rankbench.data.synthetic import generate

log = logging.getLogger(__name__)


def build(card: Card, raw: list[RawFile], folder: Path, made_by: dict[str, Any], progress: Progress) -> None:
    """Read, prepare and split the card's data, and write them into `folder`; `made_by` begins the manifest."""
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
    for name, matrix in parts.matrices.items():
        np.save(folder / f"{name}.indptr.npy", matrix.indptr.astype(np.int32))
        np.save(folder / f"{name}.indices.npy", matrix.indices.astype(np.int32))
    pq.write_table(pa.table({"user": data.users}), folder / "users.parquet")
    pq.write_table(pa.table({"item": data.items}), folder / "items.parquet")
    manifest = made_by | {
        "shape": list(parts.train.shape),
        "fingerprint": _fingerprint(parts, card.split),
        "raw_counts": raw_counts,
        "counts": _counts(parts, card.final_fit)
        | card.split.counts(data)
        | ({"dropped_missing": n_missing} if card.drops_missing else {})
        | n_alike,
        "time_span": _time_span(data),
        "sources": [{"part": f.part, "file": f.path.name, "origin": f.origin, "sha256": f.sha256} for f in raw],
    }
    write_json(folder / "manifest.json", manifest)


def _read(card: Card, raw: list[RawFile], progress: Progress) -> tuple[Interactions, int, int]:
    """All interactions, the number of rows in the files, and how many of them `drop_missing` dropped. That step, and
    `min_value` after it or as the first one, are applied while reading, so that the dropped rows need no memory.
    """
    steps = card.prepare[1:] if card.drops_missing else card.prepare
    encoder, n_missing = Encoder(card.name, steps[0].min_value if steps else None), 0
    if card.source.generator:
        encoder.add(generate(card.source.generator), PARTS.index("all"))
    for file in raw:
        before, missing_before = encoder.n_raw, n_missing
        for table in reader(file.spec.format)(replace(file, keep_missing=card.drops_missing)):
            kept = _without_missing(table, card, file.spec is MIRROR) if card.drops_missing else table
            n_missing += len(table) - len(kept)
            if len(kept):
                encoder.add(kept, PARTS.index(file.part))
                progress("read", encoder.n_raw, None)
        if encoder.n_raw == before:
            n_rows = n_missing - missing_before
            reason = f": drop_missing drops all of its {n_rows:,} rows; are the columns in `read` the right ones?"
            raise DataError(f"{file.path}: no interactions{reason if n_rows else ''}")
    return encoder.finish(), encoder.n_raw + n_missing, n_missing


def _without_missing(table: pa.Table, card: Card, is_mirrored: bool) -> pa.Table:
    """The rows that lack nothing. No reason to drop a row is a gap in a time that the split does not need, or in a column that
    only the mirror has, and the card does not name.
    """
    if is_mirrored:
        named = [name for name in ("value", "time") if name in table.column_names and getattr(card.read, name) is not None]
        table = table.select(["user", "item", *named])
    for name in table.column_names:
        if table[name].null_count and (name != "time" or card.split.by_time):
            table = table.filter(pc.is_valid(table[name]))
    return table


def _warn_of_alike_ids(data: Interactions, source: str) -> dict[str, int]:
    """Warn of ids that may be meant as one but are read as two. Returns their numbers, as counts of the dataset."""
    counts = {}
    for name, ids in (("user", data.users), ("item", data.items)):
        n, example = alike_ids(ids)
        if n:
            counts[f"alike_{name}_ids"] = n
            log.warning(
                "%s: %s",
                source,
                f"{n:,} {name} ids equal another one but for blanks, zeros of a number or Unicode form, such as {example}",
            )
    return counts


def _counts(parts: Split, final_fit: str) -> dict[str, int]:
    """Counts of the split, including items and users that are cold for a model that is fitted on `final_fit`."""
    train, valid, test = parts.train, parts.valid_target, parts.test_target
    history = parts.valid_history.nnz + parts.test_history.nnz
    known = parts.fit_matrix(final_fit)
    fitted = np.bincount(known.indices, minlength=parts.n_items) > 0
    in_test = np.bincount(test.indices, minlength=parts.n_items) > 0
    holdout = parts.holdout("test", final_fit)
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


def _time_span(data: Interactions) -> list[int] | None:
    """First and last known time in seconds since 1970; None if no interaction has one."""
    known = data.time[data.time != NO_TIME] if data.time is not None else []
    return [int(known.min()) // data.per_second, int(known.max()) // data.per_second] if len(known) else None


def _fingerprint(parts: Split, spec: SplitSpec) -> str:
    """A hash of the matrices, and of the candidates where they are not those that the protocol has by default. Where users have
    no history, it also depends on how they are measured.
    """
    digest = hashlib.sha256(b"rank_valid" if spec.rank_valid else b"")
    if parts.has_cold_users:
        digest.update(f"cold_users {spec.cold_users}".encode())
    if getattr(spec, "self_candidate", False):
        digest.update(b"self_candidate")
    for name, matrix in parts.matrices.items():
        if name.endswith("_history") and not matrix.nnz:
            continue  # without held-out users, a split consists of its three parts
        digest.update(f"{name} {matrix.shape}".encode())
        digest.update(np.ascontiguousarray(matrix.indptr, "<i8"))
        digest.update(np.ascontiguousarray(matrix.indices, "<i4"))
    return digest.hexdigest()[:16]
