"""What the tables want measured: each row at its printed optimum, at the setting that a search on validation chooses, and at
the one that reproduces the published number. Rows of several tables with equal settings are one fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from rankbench.core.errors import ConfigError
from rankbench.data.cards import Card
from rankbench.evaluation.metrics import DEFAULT_CUTOFFS, DEFAULT_METRICS, MetricSet, metric_set
from rankbench.experiment.job import MethodConfig, configure
from rankbench.reports.deviations import stated_protocol
from rankbench.reproduce.catalogue import PaperTable
from rankbench.reproduce.evidence import Evidence
from rankbench.reproduce.ledger_records import Part, StoredFit, StoredSearch
from rankbench.schema.experiment import ArmSpec, ExperimentSpec
from rankbench.sweeps.units import can_score, part_of_final

Origin = Literal["printed", "chosen", "as published"]
ORIGINS: tuple[Origin, ...] = ("printed", "chosen", "as published")
MEANING = {
    "printed": "the paper, or the log of the published run, prints the values that it searched; other differences stand below",
    "printed in part": "the paper prints some of the values that it searched; the others are the experiment file's",
    "chosen": "a search chose this setting on the validation set, or the row says how it was found",
    "as published": "this setting was found on test, as the paper's may have been",
}
SEEDS = 3  # runs of a chosen setting


@dataclass(frozen=True)
class PaperRow:
    """A row of a table on one dataset. Its cells are `arm.published[dataset]`."""

    table: PaperTable
    arm: ArmSpec
    card: Card

    @property
    def dataset(self) -> str:
        return self.card.name

    @property
    def published(self) -> dict[str, float]:
        return self.arm.published.get(self.dataset, {})

    @property
    def protocol(self) -> dict[str, Any]:
        """The parameters with which the paper trains the row, as far as it says so."""
        return stated_protocol(self.table.spec, self.arm)

    @property
    def costs(self) -> dict[str, float]:
        """Published time and memory of a fit."""
        return {**self.arm.costs.get(self.dataset, {})}

    @property
    def stand_in(self) -> str | None:
        """Why the dataset is not that of the paper, None if it is. Then the published numbers are those of other data."""
        return self.table.stand_in(self.dataset)

    def others(self, metric: str, files: Iterable[PaperTable]) -> list[float]:
        """Return the published numbers of the other rows of the table, whose `files` these are, variants of rows left out."""
        arms = [arm for table in files for arm in table.spec.arms if arm.label != self.arm.label and not arm.variant_of]
        return [own[metric] for arm in arms if metric in (own := arm.published.get(self.dataset, {}))]

    @property
    def source(self) -> str:
        return f"{self.table.file}: {self.arm.label}"

    def setting(self, origin: Origin, evidence: Evidence) -> MethodConfig | None:
        """Return the setting of an origin; None if the file has none, or the search has not been made."""
        values = self._values(origin, evidence)
        if values is None:
            return None
        config = configure(self.arm.method, values, f"{self.source}: {origin}", self.arm.label)
        return config if can_score(config, self.card) else None

    def _values(self, origin: Origin, evidence: Evidence) -> dict[str, Any] | None:
        fixed = {name: value for name, value in self.arm.params.items() if not isinstance(value, dict)}
        stated = {"printed": self.arm.printed, "chosen": self.arm.chosen, "as published": self.arm.as_published}[origin]
        if origin == "printed" and (self.dataset in stated or not self.arm.searched):
            unprinted = self.table.spec.unprinted | self.arm.unprinted
            lacking = {name: value for name, value in unprinted.items() if name in self.arm.searched}
            values = fixed | lacking | stated.get(self.dataset, {})
            if missing := [name for name in self.arm.searched if name not in values]:
                raise ConfigError(
                    f"{self.source}: printed.{self.dataset}: no {', '.join(missing)}; state it here or in unprinted"
                )
            return values
        if self.dataset in stated:
            return fixed | stated[self.dataset]
        if origin == "printed":
            return None
        search = self.search(evidence, "valid" if origin == "chosen" else "test")
        return fixed | search.chosen if search else None

    @property
    def lacking(self) -> list[str]:
        """The searched parameters whose values the printed optimum lacks: those that the file's `unprinted` gives it, and all
        of the arm's, even if the optimum states them for a dataset.
        """
        stated = self.arm.printed.get(self.dataset)
        file = {} if stated is None else self.table.spec.unprinted.keys() - stated.keys()
        return [] if stated is None else [name for name in self.arm.searched if name in file or name in self.arm.unprinted]

    @property
    def needs_search(self) -> bool:
        """Whether only a search can give the chosen setting."""
        return bool(self.arm.searched) and self.dataset not in self.arm.chosen

    @property
    def needs_search_on_test(self) -> bool:
        """Whether the paper chose the row's setting on test, and only a search can find it."""
        published = self.table.spec.published
        on_test = published is not None and published.chosen_on == "test"
        return on_test and bool(self.arm.searched) and self.dataset not in self.arm.as_published

    def search(self, evidence: Evidence, on: Part = "valid") -> StoredSearch | None:
        asked = self.table.spec.search
        key = self.arm.method, self.arm.params, asked.choose.metric, on, asked.seed
        return evidence.search_of(self.dataset, self.card_key, *key) if self.arm.searched else None

    @property
    def search_key(self) -> tuple[str, ...]:
        """What its search is: rows of several tables, or of several files of one table, can have the same search or not."""
        space = repr(sorted(self.arm.params.items(), key=str))
        return self.dataset, self.card_key, self.arm.method, space, self.table.spec.search.choose.metric

    @property
    def card_key(self) -> str:
        return self.card.content_key()[:12]

    def part(self, config: MethodConfig) -> str:
        """The part that a final run of `config` is fitted on."""
        return part_of_final(config, self.card, self.table.spec)

    def fits(self, origin: Origin, evidence: Evidence) -> list[StoredFit]:
        """Return what was measured of the row at the setting of an origin, by seed."""
        config = self.setting(origin, evidence)
        if config is None:
            return []
        return evidence.find(self.dataset, self.card_key, config, self.part(config), self.table.spec.dtype, self.published)

    def seeds(self, origin: Origin, config: MethodConfig) -> tuple[int, ...]:
        """The seeds that a setting is fitted with: at least three, unless the method uses no seed."""
        stated = self.table.spec.final.seeds
        if not config.spec.seeded:
            return stated[:1]
        more = (seed for seed in range(1, SEEDS + len(stated) + 1) if seed not in stated)
        return (*stated, *(seed for seed, _ in zip(more, range(SEEDS - len(stated)), strict=False)))


def rows_of(tables: Iterable[PaperTable], datasets: Sequence[str] = ()) -> Iterator[PaperRow]:
    """Yield the rows of the tables on their datasets, or on some of them, in the order of the files."""
    for table in tables:
        for name, card in table.cards.items():
            if not datasets or name in datasets:
                yield from (PaperRow(table, arm, card) for arm in table.spec.arms)


@dataclass
class RequiredFit:
    """A fit that is wanted, with the rows of all tables that it serves. `config` carries the label of the first row."""

    config: MethodConfig
    card: Card
    card_key: str
    part: str
    dtype: str
    seed: int
    origin: Origin
    rows: list[PaperRow] = field(default_factory=list)

    @cached_property
    def key(self) -> tuple[Any, ...]:
        flat = self.config.flat
        used = tuple((name, str(flat[name])) for name in sorted(self.config.used))
        return self.card.name, self.card_key, self.config.method, used, self.part, self.dtype, self.seed

    @property
    def experiment(self) -> ExperimentSpec:
        """The file of the first row, with this fit's part, seed and dtype for the final runs."""
        spec = self.rows[0].table.spec
        final = spec.final.model_copy(update={"fit_on": self.part, "seeds": (self.seed,)})
        return spec.model_copy(update={"final": final, "dtype": self.dtype})

    @property
    def metrics(self) -> list[str]:
        """What these rows publish, and it must be measured by."""
        return [*dict.fromkeys(name for row in self.rows for name in row.published)]


def required_fits(rows: Iterable[PaperRow], evidence: Evidence) -> list[RequiredFit]:
    """Return the fits whose settings are known, whether measured or not; those of several rows once."""
    fits: dict[tuple[Any, ...], RequiredFit] = {}
    for row in rows:
        for origin in ORIGINS:
            config = row.setting(origin, evidence)
            if config is None:
                continue
            for seed in row.seeds(origin, config):
                fit = RequiredFit(config, row.card, row.card_key, row.part(config), row.table.spec.dtype, seed, origin)
                if row not in (rows_of_fit := fits.setdefault(fit.key, fit).rows):  # two origins may be one setting
                    rows_of_fit.append(row)
    return list(fits.values())


def metrics_for(dataset: str, tables: Iterable[PaperTable]) -> MetricSet:
    """Return the metrics that every fit on a dataset is measured by: the usual ones, and all that a table publishes for it."""
    rows = [arm for table in tables for arm in table.spec.arms]
    published = {name for arm in rows for name in arm.published.get(dataset, {})}
    return metric_set([*metric_set(DEFAULT_METRICS, DEFAULT_CUTOFFS).names, *sorted(published)], DEFAULT_CUTOFFS)
