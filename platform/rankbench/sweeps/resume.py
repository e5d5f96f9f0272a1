"""Which sweep `--resume` continues: the newest one of the same experiment, on the same data."""

from __future__ import annotations

from pathlib import Path

from rankbench.core.environment import Environment
from rankbench.core.errors import ConfigError, require
from rankbench.data.prepare import prepare
from rankbench.schema.shared_sweeps import copy_sweep, stored_ids
from rankbench.schema.stored_sweep import ids_here, place_of
from rankbench.sweeps.plan import Plan
from rankbench.tracking.record import read_records


def folder_to_resume(plan: Plan, environment: Environment, take_over: bool = False) -> Path:
    """The folder of `sweep_to_resume`; of a store, its local copy, brought up to date as `copy_sweep` does.

    Raises ConfigError if there is none, or if the data have changed since its runs; DataError for a record that cannot be read.
    """
    name = sweep_to_resume(plan, environment)
    if environment.results_store:
        copy_sweep(name, environment, take_over)
    folder = environment.results / "sweeps" / name
    _require_same_data(folder, plan, environment)
    return folder


def sweep_to_resume(plan: Plan, environment: Environment) -> str:
    """The id of the newest sweep with the name and key of `plan`. Raises ConfigError if there is none."""
    store, place = environment.results_store, place_of(environment)
    ids = stored_ids(store) if store else ids_here(environment)
    if not (ours := [name for name in ids if name.startswith(f"{plan.spec.name}-{plan.key}-")]):
        raise ConfigError(
            f"{plan.spec.name}: nothing to resume in {place} for this experiment as it stands; run it without --resume"
        )
    return ours[-1]


def _require_same_data(folder: Path, plan: Plan, environment: Environment) -> None:
    """Raise ConfigError if a result in the folder is of other data than those that the rest would be measured on."""
    cards = {(card.name, card.split.seed): card for card in (*plan.cards, *plan.final_cards)}
    # A run that the scheduler ended may know only the name of its data.
    datasets = [each.dataset for each in read_records(folder / "records") if not each.failed and each.dataset.fingerprint]
    for name, seed, fingerprint in sorted({(each.name, each.split_seed, each.fingerprint) for each in datasets}):
        card = cards.get((name, seed))
        require(
            card is None or fingerprint == prepare(card, environment).fingerprint,
            f"--resume: the data of {name} have changed since {folder.name} began, so that its results could not be compared "
            "with new ones; run it without --resume",
        )
