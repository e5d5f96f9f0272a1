"""The draws of a sweep's searches, one line per draw, in draws.jsonl beside the records.

A resumed sweep draws the same settings in the same order, even if a trial that had failed now gives a result.

The process that resumes a sweep continues in a copy of the file under the same name. A process that ran the sweep before opens
the file, looks whether its claim is the newest, and only then appends: a line that it adds later is in the file of before.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from rankbench.core.errors import DataError
from rankbench.core.files import atomic_file, disk_errors_are_clear, make_folder
from rankbench.sweeps.store import SweepStore


class Draws:
    """The file of one sweep, created with the first draw. Only with a `store` can draws be added.

    Raises DataError if the file cannot be read.
    """

    def __init__(self, path: Path, store: SweepStore | None = None):
        self.path, self._store = path, store
        self._start = 0  # of the last part in the store
        self.lags: dict[str, int] = {}
        self.params: dict[str, list[dict[str, Any]]] = defaultdict(list)
        content = path.read_bytes() if path.is_file() else b""
        complete = content[: content.rfind(b"\n") + 1]
        # The process may have been killed while it wrote the last line, which the copy of this process does not have.
        self._before = complete if content else None
        for number, line in enumerate(complete.splitlines(), start=1):
            try:
                self._take(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                problem = f"{path}: line {number}: not a draw of a sweep ({error!r})"
                raise DataError(f"{problem}; delete the file to repeat the draws") from None

    def lag(self, search: str, lag: int) -> int:
        """The lag of a search as in the file (see `Study`); if it has none, `lag`, which is then written."""
        if search not in self.lags:
            self._write({"search": search, "lag": lag})
        return self.lags[search]

    def drawn(self, search: str, number: int) -> dict[str, Any] | None:
        """The parameters of draw `number`, counted from 0; None if it was not drawn yet."""
        params = self.params[search]
        return params[number] if number < len(params) else None

    def add(self, search: str, params: dict[str, Any]) -> None:
        """Write the next draw of a search."""
        self._write({"search": search, "draw": len(self.params[search]), "params": params})

    def _write(self, entry: dict[str, Any]) -> None:
        claim = self._store.claim if self._store else None
        make_folder(self.path.parent)
        if self._before is not None:
            with atomic_file(self.path, claim) as scratch:
                scratch.write_bytes(self._before)
            self._before = None
        with disk_errors_are_clear(self.path), self.path.open("a", encoding="utf-8") as file:
            if claim:
                claim.require_newest()
            file.write(json.dumps(entry) + "\n")
        if self._store:
            self._start = self._store.publish_part(self.path.name, self._start)
        self._take(entry)

    def _take(self, entry: dict[str, Any]) -> None:
        if "lag" in entry:
            self.lags[entry["search"]] = int(entry["lag"])
            return
        params = self.params[entry["search"]]
        if entry["draw"] != len(params):
            raise ValueError(f"draw {entry['draw']} follows {len(params)} draws")
        params.append(dict(entry["params"]))
