"""Folders and switches from the RANKBENCH_* environment variables."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from platformdirs import user_cache_dir

from rankbench.core.errors import ConfigError, StorageError, require
from rankbench.core.files import is_too_long, require_writable
from rankbench.core.registry import nearest
from rankbench.core.storage import SCHEME, Storage, is_storage, shown_address

VARIABLES = {
    "RANKBENCH_DATA": "cache of downloads and prepared datasets, or s3://BUCKET/PREFIX (default: the user's cache folder)",
    "RANKBENCH_MIRROR": "a folder that is used instead of the internet: <folder>/<dataset>/{train,valid,test,all}.parquet",
    "RANKBENCH_OFFLINE": "1: never use the network",
    "RANKBENCH_RESULTS": "records, sweeps, reports and the tracking store, or s3://BUCKET/PREFIX (default: ./results)",
    "RANKBENCH_CACHE": "local copies of what is in such a store, on each host (default: the user's cache folder)",
    "RANKBENCH_TRACKING_URI": "MLflow store (default: MLFLOW_TRACKING_URI, else SQLite under the results folder)",
    "RANKBENCH_PLUGINS": "files and modules with your own losses, solvers and so on, separated as in PATH",
    "RANKBENCH_HOME": "a folder with your own datasets/ and experiments/, searched first",
}

RECORDS = ("reproduce/records", "runs", "sweeps/*/records")  # in the results folder
_PACKAGE = Path(__file__).resolve().parents[1]
_ON, _OFF = {"1", "true", "yes", "on"}, {"", "0", "false", "no", "off"}


@dataclass(frozen=True)
class Environment:
    """Resolved folders and switches, as read by `Environment.from_env()`.

    `data` and `results` are always local folders: if `data_store` or `results_store` is set, they are copies of what is there.
    """

    data: Path
    mirror: Path | None
    offline: bool
    results: Path
    tracking_uri: str | None = field(repr=False)  # may contain a password
    home: Path | None
    data_store: Storage | None = None
    results_store: Storage | None = None

    @classmethod
    def from_env(cls) -> Environment:
        """Read the variables.

        Raises ConfigError for an unknown RANKBENCH_ variable, a missing mirror, a switch that is neither on nor off, or a
        working folder that is gone.
        """
        try:
            Path.cwd()
        except FileNotFoundError:
            raise ConfigError("the working folder no longer exists; change to another one") from None
        for name in os.environ:
            if name.startswith("RANKBENCH_") and name not in VARIABLES:
                raise ConfigError(f"environment: unknown variable {name}{nearest(name, VARIABLES)}")
        read = {name: _folder(name) for name in ("RANKBENCH_MIRROR", "RANKBENCH_HOME")}
        for name, folder in read.items():
            require(folder is None or folder.is_dir(), f"{name}={folder}: no such folder")
        cache = _folder("RANKBENCH_CACHE") or Path(user_cache_dir("rankbench"))
        data_store, results_store = _store("RANKBENCH_DATA"), _store("RANKBENCH_RESULTS")
        data = cache if data_store else _folder("RANKBENCH_DATA") or Path(user_cache_dir("rankbench"))
        results = _copy_of(results_store, cache) if results_store else _folder("RANKBENCH_RESULTS") or Path("results").resolve()
        return cls(
            data=data,
            mirror=read["RANKBENCH_MIRROR"],
            offline=_switch("RANKBENCH_OFFLINE"),
            results=results,
            tracking_uri=os.environ.get("RANKBENCH_TRACKING_URI") or None,
            home=read["RANKBENCH_HOME"],
            data_store=data_store,
            results_store=results_store,
        )

    def here(self) -> Environment:
        """This environment on the host that calls this: copies of a store are where its own RANKBENCH_CACHE says. If it is not
        set there, they are where the driver has them, or in the user's cache if that place cannot be written.
        """
        cache = _folder("RANKBENCH_CACHE")
        if cache is None:
            places = [folder for folder, store in ((self.data, self.data_store), (self.results, self.results_store)) if store]
            if all(map(_is_writable, places)):
                return self
            cache = Path(user_cache_dir("rankbench"))
        data = cache if self.data_store else self.data
        return replace(self, data=data, results=_copy_of(self.results_store, cache) if self.results_store else self.results)

    def require_folder_of_results(self, what: str, instead: str = "") -> None:
        """Raise ConfigError if the results are in a store; `what` needs a folder, for which `instead` names another option."""
        if self.results_store:
            option = f"{instead}, or " if instead else ""
            raise ConfigError(
                f"RANKBENCH_RESULTS={self.results_store}: {what} needs a folder; {option}set RANKBENCH_RESULTS to a folder"
            )

    def require_writable_runs(self) -> None:
        """Raise StorageError if records of single runs cannot be written to the results folder and to its store."""
        require_writable(self.results / "runs")
        if self.results_store:
            self.results_store.require_writable()

    def catalogues(self, kind: str) -> list[Path]:
        """Return the existing folders of `kind` ("datasets" or "experiments"), the user's own before those of the package."""
        parents = [self.home, Path.cwd(), _PACKAGE.parents[1], _PACKAGE / "catalogue"]
        folders = [parent / kind for parent in parents if parent is not None]
        return list(dict.fromkeys(folder for folder in folders if folder.is_dir()))

    def catalogue_files(self, kind: str) -> dict[str, Path]:
        """Return the YAML files in the folders of `kind` by their names; of two with one name, that in the first folder."""
        return {path.name: path for folder in reversed(self.catalogues(kind)) for path in folder.glob("*.yaml")}

    def record_files(self) -> list[Path]:
        """Return the file of each record in the results folder, whatever command made it."""
        return [path for place in RECORDS for path in sorted(self.results.glob(f"{place}/[!.]*/record.json"))]

    def stored_beside_experiments(self, name: str, given: Path | None, to_read: bool = False) -> Path:
        """Return the folder of a store: as given; `name` in a folder of experiment files if it is there and not part of an
        installed package, as in a checkout; otherwise `name` in the results folder. One that is only to be read is that of the
        installed package as long as the results have none.
        """
        if given:
            return given
        with_package = to_read and not (self.results / name).is_dir()
        for folder in self.catalogues("experiments"):
            if (folder / name).is_dir() and (with_package or not folder.is_relative_to(_PACKAGE)):
                return folder / name
        return self.results / name


def is_of_the_product(path: Path | None) -> bool:
    """Whether a card, an experiment or a store is one of those that come with this program, and not the user's own."""
    folders = (_PACKAGE.parents[1] / "datasets", _PACKAGE.parents[1] / "experiments", _PACKAGE / "catalogue")
    return path is not None and any(path.resolve().is_relative_to(folder) for folder in folders)


def _store(name: str) -> Storage | None:
    """The store that a variable names, None if it names a folder."""
    value = os.environ.get(name, "")
    if not is_storage(value):
        return None
    if not value.startswith(SCHEME):
        raise ConfigError(f"{name}={shown_address(value)}: expected a folder or s3://BUCKET/PREFIX")
    return Storage.from_env(value, name)


def _copy_of(store: Storage, cache: Path) -> Path:
    """Folder of the local copy of a store. Stores at two endpoints may have the same name."""
    name = re.sub(r"[^A-Za-z0-9.]+", "-", store.uri.removeprefix(SCHEME))[:80]
    digest = hashlib.sha256(f"{store.endpoint} {store.uri}".encode()).hexdigest()[:8]
    return cache / "results" / f"{name}-{digest}"


def _is_writable(folder: Path) -> bool:
    try:
        require_writable(folder)
    except StorageError:
        return False
    return True


def _folder(name: str) -> Path | None:
    value = os.environ.get(name)
    if not value:
        return None
    if is_storage(value):
        raise ConfigError(
            f"{name}={shown_address(value)}: must be a folder; only RANKBENCH_DATA and RANKBENCH_RESULTS may be in a store"
        )
    try:
        folder = Path(value).expanduser().resolve()
    except (OSError, RuntimeError) as error:  # a loop of links, or ~NAME of an unknown user
        raise ConfigError(f"{name}={value}: {error}") from None
    require(not is_too_long(folder), f"{name}={value}: the name is too long; choose another folder")
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{name}={value}: the name is not UTF-8, which Parquet files need; choose another folder") from None
    return folder


def _switch(name: str) -> bool:
    value = os.environ.get(name, "").lower()
    require(value in _ON | _OFF, f"{name}={value}: expected 1 or 0")
    return value in _ON
