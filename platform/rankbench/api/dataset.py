"""Prepare a dataset of the catalogue, of a file, or of data in memory."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any

from rankbench.core.environment import Environment
from rankbench.core.errors import ConfigError, DataError, require
from rankbench.core.plain import plain
from rankbench.core.public import public
from rankbench.data.cards import Card, load_card
from rankbench.data.own import card_of_data, card_of_path, is_data, refused
from rankbench.data.prepare import Dataset
from rankbench.data.prepare import prepare as prepare_card
from rankbench.data.raw import ARCHIVES
from rankbench.data.recognise import ALL_VALUES

log = logging.getLogger(__name__)

# Of the names of files, so that a file in the working folder can be told from a dataset.
SUFFIXES = (".csv", ".tsv", ".parquet", ".json", ".jsonl", ".inter", ".dat", ".data", ".txt", ".gz", *ARCHIVES)

USUAL = {"user": "user", "item": "item"}  # columns, unless others are given


@public
def dataset(
    data: Any,
    *,
    user: Hashable = "user",
    item: Hashable = "item",
    value: Hashable | None = None,
    time: Hashable | None = None,
    split: str | Mapping[str, Any] | None = None,
    prepare: Iterable[str | Mapping[str, Any]] | None = None,
    name: str | None = None,
    changes: Mapping[str, Any] | None = None,
    environment: Environment | None = None,
) -> Dataset:
    """Prepare and split a dataset, which `fit` and `sweep` take like the name of one.

    data
        The name of a dataset, the path of a card, or the path of a file, archive or folder that `rankbench data import` knows
        (CSV, JSON, Parquet, MovieLens, RecBole and others); or interactions in memory: a pandas, Arrow or Polars table with one
        interaction per row, a SciPy sparse matrix (n_users, n_items) whose ids are positions, or a mapping from "train",
        "valid" and "test" to one of these. Data in memory are stored in the cache.
    user, item, value, time
        The names of the columns. Ids are whole numbers or text; times are dates, timestamps or seconds since 1970. In files,
        usual names such as userId are found without being given; "none" as the value or time leaves it out.
    split
        The name of a split protocol, its parameters such as {"protocol": "temporal", "seed": 1}, or the name of the column
        that says "train", "valid" or "test" for each row. By default, interactions of each user are drawn at random.
    prepare
        Steps such as [{"min_value": 4}, {"duplicates": "first"}, {"k_core": 5}]. By default, the first of repeated pairs is
        kept: later, the user knows the item.
    name
        The name in tables and records. By default that of the card; for other data, "own-" and the start of a hash.
    changes
        Values of the card to replace, by dotted keys such as "split.seed"; only for the name of a dataset or a card.

    Raises ConfigError for an argument that does not fit, and DataError for data that cannot be used.
    """
    environment = environment or Environment.from_env()
    replaced: dict[str, Any] = plain(dict(changes or {}))
    split, prepare = plain(split), None if prepare is None else plain([*prepare])
    columns: dict[str, Any] = {"user": user, "item": item, "value": value, "time": time}
    if is_data(data) or is_raw_path(data):
        require(not replaced, "changes: only for the name of a dataset or a card; give split, prepare and the columns instead")
        about: dict[str, Any] = {"split": split, "prepare": prepare, "name": name}
        if is_data(data):
            card = card_of_data(data, environment, columns=columns, **about)
            _warn_of_values(card, card.read.value is not None)
            try:
                return prepare_card(card, environment)
            except (ConfigError, DataError) as error:
                raise refused(error, card, columns) from None
        # Files have many usual names of columns, which are looked for unless they are given.
        given = {name: None if column == USUAL.get(name) else column for name, column in columns.items()}
        card, read = card_of_path(Path(data), environment, columns=given, **about)
        _warn_of_values(card, "value" in read)
        if not card.read.header and not any(given.values()):
            log.warning("%s: no header: column 0 is the user, column 1 the item; user= and item= say otherwise", card.name)
        return prepare_card(card, environment)
    for argument, stated in (columns | {"split": split, "prepare": prepare}).items():
        require(
            stated == USUAL.get(argument), f"{argument}: the card of {data} says this; use changes={{'split.seed': 1}} instead"
        )
    replaced |= {} if name is None else {"name": name}
    return prepare_card(card_of(data, environment, replaced), environment)


def card_of(data: Any, environment: Environment, changes: dict[str, Any] | None = None) -> Card:
    """Return the card of a dataset in any of the forms that `dataset` takes, with the default columns and split."""
    if isinstance(data, Dataset):
        require(not changes, "changes: give them to rb.dataset")
        now = prepare_card(data.card, environment)
        require(now.fingerprint == data.fingerprint, f"{data.card.name}: the data have changed since rb.dataset; call it again")
        return data.card
    if is_data(data) or is_raw_path(data):
        return dataset(data, changes=changes, environment=environment).card
    kinds = "a pandas, Arrow or Polars table, a SciPy sparse matrix, or the name or path of a dataset"
    require(isinstance(data, str | Path), f"dataset: expected {kinds}, got {type(data).__name__}")
    return load_card(str(data), environment, changes)


def _warn_of_values(card: Card, read: bool) -> None:
    """Say that a rating of one star counts as a rating of five, unless a step of the card looks at the values."""
    looks = any(step.min_value is not None or step.duplicates == "max" for step in card.prepare)
    if read and not looks:
        log.warning("%s: %s", card.name, ALL_VALUES)


def is_raw_path(data: Any) -> bool:
    """Whether `data` is the path of interactions, and not the name of a dataset or the path of a card."""
    if not isinstance(data, str | Path) or Path(data).suffix in (".yaml", ".yml"):
        return False
    return isinstance(data, Path) or "/" in data or data.endswith(SUFFIXES)
