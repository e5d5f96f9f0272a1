"""A file that grows, in a store, where nothing can be appended.

It is stored in parts, of which only the last is written again. A part is complete before the next one begins, so that readers
have all that was published.
"""

from __future__ import annotations

from pathlib import Path

from rankbench.schema.shared_sweeps import part_name
from rankbench.sweeps.store import SweepStore

PART = 1 << 16  # bytes after which the next part begins


class Parts:
    """The file at `path` in the folder of a sweep, which this process appends to."""

    def __init__(self, path: Path, store: SweepStore):
        self.path, self._store = path, store
        self._start = 0  # of the last part

    def publish(self) -> None:
        """Store what was appended."""
        if not self._store.shared:
            return
        with self.path.open("rb") as file:
            file.seek(self._start)
            content = file.read()
        self._store.publish_content(part_name(self.path.name, self._start), content)
        if len(content) >= PART:
            self._start += len(content)
