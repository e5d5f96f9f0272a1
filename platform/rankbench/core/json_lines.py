"""Files with a line of JSON per value, each read as a dataclass."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from rankbench.core.errors import DataError

T = TypeVar("T")


def read_json_lines(path: Path, kind: type[T]) -> list[T]:
    """Return the lines of a file as values of `kind`. Raises DataError naming the file, and the wrong line and field."""
    lines, adapter = [], TypeAdapter(kind)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: {error}") from None
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            lines.append(adapter.validate_json(line))
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"]))
            raise DataError(f"{path}:{number}: {field or 'line'}: {first['msg']}") from None
    return lines
