"""Selections of names: a name, a pattern such as `movielens-*`, `all`, a family, or one of these with `!` to leave it out."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Collection, Mapping, Sequence

from rankbench.core.errors import ConfigError
from rankbench.core.names import ALL
from rankbench.core.registry import nearest

FAMILY, WITHOUT = "family:", "!"
Families = Mapping[str, Collection[str]]  # family → its members
NO_FAMILIES: Families = {}


def is_pattern(word: str) -> bool:
    """Whether `word` selects names instead of being one."""
    return word == ALL or word.startswith((FAMILY, WITHOUT)) or any(letter in word for letter in "*?[")


def matches(word: str, names: Collection[str], source: str, families: Families = NO_FAMILIES) -> list[str]:
    """Return the names that `word` selects, in the order of `names`; a leading `!` is ignored.

    Raises ConfigError, which begins with `source`, if nothing is selected.
    """
    word = word.removeprefix(WITHOUT)
    if word == ALL:
        return [*names]
    if word.startswith(FAMILY):
        family = word.removeprefix(FAMILY)
        if family not in families:
            hint = nearest(family, families) or (f"; known: {', '.join(sorted(families))}" if families else "")
            raise ConfigError(f"{source}: unknown family {family!r}{hint}")
        return [name for name in names if name in families[family]]
    if not is_pattern(word):
        if word not in names:
            raise ConfigError(f"{source}: unknown name {word!r}{nearest(word, names)}")
        return [word]
    selected = [name for name in names if fnmatch.fnmatchcase(name, word)]
    if not selected:
        raise ConfigError(f"{source}: {word!r} matches nothing{_near(word, names)}")
    return selected


def selected(words: Sequence[str], names: Collection[str], source: str, families: Families = NO_FAMILIES) -> list[str]:
    """Return the names that any of `words` selects and no word with `!` leaves out. If all words have `!`, they begin with all.

    Raises ConfigError as `matches` does, and if no name remains.
    """
    left_out = {name for word in words if word.startswith(WITHOUT) for name in matches(word, names, source, families)}
    chosen = [word for word in words if not word.startswith(WITHOUT)] or [ALL]
    found = dict.fromkeys(name for word in chosen for name in matches(word, names, source, families))
    remaining = [name for name in found if name not in left_out]
    if not remaining:
        raise ConfigError(f"{source}: {', '.join(words)} leaves nothing")
    return remaining


def _near(word: str, names: Collection[str]) -> str:
    """Return `; did you mean X, Y?` for the names that are most like a pattern which matches none, or an empty string."""
    plain = "".join(letter for letter in word.lower() if letter not in "*?[]!").strip("-_.")

    def likeness(name: str) -> float:
        # A pattern leaves out a part of the name, so it is compared with its start or end of the same length.
        part = name[-len(plain) :] if word.startswith("*") else name[: len(plain)]
        return max(difflib.SequenceMatcher(None, plain, each).ratio() for each in (name, part))

    near = sorted((name for name in names if likeness(name) >= 0.6), key=likeness, reverse=True)
    return f"; did you mean {', '.join(near[:3])}?" if near else ""
