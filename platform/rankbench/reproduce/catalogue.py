"""The tables of the papers, as experiment files state them, and how a user names them: talos, or talos/3.1."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from rankbench.core.environment import Environment
from rankbench.core.errors import ConfigError, require
from rankbench.core.registry import nearest
from rankbench.data.cards import Card
from rankbench.schema.datasets import card_of
from rankbench.schema.experiment import ExperimentSpec
from rankbench.schema.find import experiment_files
from rankbench.schema.reading import load_experiment
from rankbench.sweeps.selection import by_name

_PLAIN = str.maketrans({"²": "2", "×": "x"})


@dataclass(frozen=True)
class PaperTable:
    """A table of a paper: its experiment file with the published numbers, and the cards of the file's datasets."""

    spec: ExperimentSpec
    file: Path
    cards: dict[str, Card]

    @property
    def paper(self) -> str:
        """The name of the paper as a user writes it: talos, deql, dcl, rg2, rgx."""
        assert self.spec.published is not None
        return self.spec.published.paper.translate(_PLAIN).lower()

    @cached_property
    def name(self) -> str:
        """Paper and table, such as talos/3.1."""
        assert self.spec.published is not None
        return f"{self.paper}/{self.spec.published.table}"

    @cached_property
    def numbers(self) -> set[tuple[str, str, str]]:
        """Row, dataset and metric of each published number on the datasets of the file."""
        arms = [arm for arm in self.spec.arms if arm.variant_of is None]
        return {(arm.label, name, metric) for arm in arms for name in self.cards for metric in arm.published.get(name, ())}

    def card_key(self, dataset: str) -> str:
        """Return the key that the evidence names the data of a dataset by."""
        return self.cards[dataset].content_key()[:12]

    def on(self, device: str, gpus: float | None = None) -> PaperTable:
        """Return the table with fits on another device: cpu, or cuda with a share of a GPU for each fit, whose gradient steps
        one process makes then.
        """
        workers = 1 if device == "cuda" else self.spec.resources.workers
        resources = self.spec.resources.model_copy(update={"device": device, "gpus": gpus or 1.0, "workers": workers})
        return replace(self, spec=self.spec.model_copy(update={"resources": resources}))

    def stand_in(self, dataset: str) -> str | None:
        """Return why a dataset is not that of the paper, None if it is."""
        return self.cards[dataset].stand_in


def paper_tables(environment: Environment) -> tuple[PaperTable, ...]:
    """Return every table that an experiment file measures, in the order of the files. Figures, and tables that repeat the
    numbers of another table, are left out. Raises ConfigError for a file that cannot be read, or a number that two
    files state; stand-ins of a table, or a column of it, may have a file of their own.
    """
    tables: list[PaperTable] = []
    for path in experiment_files(environment):
        spec = load_experiment(path, {})
        if spec.published is None or spec.published.table is None or spec.published.repeats is not None:
            continue
        spec = by_name(spec, environment, str(path))
        cards = [card_of(entry, environment, f"{path}: datasets[{i}]") for i, entry in enumerate(spec.datasets)]
        table = PaperTable(spec, path, {card.name: card for card in cards})
        for other in tables:
            if other.name == table.name and (twice := other.numbers & table.numbers):
                row, dataset, metric = min(twice)
                raise ConfigError(f"{path}: {row}: {other.file} has {metric} of {table.name} on {dataset} already")
        tables.append(table)
    return tuple(tables)


def words_of(tables: Iterable[str]) -> list[str]:
    """Return the words that name papers and tables: talos, talos/3.1 and so on."""
    tables = list(dict.fromkeys(tables))
    return [*dict.fromkeys(table.split("/")[0] for table in tables), *tables]


def selected_names(words: Sequence[str], tables: Iterable[str]) -> set[str]:
    """Return the names of the tables that `words` name, such as talos or talos/3.1; all if there are no words.

    Raises ConfigError with the nearest name for a word that names neither a paper nor a table.
    """
    tables = list(tables)
    lower = {name.lower(): name for name in words_of(tables)}
    for word in words:
        near = nearest(word.lower(), lower)
        require(word.lower() in lower, f"{word}: no paper or table of that name{near}; known: {', '.join(lower.values())}")
    wanted = {lower[word.lower()] for word in words}
    return {table for table in tables if not words or table in wanted or table.split("/")[0] in wanted}
