"""Describe what a result was measured with: versions, machine, code revision and peak memory."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from rankbench.core import plugins
from rankbench.core.code import package_fingerprint

# What commands write into a checkout. It is no code: without this, the first result would mark the revision of all others.
RESULTS = ("experiments/evidence", "experiments/leaderboard", "docs/results")
# Variables of git by which a hook names its own checkout.
OF_ANOTHER = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX")
PACKAGES = ("rankbench", "ray", "torch", "mlflow", "numpy", "scipy", "pandas", "pyarrow", "numba", "optuna")


def describe_environment(used: Sequence[plugins.Plugin] | None = None) -> dict[str, Any]:
    """Return versions, machine, code and the plugins `used`, by default all loaded ones, as JSON values. `code` is the hash of
    the source files, which changes with every edit and is known outside a checkout, too.
    """
    used = plugins.loaded() if used is None else used
    return {
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "machine": {
            "system": f"{platform.system()} {platform.machine()}",
            "cpu": processor(),
            "cores": os.cpu_count(),
            "memory_bytes": psutil.virtual_memory().total,
        },
        "blas": _blas(),
        **({"plugins": [{"name": each.name, "sha256": each.sha256} for each in used]} if used else {}),
        "revision": code_revision(),
        "code": package_fingerprint(),
    }


def _blas() -> list[str]:
    """Return the loaded BLAS libraries with the kernels they chose, which affect speed and the last digits of results."""
    from threadpoolctl import threadpool_info

    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    return sorted({f"{pool['internal_api']} {pool['version']} {pool.get('architecture', '')}".strip() for pool in pools})


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def processor() -> str:
    """Return the kind of processor of this machine."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


@cache
def code_revision() -> str | None:
    """Return the commit of the checkout of this code, with `+changes` if files other than results were changed, or the package
    has a file that no commit has; None outside a checkout.

    It is that of the first call, because a process runs the code that it has loaded, whatever the checkout has by then.
    """
    return revision_of(Path(__file__).resolve().parents[3])


def revision_of(root: Path) -> str | None:
    """Return the commit of the checkout at `root`, as `code_revision` does."""
    if not (root / ".git").exists():
        return None
    try:
        commit = _git(root, "rev-parse", "HEAD")
        code = [".", *(f":(exclude){folder}" for folder in RESULTS)]
        changed = _git(root, "status", "--porcelain", "--untracked-files=no", "--", *code)
        new = _git(root, "ls-files", "--others", "--", ":(glob)platform/rankbench/**/*.py")  # one registers by being there
        return commit + ("+changes" if changed or new else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(root: Path, *words: str) -> str:
    own = {name: value for name, value in os.environ.items() if name not in OF_ANOTHER}
    done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=True, timeout=10, env=own)
    return done.stdout.strip()


def reset_peak_memory() -> None:
    """Start a new peak for `peak_memory`. Does nothing if the kernel does not support it."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return


def peak_memory() -> int:
    """Return the peak resident bytes of this process since the last reset (since its start if resets are not supported)."""
    try:
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # macOS counts bytes, others kilobytes
