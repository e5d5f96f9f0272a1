"""Find an experiment file or a stored sweep by what a user writes: a path, a name, an id, or the start of an id."""

from __future__ import annotations

from pathlib import Path

from rankbench.core.environment import Environment
from rankbench.core.errors import ConfigError
from rankbench.core.registry import nearest
from rankbench.schema.experiment import ExperimentSpec, load_experiment
from rankbench.schema.shared_sweeps import copy_sweep, stored_ids
from rankbench.schema.stored_sweep import StoredSweep, SweepFile, find_sweep, read_sweep
from rankbench.schema.sweep_id import by_start, experiment_of

SUFFIXES = (".yaml", ".yml")


def experiment_file(experiment: Path, environment: Environment) -> Path:
    """Return the path of an experiment file: as given, or in experiments/ of the user, the working folder or the package.

    Raises ConfigError with the nearest name if there is none.
    """
    path = experiment if experiment.is_file() else _in_catalogues(experiment, environment)
    if path is None:
        known = [each.name for each in experiment_files(environment)]
        name = experiment.name if experiment.suffix in SUFFIXES else f"{experiment.name}.yaml"
        raise ConfigError(f"{experiment}: no such experiment file{nearest(name, known)}")
    return path


def _in_catalogues(given: Path, environment: Environment) -> Path | None:
    """The path of the file with a name, with or without its suffix; None if there is none."""
    known = {path.stem: path for path in experiment_files(environment)}
    stem = given.stem if given.suffix in SUFFIXES else given.name
    return known.get(stem) if given.parent.name in ("", "experiments") else None


def find(what: str | None, environment: Environment) -> StoredSweep:
    """Read the sweep `what`, or the newest sweep of an experiment; if it has none, its published numbers alone.

    A sweep of an experiment whose name only starts with `what` is read if no experiment has this name.
    """
    if what is not None and what.endswith(SUFFIXES):
        path = experiment_file(Path(what), environment)
    else:
        # Files are named with underscores and experiments with hyphens.
        names = (what, what.replace("-", "_")) if what else ()
        found = next(filter(None, (_in_catalogues(Path(name), environment) for name in names)), None)
        try:
            return read_sweep(find_sweep(what, environment, whole=found is not None))
        except ConfigError as error:
            if found is None:
                near = nearest(what or "", [each.stem for each in experiment_files(environment)])
                raise ConfigError(f"{error}, nor an experiment file of that name{near}" if what else str(error)) from None
            path = found
    spec = load_experiment(path, {})
    sweeps = sweeps_of(spec.name, environment)
    return read_sweep(sweeps[-1]) if sweeps else never_run(spec, path)


def experiment_files(environment: Environment) -> list[Path]:
    """All experiment files, sorted by name; of two with the same name, the one of the first folder."""
    paths: dict[str, Path] = {}
    for folder in environment.catalogues("experiments"):
        for path in sorted(folder.glob("*.yaml")):
            paths.setdefault(path.name, path)
    return [paths[name] for name in sorted(paths)]


def sweeps_of(name: str, environment: Environment) -> list[Path]:
    """Folders of the sweeps of the experiment `name`, oldest first.

    If the results are in a store, these are its local copies, brought up to date.
    """
    if environment.results_store:
        for stored in stored_ids(environment.results_store):
            if experiment_of(stored) == name:
                copy_sweep(stored, environment)
    folders = {path.parent.name: path.parent for path in (environment.results / "sweeps").glob("*/sweep.json")}
    return [folders[each] for each in by_start(folders) if experiment_of(each) == name]


def never_run(spec: ExperimentSpec, path: Path) -> StoredSweep:
    """A stored sweep without runs, whose table shows the published numbers."""
    about = SweepFile(id="", experiment=spec, fits=0, started_at="")
    return StoredSweep(path.parent, about, None, {}, None)
