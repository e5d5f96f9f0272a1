"""The datasets of a plan: those that are available, prepared, and the splits of them that final runs are measured on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rankbench.core.environment import Environment
from rankbench.core.errors import DownloadError
from rankbench.data.cards import Card
from rankbench.data.prepare import Dataset, prepare
from rankbench.evaluation.metrics import MetricSet, metric_set, require_within
from rankbench.schema.datasets import Entry, card_of, with_split_seed
from rankbench.schema.experiment import ExperimentSpec
from rankbench.schema.stored_sweep import NotAvailable


@dataclass(frozen=True)
class PlanData:
    """`final_cards`: the cards of the final runs, one per dataset and split seed. `not_available`: names of datasets whose raw
    data are not available → why. `notes`: sentences on splits.
    """

    datasets: tuple[Dataset, ...]
    final_cards: tuple[Card, ...]
    not_available: dict[str, NotAvailable]
    notes: tuple[str, ...]

    @property
    def cards(self) -> tuple[Card, ...]:
        return tuple(dataset.card for dataset in self.datasets)

    @classmethod
    def of(
        cls,
        spec: ExperimentSpec,
        declared: Sequence[Card],
        environment: Environment,
        source: str,
        require_all: bool,
        parts: Callable[[Card], set[str]],
    ) -> PlanData:
        """Prepare the datasets of the `declared` cards; `parts(card)` are those that final runs are fitted on.

        Raises DownloadError if no dataset is available or, with `require_all`, if one is not.
        """
        datasets: list[Dataset] = []
        final_cards: list[Card] = []
        notes: list[str] = []
        errors: dict[str, DownloadError] = {}
        for position, (entry, card) in enumerate(zip(spec.datasets, declared, strict=True)):
            try:
                dataset = prepare(card, environment)
                key = f"{source}: datasets[{position}]"
                split_cards, card_notes = _final_cards(entry, card, spec, environment, key, parts)
            except DownloadError as error:
                if require_all or len(declared) == 1:
                    raise
                errors[card.name] = error
                continue
            datasets.append(dataset)
            final_cards += split_cards
            notes += card_notes
        if not datasets:
            briefs = {error.brief for error in errors.values()}
            reasons = "; ".join(map(str, errors.values()))
            raise DownloadError(f"{source}: none of its datasets is available: {reasons}", ", ".join(sorted(briefs)))
        why = {name: NotAvailable(error.brief, str(error)) for name, error in errors.items()}
        return cls(tuple(datasets), tuple(final_cards), why, tuple(notes))

    def require_within_cutoffs(self, spec: ExperimentSpec, metrics: MetricSet, source: str) -> None:
        """Raise ConfigError if a dataset has fewer items than a cutoff that the experiment states."""
        stated = {}
        if "search" in spec.model_fields_set and "choose" in spec.search.model_fields_set:
            stated["search.choose.metric"] = metric_set([spec.search.choose.metric])
        if {"cutoffs", "metrics"} & spec.model_fields_set:
            stated["cutoffs"] = metrics
        for key, of_key in stated.items():
            for dataset in self.datasets:
                require_within(of_key, len(dataset.items), dataset.name, f"{source}: {key}")


def _final_cards(
    entry: Entry, card: Card, spec: ExperimentSpec, environment: Environment, source: str, parts: Callable[[Card], set[str]]
) -> tuple[list[Card], list[str]]:
    """The card for each split seed, and sentences on them; without splits that equal an earlier one in what final runs read, as
    published ones do.
    """
    if spec.final.split_seeds is None:
        return [card], []
    kept: dict[int, tuple[Card, list[np.ndarray]]] = {}
    notes: list[str] = []
    for seed in spec.final.split_seeds:
        other = card_of(with_split_seed(entry, seed), environment, source)
        split = prepare(other, environment).split
        # A fit on train may end by valid, which is what train + valid has besides train.
        fitted = (split.fit_matrix(part) for part in sorted({*parts(card), "train+valid"}))
        read = (*fitted, split.test_target, split.test_history, split.excluded)
        arrays = [array for part in read if part is not None for array in (part.indptr, part.indices)]
        twin = next((known for known, (_, others) in kept.items() if all(map(np.array_equal, arrays, others))), None)
        if twin is None:
            kept[seed] = other, arrays
        else:
            notes.append(f"{card.name}: split seed {seed} gives the same final runs as {twin} and is left out")
    chosen_on = f"settings are chosen on the split of seed {card.split.seed}"
    notes.append(f"{card.name}: {chosen_on}, then measured on those of {', '.join(map(str, kept))}")
    return [other for other, _ in kept.values()], notes
