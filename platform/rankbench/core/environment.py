"""Folders and switches from the RANKBENCH_* environment variables."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from platformdirs import user_cache_dir

from rankbench.core.errors import ConfigError
from rankbench.core.files import is_too_long
from rankbench.core.registry import nearest

VARIABLES = {
    "RANKBENCH_DATA": "cache of downloads and prepared datasets (default: the user's cache folder)",
    "RANKBENCH_MIRROR": "a folder that is used instead of the internet: <folder>/<dataset>/{train,valid,test,all}.parquet",
    "RANKBENCH_OFFLINE": "1: never use the network",
    "RANKBENCH_RESULTS": "records, sweeps, reports and the tracking store (default: ./results)",
    "RANKBENCH_TRACKING_URI": "MLflow store (default: MLFLOW_TRACKING_URI, else SQLite under the results folder)",
    "RANKBENCH_PLUGINS": "files and modules with your own losses, solvers and so on, separated as in PATH",
    "RANKBENCH_HOME": "a folder with your own datasets/ and experiments/, searched first",
}

_ON, _OFF = {"1", "true", "yes", "on"}, {"", "0", "false", "no", "off"}


@dataclass(frozen=True)
class Environment:
    """Resolved folders and switches, as read by `Environment.from_env()`."""

    data: Path
    mirror: Path | None
    offline: bool
    results: Path
    tracking_uri: str | None = field(repr=False)  # may contain a password
    home: Path | None

    @classmethod
    def from_env(cls) -> Environment:
        """Read the variables.

        Raises ConfigError for an unknown RANKBENCH_ variable, a missing mirror, or a switch that is neither on nor off.
        """
        for name in os.environ:
            if name.startswith("RANKBENCH_") and name not in VARIABLES:
                raise ConfigError(f"environment: unknown variable {name}{nearest(name, VARIABLES)}")
        mirror = _folder("RANKBENCH_MIRROR")
        if mirror is not None and not mirror.is_dir():
            raise ConfigError(f"RANKBENCH_MIRROR={mirror}: no such folder")
        return cls(
            data=_folder("RANKBENCH_DATA") or Path(user_cache_dir("rankbench")),
            mirror=mirror,
            offline=_switch("RANKBENCH_OFFLINE"),
            results=_folder("RANKBENCH_RESULTS") or Path("results").resolve(),
            tracking_uri=os.environ.get("RANKBENCH_TRACKING_URI") or None,
            home=_folder("RANKBENCH_HOME"),
        )

    def catalogues(self, kind: str) -> list[Path]:
        """Return the existing folders of `kind` ("datasets" or "experiments"), the user's own before those of the package."""
        package = Path(__file__).resolve().parents[1]
        parents = [self.home, Path.cwd(), package.parents[1], package / "catalogue"]
        folders = [parent / kind for parent in parents if parent is not None]
        return list(dict.fromkeys(folder for folder in folders if folder.is_dir()))


def _folder(name: str) -> Path | None:
    value = os.environ.get(name)
    if not value:
        return None
    try:
        folder = Path(value).expanduser().resolve()
    except (OSError, RuntimeError) as error:  # a loop of links, or ~NAME of an unknown user
        raise ConfigError(f"{name}={value}: {error}") from None
    if is_too_long(folder):
        raise ConfigError(f"{name}={value}: the name is too long; choose another folder")
    return folder


def _switch(name: str) -> bool:
    value = os.environ.get(name, "").lower()
    if value not in _ON | _OFF:
        raise ConfigError(f"{name}={value}: expected 1 or 0")
    return value in _ON
