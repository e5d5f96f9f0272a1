"""The command `rankbench`, also as `python -m rankbench`."""

from __future__ import annotations

import os
import signal
from types import FrameType


def main() -> None:
    """Run the command line."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)  # until the command line is imported, which answers in words
    from rankbench.cli import main as run

    run()


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)


if __name__ == "__main__":
    main()
