"""The control groups of this process, by which Linux limits what a container may use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_CGROUP, _MEMBERSHIP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def control_groups(controller: str) -> Iterator[tuple[Path, bool]]:
    """Yield the folder of each group that may limit the `controller`, "cpu" or "memory", of this process, and whether it is of
    version 2, which has other files.
    """
    try:
        lines = _MEMBERSHIP.read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        is_second = controllers == ""
        if is_second or controller in controllers.split(","):
            root = _CGROUP if is_second else _CGROUP / controller
            own = root / path.lstrip("/")
            # A container sees its own group as the root, and groups are limited by those above them.
            for folder in {root, own, *(each for each in own.parents if each.is_relative_to(root))}:
                yield folder, is_second
