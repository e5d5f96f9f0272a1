"""The command `rankbench`, also as `python -m rankbench`."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

from rankbench import completion


def main() -> None:
    """Answer a shell that completes a word, without importing the commands, or run the command line."""
    if completion.VARIABLE in os.environ:
        sys.exit(completion.answer(os.environ))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)  # until the command line is imported, which answers in words
    from rankbench.cli import main as run

    run()


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)


if __name__ == "__main__":
    main()
