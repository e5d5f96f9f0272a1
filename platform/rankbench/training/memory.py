"""Keep freed memory in the process, because the next batch allocates the same amount again."""

from __future__ import annotations

import ctypes
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # glibc, malloc.h
_LARGEST = 1 << 29  # bytes


@cache
def keep_freed() -> None:
    """Stop glibc from returning freed arrays of some megabytes to the system.

    Otherwise every batch pays for fresh pages: a batch that touches a table of 40,000 rows takes three times as long. With
    another C library this does nothing.
    """
    try:
        library = ctypes.CDLL("libc.so.6")
        library.mallopt(_MMAP_THRESHOLD, _LARGEST)
        library.mallopt(_TRIM_THRESHOLD, _LARGEST)
    except (OSError, AttributeError):
        return
