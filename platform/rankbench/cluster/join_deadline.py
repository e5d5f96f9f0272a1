"""A deadline for joining a Ray cluster that works even if Ray's C++ code hangs while it holds Python's lock.

In that case no Python code runs in this process. A second process therefore informs the user, and a timer of the C library
ends this process.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from rankbench.core.errors import ClusterError

PATIENCE = 120.0  # seconds
NOTICE = 15.0  # seconds after which the user is informed of the delay
_GRACE = 2.0  # seconds between the last message of the second process and the end of this one
_CLOCK_MONOTONIC, _SIGEV_THREAD = 1, 2
# Waits for a byte on standard input, and reports if none comes. It imports nothing of rankbench, so that it starts at once.
_WATCH = """
import os, select, sys
notice, patience, failure = float(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
for wait, line in (
    (notice, f"warning: Ray has not answered after {notice:.0f} s; waiting for up to {patience:.0f} s\\n"),
    (patience - notice, f"error: {failure.format(f'no answer in {patience:.0f} s')}\\n"),
):
    if select.select([0], [], [], wait)[0]:
        # End of file without a byte: the watched process was ended, by Ray or otherwise.
        if not os.read(0, 1):
            os.write(2, f"error: {failure.format('the process ended while it joined')}\\n".encode())
        sys.exit(0)
    os.write(2, line.encode())
sys.exit(1)
"""


@contextmanager
def join_deadline(failure: str) -> Iterator[None]:
    """End this process with a message and the exit code of ClusterError unless the block ends within `PATIENCE` seconds.

    `failure` is the message, with `{}` for the reason.
    """
    command = [sys.executable, "-I", "-S", "-c", _WATCH, str(min(NOTICE, PATIENCE)), str(PATIENCE), failure]
    watch = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)  # Ctrl-C is for this process alone
    timer = _exit_after(PATIENCE + _GRACE, ClusterError.exit_code)
    try:
        yield
    finally:
        _cancel(timer)
        with suppress(OSError):
            watch.stdin.write(b".")
            watch.stdin.close()
        if watch.wait():
            os._exit(ClusterError.exit_code)  # the second process has printed the error


class _Notification(ctypes.Structure):
    """`struct sigevent` with a function to call in a new thread."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("kind", ctypes.c_int),
        ("function", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("unused", ctypes.c_byte * 64),
    )


def _exit_after(seconds: float, code: int) -> ctypes.c_void_p | None:
    """Let the C library call `_exit(code)` after `seconds`. Returns its timer, or None if the system has no timers."""
    libc = ctypes.CDLL(None)
    if not sys.platform.startswith("linux") or not hasattr(libc, "timer_create"):
        return None
    timer = ctypes.c_void_p()
    function = ctypes.cast(libc._exit, ctypes.c_void_p)
    notification = _Notification(value=code, kind=_SIGEV_THREAD, function=function)
    if libc.timer_create(_CLOCK_MONOTONIC, ctypes.byref(notification), ctypes.byref(timer)):
        return None
    # Interval, then the first time: seconds and nanoseconds each.
    times = (ctypes.c_long * 4)(0, 0, int(seconds), int(seconds % 1 * 1e9))
    libc.timer_settime(timer, 0, ctypes.byref(times), None)
    return timer


def _cancel(timer: ctypes.c_void_p | None) -> None:
    if timer is not None:
        ctypes.CDLL(None).timer_delete(timer)
