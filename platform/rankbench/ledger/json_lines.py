"""A file of a ledger, with a line of JSON per value: small enough to be committed, and merged by people by hand.

Reading is strict, because a line that is half read, or read twice, is a wrong result: every line is an object of its dataset
whose numbers are finite, and no two lines have the same key. Writing starts from what a strict reading found in the file while
its lock is held, so a file with a wrong line is not written, and nothing that another process has added is lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from filelock import FileLock
from pydantic import ValidationError

from rankbench.core.config import adapter
from rankbench.core.errors import DataError, printable, shortened
from rankbench.core.files import disk_errors_are_clear, make_folder, write_text
from rankbench.ledger.line import Line

T = TypeVar("T", bound=Line)

LONGEST_LINE, LARGEST_FILE = 1 << 20, 1 << 26  # bytes; the longest line that was ever written has 10 KB
MOST_LINES = 100_000
LARGEST = 1e100  # magnitude of a number: squares and sums of such numbers are finite
MARKERS = (b"<<<<<<<", b"|||||||", b"=======", b">>>>>>>")  # that a merge leaves where both sides changed a line
ADVICE = "correct or remove the line; commands that only read leave it out with --skip-bad"


@dataclass(frozen=True)
class JsonLines(Generic[T]):
    """The file at `path`, which need not exist, with lines of the dataclass `kind` about `dataset`."""

    path: Path
    kind: type[T]
    dataset: str

    def read(self, skipped: list[str] | None = None) -> list[T]:
        """Return the values in their order. Raises DataError naming the file, the first wrong line, and what is wrong with it.

        With `skipped`, wrong lines are left out and described there. Of lines with the same key all are left out: which one
        counts, only a person can tell.
        """
        values, wrong, rows = dict[int, T](), dict[int, str](), dict[Hashable, list[int]]()
        for row, text in enumerate(self._lines(), start=1):
            try:
                values[row] = self._value(text)
                rows.setdefault(values[row].key, []).append(row)
            except _WrongLine as error:
                wrong[row] = str(error)
        for first, *others in rows.values():
            if others:
                wrong[first] = f"line {others[0]} is of the same entry; keep one of them"
                wrong |= {row: f"line {first} is of the same entry; keep one of them" for row in others}
        problems = [f"{self.path}:{row}: {wrong[row]}" for row in sorted(wrong)]
        if problems and skipped is None:
            raise DataError(f"{problems[0]}; {ADVICE}")
        if skipped is not None:
            skipped += problems
        return [value for row, value in values.items() if row not in wrong]

    def update(self, change: Callable[[list[T]], list[T]]) -> list[T]:
        """Write what `change` makes of the values, whole or not at all, and return it. Other processes wait meanwhile.

        Raises DataError if the file has a wrong line, and leaves it as it is.
        """
        make_folder(self.path.parent)
        with disk_errors_are_clear(self.path), FileLock(self.path.parent / f".{self.path.name}.lock"):
            values = change(self.read())
            write_text(self.path, "".join(f"{one_line(value)}\n" for value in values))
        return values

    def _lines(self) -> list[bytes]:
        try:
            if not self.path.exists():
                return []
            if not self.path.is_file() or self.path.stat().st_size > LARGEST_FILE:
                raise DataError(f"{self.path}: expected a file of at most {LARGEST_FILE >> 20} MB")
            content = self.path.read_bytes()
        except OSError as error:
            raise DataError(f"{self.path}: cannot be read ({error.strerror})") from None
        if content.count(b"\n") > MOST_LINES:
            raise DataError(f"{self.path}: expected at most {MOST_LINES:,} lines")
        return content.removesuffix(b"\n").split(b"\n") if content else []

    def _value(self, line: bytes) -> T:
        if len(line) > LONGEST_LINE:
            raise _WrongLine(f"is longer than {LONGEST_LINE >> 20} MB")
        if line.startswith(MARKERS):
            raise _WrongLine("is a conflict marker of a merge")
        if b"\0" in line or b"\\u0000" in line:
            raise _WrongLine("has a NUL")
        try:
            content = json.loads(
                line.decode("utf-8"), object_pairs_hook=_once, parse_constant=_number, parse_float=_number, parse_int=_number
            )
            json.dumps(content, ensure_ascii=False).encode()  # fails for half of a pair of surrogates, as any page would
            value = adapter(self.kind).validate_json(line, strict=True)  # true is no number
        except UnicodeError:
            raise _WrongLine("is not UTF-8") from None
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"]))
            raise _WrongLine(shortened(printable(f"{field or 'line'}: {first['msg']}"), 300)) from None
        except (json.JSONDecodeError, RecursionError) as error:
            raise _WrongLine(f"line: Invalid JSON ({shortened(str(error), 100)})") from None
        if self.dataset != value.dataset:
            raise _WrongLine(f"dataset: is of {shortened(repr(value.dataset), 80)}, and the file has those of {self.dataset!r}")
        return value


def one_line(value: Line) -> str:
    """Return a line as it is written."""
    return json.dumps(value.content(asdict(cast(Any, value))), sort_keys=True, allow_nan=False)


class _WrongLine(Exception):
    """What is wrong with a line."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _WrongLine("has a key twice")
    return found


def _number(text: str) -> float | int:
    """The number that JSON writes as `text`, or what Python takes for one."""
    value = float(text)
    if not abs(value) <= LARGEST:
        raise _WrongLine(f"{shortened(text, 40)} is no finite number, or too large")
    return int(text) if text.lstrip("-").isdigit() else value
