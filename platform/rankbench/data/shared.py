"""Prepared datasets in a store: a host that has prepared one stores it, and a host that lacks it copies it to its cache.

    prepared/<dataset>-<hash>/<letters>/        the files of the cache's folder of this name, and their checksums

Hosts that prepare the same data at the same time store them twice, since their files may differ in where the raw data were
from.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

from rankbench.core.environment import Environment
from rankbench.core.replica import CHECKSUMS, pull, push

PREPARED = "prepared"


def copy_prepared(folder: Path, environment: Environment) -> bool:
    """Copy the folder of this name from the store to the cache, if it is there. Returns whether it is.

    Raises DataError if a file differs from its checksum.
    """
    store = environment.data_store
    key = _stored(folder.name, environment)
    return store is not None and key is not None and pull(store, key, folder)


def store_prepared(folder: Path, environment: Environment) -> None:
    """Store a folder of the cache, unless it is stored already."""
    if environment.data_store and _stored(folder.name, environment) is None:
        push(folder, environment.data_store, f"{PREPARED}/{folder.name}/{secrets.token_hex(4)}")


def stored_manifests(dataset: str, environment: Environment) -> Iterator[tuple[str, bytes]]:
    """Name of each stored folder of a dataset, with its manifest as it is."""
    store = environment.data_store
    for name in store.names(PREPARED) if store else ():
        if store and name.startswith(f"{dataset}-") and (key := _stored(name, environment)):
            yield name, store.read(f"{key}/manifest.json") or b""


def _stored(name: str, environment: Environment) -> str | None:
    """The key of a complete stored copy of the folder `name`; None if there is none."""
    keys = environment.data_store.objects(f"{PREPARED}/{name}") if environment.data_store else []
    return next((key.removesuffix(f"/{CHECKSUMS}") for key in keys if key.endswith(f"/{CHECKSUMS}")), None)
