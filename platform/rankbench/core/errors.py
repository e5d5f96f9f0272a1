"""What can go wrong, by who must act; each kind carries the exit code of the command line."""

from __future__ import annotations

from typing import Any

LONGEST_MESSAGE = 2000  # characters
LONGEST_VALUE = 120


class RankbenchError(Exception):
    """One clear line for the user; the middle of a very long one is left out. Subclasses set `exit_code`."""

    exit_code = 1

    def __init__(self, message: str = ""):
        super().__init__(shortened(message, LONGEST_MESSAGE))


class ConfigError(RankbenchError):
    """A setting, a name or a key is wrong; the message names the place and what to write instead."""

    exit_code = 2


class DataError(RankbenchError):
    """An input file is missing, damaged or not what its card says; the message names file and row."""

    exit_code = 2


class DownloadError(DataError):
    """A raw file cannot be had from where its card says it lies. `brief`: why, in as few words as a cell of a table takes."""

    def __init__(self, message: str, brief: str = "download failed"):
        super().__init__(message)
        self.brief = brief


class NumericalError(RankbenchError):
    """The mathematics failed on valid input: a matrix that is not positive definite, a value that is not finite."""

    exit_code = 3


class ClusterError(RankbenchError):
    """The cluster failed, or a part of a sweep did; `--resume` continues."""

    exit_code = 4


class StorageError(RankbenchError):
    """Disk or memory is not enough for what was asked."""

    exit_code = 5


def require(condition: bool, message: str) -> None:
    """Raise ConfigError(message) unless `condition` holds."""
    if not condition:
        raise ConfigError(message)


def shortened(text: str, longest: int) -> str:
    """`text` with its middle left out if it has more than `longest` characters."""
    if len(text) <= longest:
        return text
    return f"{text[: longest * 2 // 3]} …({len(text):,} characters)… {text[-(longest // 4) :]}"


def shown(value: Any) -> str:
    """What a user gave, as an error message shows it: written as in Python, and not at full length."""
    return shortened(repr(value), LONGEST_VALUE)


def printable(text: str) -> str:
    """`text` with control characters written out: a damaged file must not steer the terminal that shows its error."""
    return "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in text)
