"""Ctrl-C: an answer at once, an orderly end, and with a second Ctrl-C the end at once.

Python runs a signal handler only between two instructions of the main thread, which may be seconds later, when a matrix is
inverted. The number of the signal is therefore also written to a pipe as it arrives, and another thread reads it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType

from rankbench.cli.console import SIGNALS

NUMBERS = (signal.SIGINT, signal.SIGTERM)


def watch(how_to_continue: str) -> None:
    """Answer SIGINT and SIGTERM from now on. The first one raises KeyboardInterrupt in the main thread, so that context
    managers clean up and a sweep shuts its cluster down; a second one ends the process, with the code 130 for Ctrl-C and 143
    for SIGTERM. `how_to_continue` may be empty.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    then = f"{how_to_continue}; " if how_to_continue else ""
    # On a terminal the line begins where a progress bar stood.
    start = "\r\x1b[K" if os.isatty(2) else ""
    answers = [f"{start}stopping: {then}press Ctrl-C again to end at once\n".encode()]

    def on_signal(number: int, frame: FrameType | None) -> None:
        if SIGNALS:  # the second one, which the main thread may see before the other thread does
            os._exit(128 + number)
        SIGNALS.append(number)
        _say(answers)
        raise KeyboardInterrupt

    for number in NUMBERS:
        signal.signal(number, on_signal)
    sys.unraisablehook = _unless_interrupted
    threading.Thread(target=_answer, args=(reader, answers), daemon=True).start()


def _say(answers: list[bytes]) -> None:
    """Write the answer once: the main thread and the other one race for it, and either may be seconds late."""
    try:
        answer = answers.pop()
    except IndexError:
        return
    with suppress(OSError):  # nobody may be reading
        os.write(2, answer)  # a system call, because the main thread may hold the locks of Python's streams


def _unless_interrupted(lost: sys.UnraisableHookArgs) -> None:
    """Report an exception that Python cannot raise, but not an interrupt that arrived while compiled code, such as a cache of
    numba, called back into Python: Python loses it there, and the next progress of the fit raises it again.
    """
    if not (SIGNALS and lost.exc_type is KeyboardInterrupt):
        sys.__unraisablehook__(lost)


def _answer(reader: int, answers: list[bytes]) -> None:
    received = 0
    while numbers := os.read(reader, 64):
        for number in (each for each in numbers if each in NUMBERS):
            received += 1
            if received > 1:
                os._exit(128 + number)
            _say(answers)
