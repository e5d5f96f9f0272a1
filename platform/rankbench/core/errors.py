"""The errors of this package, one class for each exit code of the command line."""

from __future__ import annotations

import errno
import re
from typing import Any

LONGEST_MESSAGE = 2000  # characters
LONGEST_VALUE = 120
_COLOURS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")  # and other sequences that control a terminal


class RankbenchError(Exception):
    """Base of all errors, with a one-line message for the user; very long ones are shortened. Subclasses set `exit_code`."""

    exit_code = 1

    def __init__(self, message: str = ""):
        super().__init__(shortened(message, LONGEST_MESSAGE))


class ConfigError(RankbenchError):
    """A setting, a name or a key is wrong. The message says where, and what to write instead."""

    exit_code = 2


class DataError(RankbenchError):
    """An input file is missing, damaged or not as its card describes it. The message names the file and the row."""

    exit_code = 2


class UnreadableError(DataError):
    """The system refuses to read an input file, perhaps only now: what it contains is not known."""


class DownloadError(DataError):
    """A raw file cannot be downloaded from its source. `brief`: the reason in a few words, for the cell of a table."""

    def __init__(self, message: str, brief: str = "download failed"):
        super().__init__(message)
        self.brief = brief


class NumericalError(RankbenchError):
    """A computation failed on valid input: a matrix is not positive definite, or a value is not finite."""

    exit_code = 3


class ClusterError(RankbenchError):
    """The cluster or a part of a sweep failed; `--resume` continues the sweep."""

    exit_code = 4


class StorageError(RankbenchError):
    """There is not enough disk space or memory, or a file cannot be written."""

    exit_code = 5


def own_error(error: Exception) -> Exception:
    """Return an error of this package for one that no nearer code has handled: a full disk or memory, a package of an extra
    that is not installed, a file or folder that the system refuses, and a name that is not UTF-8. Any other error is returned
    unchanged.
    """
    from rankbench.core.extras import missing_extra
    from rankbench.core.memory import memory_errors_are_clear

    if isinstance(error, OSError):
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return StorageError(f"{error.filename or 'the disk'}: no space left on the device")
        if error.filename is not None and error.strerror:  # the name is too long, or there is no permission
            cls = StorageError if error.errno in (errno.EIO, errno.EROFS) else ConfigError
            return cls(f"{error.filename}: {error.strerror}")
    if isinstance(error, UnicodeEncodeError):  # Arrow opens only files whose names are UTF-8
        return ConfigError(f"{shown(error.object)}: not UTF-8; choose another name")
    if extra := missing_extra(error):
        return extra
    try:
        with memory_errors_are_clear("rankbench"):
            raise error
    except Exception as known:
        return known


def require(condition: bool, message: str) -> None:
    """Raise ConfigError(message) unless `condition` holds."""
    if not condition:
        raise ConfigError(message)


def shortened(text: str, longest: int) -> str:
    """Return `text`, without its middle if it has more than `longest` characters."""
    if len(text) <= longest:
        return text
    return f"{text[: longest * 2 // 3]} …({len(text):,} characters)… {text[-(longest // 4) :]}"


def shown(value: Any) -> str:
    """Return a user's value as an error message shows it: as written in Python, shortened if it is long."""
    return shortened(repr(value), LONGEST_VALUE)


def printable(text: str) -> str:
    """Return `text` with control characters escaped: a damaged file must not control the terminal that shows its error."""
    return "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in text)


def without_colours(text: str) -> str:
    """Return `text` without the sequences that colour a terminal, which Ray writes into its messages."""
    return _COLOURS.sub("", text)


def first_line(error: BaseException) -> str:
    """The first line of an error's message, without colours, or the name of its type if it has no message."""
    return (without_colours(str(error)).strip().splitlines() or [type(error).__name__])[0]
