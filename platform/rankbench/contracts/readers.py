"""What is asked of every reader: tables of the declared columns, and for damaged files an error that names the file."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from rankbench.contracts.check import BrokenError, Contract, NotCheckedError, expect
from rankbench.core.errors import DataError, first_line
from rankbench.data.cards import Read
from rankbench.data.raw import RawFile
from rankbench.data.readers import READERS, Reader, problem_of

CONTRACT = Contract("reader")
DAMAGED = 300  # files
PIECES = (b"", b"\x00", b"\xef\xbb\xbf", b"\xff", b'"', b"\n", b"\r", b"{", b"-", b"9" * 30)


def read(reader: Reader, content: bytes) -> list[pa.Table]:
    """The tables of a file with this content. Raises BrokenError for a wrong table, and what the reader raises."""
    name = next(name for name in READERS.names() if READERS.get(name) is reader)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "raw"
        path.write_bytes(content)
        raw = RawFile("all", path, "", Read(format=name, **reader.options), "file")
        try:
            tables = list(reader.read(raw))
        except DataError as error:
            expect(str(error).startswith(f"{path}"), f"the error does not begin with the path of the file: {error}")
            raise
    for table in tables:
        problem = problem_of(table)
        expect(not problem, problem)
    return tables


def damaged(content: bytes, number: int) -> Iterator[bytes]:
    """`number` files: the content with parts cut out, repeated or replaced, the same in each call."""
    rng = random.Random(7)
    for _ in range(number):
        harmed = content
        for _ in range(rng.choice([1, 1, 2, 3])):
            start, end = sorted((rng.randint(0, len(harmed)), rng.randint(0, len(harmed))))
            end = rng.choice([end, min(start + 1, end), len(harmed)])
            harmed = harmed[:start] + rng.choice([*PIECES, harmed[start:end][::-1], 3 * harmed[start:end]]) + harmed[end:]
        yield harmed


@CONTRACT.check(
    "the example is read: the columns user and item, without gaps, and perhaps value and time",
    "yield pyarrow tables with user and item (int64 or string) and, if the card names them, value (float64), time (int64)",
)
def example_is_read(reader: Reader) -> None:
    if not reader.example:
        raise NotCheckedError("no example is declared: add example=b'...', a small file, to @reads")
    tables = read(reader, reader.example)
    expect(sum(len(table) for table in tables) > 0, "the example has no interactions")
    expect(all(one.equals(two) for one, two in zip(tables, read(reader, reader.example), strict=True)), "two readings differ")


@CONTRACT.check(
    "any damaged file is read or refused in one line that names it",
    "raise rankbench.core.errors.DataError(f'{raw.path}:{line}: what is wrong') for whatever the file holds",
)
def damaged_files_are_refused(reader: Reader) -> None:
    noise = random.Random(8)
    texts = (bytes(noise.choices(range(256), k=noise.randint(0, 400))) for _ in range(DAMAGED // 3))
    for content in (b"", *texts, *(damaged(reader.example, DAMAGED) if reader.example else ())):
        try:
            read(reader, content)
        except DataError as error:
            expect("\n" not in str(error), f"the error has several lines: {first_line(error)}")
        except BrokenError:
            raise
        except Exception as error:
            raise BrokenError(f"{type(error).__name__} for {content[:60]!r}: {first_line(error)}") from None
