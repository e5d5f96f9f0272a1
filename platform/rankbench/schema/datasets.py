"""The entries of `datasets` in an experiment file, and the cards they refer to.

An entry is the name of a card, the path of a card file, or a mapping whose `name` is one of the two and whose other keys are
changes to the card. When the experiment is loaded, a path is replaced by the name of its card and kept as `file`, because
records, tables and the maps `published` and `chosen` refer to a dataset only by the name of its card.

In place of a name, an entry may select several cards: `all`, a pattern such as `movielens-*`, or either of them with `!` to
leave cards out. These are replaced by the names of the cards when a sweep is planned.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator

from rankbench.core.config import override, validate
from rankbench.core.environment import Environment
from rankbench.core.errors import ConfigError, require
from rankbench.core.names import ALL
from rankbench.core.patterns import WITHOUT, is_pattern, matches
from rankbench.data.cards import Card, is_card_path, load_card, read_card


def _with_a_name(entry: str | dict[str, Any]) -> str | dict[str, Any]:
    if isinstance(entry, dict) and not isinstance(entry.get("name"), str):
        raise ValueError("give the card's `name`, then what to change in it")
    if isinstance(entry, dict) and entry["name"].startswith(WITHOUT) and len(entry) > 1:
        raise ValueError(f"{entry['name']} leaves datasets out, so changes of a card have no effect; leave them out")
    return entry


Entry = Annotated[str | dict[str, Any], AfterValidator(_with_a_name)]


def with_card_names(entries: Sequence[Entry], folders: Sequence[Path], source: str) -> tuple[Entry, ...]:
    """Return `entries` with every path replaced by the name of its card. A relative path is looked up in `folders` in turn.

    Raises ConfigError if there is no card at a path, with the folders that were searched, and as `read_card` does.
    """
    return tuple(_with_card_name(entry, folders, f"{source}: datasets[{position}]") for position, entry in enumerate(entries))


def _with_card_name(entry: Entry, folders: Sequence[Path], source: str) -> Entry:
    content = {"name": entry} if isinstance(entry, str) else entry
    require("file" not in content, f"{source}: file: unknown key; give the path of a card as its `name`")
    given = content["name"]
    if "card" in content or not is_card_path(given):
        return entry
    paths = [folder / given for folder in folders]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        searched = " or ".join(dict.fromkeys(str(path.parent.resolve()) for path in paths))
        raise ConfigError(f"{source}: {given}: no such dataset card in {searched}")
    return content | {"name": read_card(path).name, "file": str(path.resolve())}


def without_patterns(entries: Sequence[Entry], names: Collection[str], source: str) -> tuple[Entry, ...]:
    """Return `entries` with every pattern replaced by entries for the cards that it selects from `names`.

    A card that has an entry of its own is not selected again. Raises ConfigError for a pattern without a match, and if none
    remains.
    """
    words = [_word(entry) for entry in entries]
    if not any(is_pattern(word) for word in words):
        return tuple(entries)
    source = f"{source}: datasets"
    left_out = {name for word in words if word.startswith(WITHOUT) for name in matches(word, names, source)}
    taken = left_out | {word for word in words if not is_pattern(word)}
    result: list[Entry] = []
    for entry in [entry for entry in entries if not _word(entry).startswith(WITHOUT)] or [ALL]:
        if not is_pattern(word := _word(entry)):
            result.append(entry)
            continue
        new = [name for name in matches(word, names, source) if name not in taken]
        result += [entry | {"name": name} if isinstance(entry, dict) else name for name in new]
        taken |= {*new}
    require(bool(result), f"{source}: {', '.join(words)} leaves nothing")
    return tuple(result)


def _word(entry: Entry) -> str:
    """The name or pattern of an entry; empty if it is given in full."""
    if isinstance(entry, str):
        return entry
    return "" if "card" in entry else str(entry["name"])


def card_of(entry: Entry, environment: Environment, source: str) -> Card:
    """Return the card of an entry. Raises ConfigError as `load_card` does, starting with `source`."""
    if isinstance(entry, str):
        return _loaded(entry, environment, {}, source)
    changes = flatten({key: value for key, value in entry.items() if key not in ("name", "file", "card")})
    if "card" in entry:  # given in full, without a file
        return validate(Card, override(entry["card"], changes), f"{source}.card")
    name: str = entry["name"]
    # A variant of a card, made in Python, may have a name of its own.
    changes |= {"name": name} if "file" in entry else {}
    return _loaded(str(entry.get("file", name)), environment, changes, source)


def with_split_seed(entry: Entry, seed: int) -> Entry:
    """Return the entry with another seed of its split."""
    given: dict[str, Any] = {"name": entry} if isinstance(entry, str) else entry
    return given | {"split": given.get("split", {}) | {"seed": seed}}


def _loaded(name: str, environment: Environment, changes: dict[str, Any], source: str) -> Card:
    try:
        return load_card(name, environment, changes)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None


def flatten(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values of nested mappings by their dotted paths."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        path = f"{prefix}{key}"
        flat |= flatten(value, f"{path}.") if isinstance(value, dict) else {path: value}
    return flat
