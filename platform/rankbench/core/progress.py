"""How work that takes long says how far it is."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int | None], None]  # the phase, how much of it is done, and of how much, None if that is unknown
