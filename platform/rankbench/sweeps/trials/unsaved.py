"""What Tune shall not save of its searcher and callbacks."""

from __future__ import annotations

from typing import Any


class Unsaved:
    """Has no state. Tune saves it for a restore, which never happens here: records determine what is still to be run."""

    def __getstate__(self) -> dict[str, Any]:
        return {}
