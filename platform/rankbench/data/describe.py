"""What is known of a dataset: where its raw data are, and statistics of the prepared ones, such as density and time span."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from rankbench.core.environment import Environment
from rankbench.core.errors import DownloadError
from rankbench.data.cards import Card
from rankbench.data.fetch import cached_file
from rankbench.data.prepare import Dataset, prepare, prepared_already, prepared_before, stored_before

FIRST_YEAR = 1980  # of a time that is a date and no position or number of minutes
MISSING = ("mirror only", "offline", "no such file", "no such folder")  # of what `raw_data` says


def raw_data(card: Card, environment: Environment) -> str:
    """Return in a few words where the raw data are: built in, mirror, local file, cached, prepared only, download, or why they
    cannot be had: no such file or folder, offline, mirror only.
    """
    if card.source.generator:
        return "built in"
    if card.source.folder is not None:
        if card.local(card.source.folder).is_dir():
            return "local folder"
        return "prepared only" if _prepared(card, environment) else "no such folder"
    remotes = card.source.parts().values()
    local = any(remote.file for remote in remotes)
    if environment.mirror and not local and any((environment.mirror / card.mirror_folder).glob("*")):
        return "mirror"
    paths = [card.local(each.file) if each.file else cached_file(card, each, environment) for each in remotes]
    if paths and all(path.is_file() for path in paths):
        return "local file" if local else "cached"
    if _prepared(card, environment):
        return "prepared only"
    if card.source.mirror.parts:
        return "mirror only"
    return "no such file" if local else "offline" if environment.offline else "download"


def at_hand(card: Card, environment: Environment, only_look: bool = False) -> tuple[Dataset | None, str]:
    """Prepare the dataset of a card, and return it, or None and in a few words why its data cannot be had.

    With `only_look` nothing is downloaded, prepared or written: there may be no dataset and no reason against it, as far as is
    known without the network.
    """
    try:
        dataset = prepared_already(card, environment) if only_look else prepare(card, environment)
    except DownloadError as error:
        return None, error.brief
    found = "" if dataset else raw_data(card, replace(environment, data_store=None))
    return dataset, found if found in MISSING else ""


def _prepared(card: Card, environment: Environment) -> bool:
    return prepared_before(card, environment) is not None or stored_before(card, environment) is not None


def sizes(card: Card, environment: Environment) -> dict[str, Any]:
    """Numbers of users, items and interactions, each None if it is not known, and what they count: prepared data on this
    machine, the published counts of prepared data, or those of the raw or generated data, which are never fewer.
    """
    names, of = ("users", "items", "interactions"), "prepared"
    counts: dict[str, int | None]
    if folder := prepared_before(card, environment):
        counts = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["counts"]
    elif generator := card.source.generator:
        counts, of = {"users": generator.users, "items": generator.items, "interactions": None}, "raw"
    elif (published := card.expect.prepared).users is not None:
        counts, of = published.model_dump(), "published"
    else:
        counts, of = card.expect.raw.model_dump(), "raw"
    return {name: counts[name] for name in names} | {"counted": of if counts["users"] is not None else None}


def curves(dataset: Dataset) -> dict[str, np.ndarray]:
    """The number of interactions of each user and of each item over all parts, in descending order."""
    split = dataset.split
    users, items = np.zeros(split.n_users, np.int64), np.zeros(split.n_items, np.int64)
    for matrix in split.matrices.values():
        users += np.diff(matrix.indptr)
        items += np.bincount(matrix.indices, minlength=split.n_items)
    return {"user": np.sort(users)[::-1], "item": np.sort(items)[::-1]}


def facts_of(dataset: Dataset) -> dict[str, Any]:
    """The statistics of the dataset as JSON values."""
    counts, by_kind = dataset.counts, curves(dataset)
    card = dataset.card
    span = dataset.time_span
    top = max(1, counts["items"] // 10)
    return {
        "name": dataset.name,
        "title": card.title,
        "stand_in": card.stand_in,
        "fingerprint": dataset.fingerprint,
        "protocol": card.split.protocol,
        "split": card.split.model_dump(exclude={"protocol"}),
        "recall": card.recall,
        "raw_counts": dataset.raw_counts,
        "counts": counts,
        "differences": list(dataset.differences),
        "density": counts["interactions"] / (counts["users"] * counts["items"]),
        "interactions_a_user": _spread(by_kind["user"]),
        "interactions_an_item": _spread(by_kind["item"]),
        "share_of_top_tenth": float(by_kind["item"][:top].sum() / by_kind["item"].sum()),
        "time_span": [_moment(second) for second in span] if span else None,
        "sources": list(dataset.sources),
        "raw_gone": dataset.raw_gone,
    }


def _moment(second: int) -> str:
    """Seconds since 1970 as a date; the number itself if it is none, as for positions and milliseconds."""
    try:
        moment = datetime.fromtimestamp(second, UTC)
    except (ValueError, OverflowError, OSError):
        return str(second)
    return moment.isoformat() if moment.year >= FIRST_YEAR else str(second)


def _spread(counts: np.ndarray) -> dict[str, float]:
    return {
        "min": int(counts.min()),
        "median": float(np.median(counts)),
        "mean": round(float(counts.mean()), 1),
        "max": int(counts.max()),
    }
