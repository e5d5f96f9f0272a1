"""Find an experiment file or a stored sweep by what a user writes: a path, a name, an id, or the start of an id."""

from __future__ import annotations

from pathlib import Path

from rankbench.core.environment import Environment
from rankbench.core.errors import ConfigError
from rankbench.core.registry import nearest
from rankbench.schema.reading import load_experiment
from rankbench.schema.stored_sweep import StoredSweep, SweepFile, find_sweep, read_sweep

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
    return known.get(stem) if given.parent in (Path(), Path("experiments")) else None


def find(what: str | None, environment: Environment) -> StoredSweep:
    """Read the sweep `what`, or the newest sweep of an experiment; if it has none, one without runs, whose table shows the
    published numbers alone.

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
    try:
        folder = find_sweep(spec.name, environment, whole=True)
    except ConfigError:
        return StoredSweep(path.parent, SweepFile(id="", experiment=spec, fits=0, started_at=""), None, {}, None)
    return read_sweep(folder)


def experiment_files(environment: Environment) -> list[Path]:
    """All experiment files, sorted by name; of two with the same name, the one of the first folder."""
    return [path for _, path in sorted(environment.catalogue_files("experiments").items())]
