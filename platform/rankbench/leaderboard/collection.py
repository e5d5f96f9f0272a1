"""The collection: the datasets of a leaderboard, chosen by a rule and not by results, and how much each of them counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from rankbench.core.config import Strict, read_yaml, validate
from rankbench.core.environment import Environment
from rankbench.core.errors import require
from rankbench.core.names import Name
from rankbench.core.patterns import WITHOUT, selected
from rankbench.core.registry import nearest
from rankbench.data.cards import card_names

FILE = "leaderboard/datasets.yaml"  # beside the experiment files; its head has the rule
Words = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9 -]{0,39}$")]


class Member(Strict):
    """A dataset of the collection. Those that have one `source` are near-duplicates and count once together."""

    domain: Words
    split: Literal["random", "temporal", "leave-last", "held-out users", "graph", "popularity shift"]
    source: Words


class Collection(Strict):
    datasets: dict[Name, Member] = Field(min_length=1)


def collection(environment: Environment) -> Collection:
    """Read the user's own collection, or that of this program.

    Raises ConfigError naming file and dataset for a key, a value or a dataset that is not known.
    """
    return _collections(environment)[0]


def every_member(environment: Environment) -> dict[str, Member]:
    """Return the datasets of both collections, of which the user's own counts first."""
    return {name: member for each in reversed(_collections(environment)) for name, member in each.datasets.items()}


def sources(environment: Environment) -> dict[str, str]:
    """Return the source of each dataset of both collections: those of one source count once together in means over datasets."""
    return {name: member.source for name, member in every_member(environment).items()}


def _collections(environment: Environment) -> list[Collection]:
    cards, found = card_names(environment), []
    for folder in environment.catalogues("experiments"):
        if (path := folder / FILE).is_file():
            found.append(validate(Collection, read_yaml(path), str(path)))
            for name in found[-1].datasets:
                require(name in cards, f"{path}: datasets.{name}: no such dataset{nearest(name, cards)} (rankbench data list)")
    require(bool(found), f"experiments/{FILE}: no such file; name datasets by --datasets")
    return found


def own_source(dataset: str) -> str:
    """Return the source of a dataset that is not in the collection. No stated source is called so, as Words has no colon."""
    return f"own: {dataset}"


def chosen_datasets(words: Sequence[str], environment: Environment) -> list[str]:
    """Return the names that the words of `--datasets` select from all datasets, or from the collection if they only leave out.

    Raises ConfigError for a word that selects nothing.
    """
    named = any(not word.startswith(WITHOUT) for word in words)
    return selected(words, [*(card_names(environment) if named else collection(environment).datasets)], "--datasets")
