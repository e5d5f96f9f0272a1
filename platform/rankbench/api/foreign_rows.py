"""Foreign lists as a row in the table of a sweep, with the same paired tests as its own rows."""

from __future__ import annotations

from pathlib import Path

from rankbench.core.environment import Environment
from rankbench.core.errors import require
from rankbench.data.prepare import Dataset
from rankbench.evaluation.metrics import MetricSet
from rankbench.schema.stored_sweep import StoredSweep, find_sweep, read_sweep
from rankbench.sweeps.comparisons import comparisons
from rankbench.sweeps.reuse import checksums
from rankbench.sweeps.store import SweepStore
from rankbench.tracking.record import RunRecord


def sweep_for(name: str, dataset: Dataset, on: str, environment: Environment) -> tuple[StoredSweep, MetricSet]:
    """Return the sweep that lists on `dataset` are put into, and the metrics of its table.

    Raises ConfigError if there is none, or if its runs were measured on other data, or on several splits: its tests would be
    cut to the only split of the lists.
    """
    stored = read_sweep(find_sweep(name, environment))
    sweep = f"--sweep {stored.folder.name}"
    require(stored.chosen is not None, f"{sweep}: is not finished; continue it with rankbench sweep ... --resume")
    require(on == "test", f"{sweep}: its table is of test; leave out --on")
    finals = [record.dataset for record in stored.finals if record.dataset.name == dataset.name]
    names = ", ".join(dict.fromkeys(record.dataset.name for record in stored.finals)) or "none"
    require(bool(finals), f"{sweep}: has no results on {dataset.name}; its datasets are {names}")
    splits = {each.split_seed for each in finals}
    require(
        len(splits) == 1, f"{sweep}: has {len(splits)} splits of {dataset.name}, and lists are of one; compare runs instead"
    )
    require(
        finals[0].fingerprint == dataset.fingerprint,
        f"{sweep}: its {dataset.name} has fingerprint {finals[0].fingerprint}, and this one {dataset.fingerprint}",
    )
    require(
        checksums(finals[0].sources) == checksums(dataset.sources),
        f"{sweep}: its {dataset.name} is of other files, which may name users differently; use the files of the sweep",
    )
    return stored, MetricSet(comparisons(stored).metrics)


def put_into(stored: StoredSweep, record: RunRecord, folder: Path, environment: Environment) -> None:
    """Copy the record in `folder` to the sweep, and test all of its models again."""
    store = SweepStore.of(stored.folder, environment)
    store.trial(record.id, [record.id]).copy(folder)
    store.fetch([record.id])
    store.write("comparisons.json", comparisons(read_sweep(stored.folder)).content())


def require_new_name(stored: StoredSweep, record: RunRecord) -> None:
    """Raise ConfigError if the sweep has other lists of this name on this dataset."""
    taken = any(
        each.id != record.id and (each.arm, each.dataset.name) == (record.arm, record.dataset.name) for each in stored.foreign
    )
    require(not taken, f"--sweep {stored.folder.name}: has other lists called {record.arm}; choose another --name")
