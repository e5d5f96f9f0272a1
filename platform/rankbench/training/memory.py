"""Freed memory that is kept for the next batch, which asks for the same again."""

from __future__ import annotations

import ctypes
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc, malloc.h
_LARGEST = 1 << 29  # bytes


@cache
def keep_freed() -> None:
    """By default glibc hands arrays of more than some megabytes back to the system, and every batch pays for fresh pages:
    three times as long for a batch that touches a table of 40,000 rows. Does nothing where the C library is another one.
    """
    try:
        library = ctypes.CDLL("libc.so.6")
        library.mallopt(_MMAP_THRESHOLD, _LARGEST)
        library.mallopt(_TRIM_THRESHOLD, _LARGEST)
    except (OSError, AttributeError):
        return
