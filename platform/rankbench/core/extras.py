"""Packages that only a part of rankbench needs: which extra installs them, and the error that says so.

Reading results, preparing data and fitting closed forms needs none of them.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

from rankbench.core.errors import ConfigError, require

EXTRAS = {  # extra → the packages that it installs
    "train": ("torch",),
    "sweep": ("ray", "optuna"),
    "tracking": ("mlflow",),
}
PURPOSES = {  # extra → what it is for
    "train": "losses trained by gradient steps",
    "sweep": "sweeps and Ray clusters",
    "tracking": "runs in MLflow",
}
_BROUGHT = {"sqlalchemy": "tracking", "alembic": "tracking", "uvicorn": "tracking"}  # packages that come with those


@cache
def installed(extra: str) -> bool:
    """Whether all packages of `extra` are there. Imports none of them."""
    return not _missing(extra)


def missing_packages(extra: str) -> str:
    """Return the end of a sentence such as "A sweep needs ...": the missing packages of `extra`, and how to install them."""
    packages = _missing(extra) or EXTRAS[extra]
    return f"{' and '.join(packages)}, which {'are' if len(packages) > 1 else 'is'} not installed: {install_command(extra)}"


def install_command(extra: str) -> str:
    return f"pip install 'rankbench[{extra}]'"


def require_extra(extra: str, what: str) -> None:
    """Raise ConfigError, which names the extra, if a package of it is missing; `what` needs them."""
    require(installed(extra), f"{what} needs {missing_packages(extra)}")


def missing_extra(error: BaseException) -> ConfigError | None:
    """Return the clear error for a failed import of a package that an extra installs, None for any other error."""
    if not isinstance(error, ModuleNotFoundError):
        return None
    module = (error.name or "").partition(".")[0]
    extras = _BROUGHT | {package: extra for extra, packages in EXTRAS.items() for package in packages}
    if module not in extras or installed(extras[module]):
        return None
    return ConfigError(f"this needs {missing_packages(extras[module])}")


def _missing(extra: str) -> list[str]:
    return [package for package in EXTRAS[extra] if find_spec(package) is None]
