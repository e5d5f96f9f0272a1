"""The format of a file, an archive or a folder by its names and first bytes: the same for cards and for `data import`."""

from __future__ import annotations

import io
import re
from itertools import islice
from pathlib import PurePosixPath

from rankbench.core.errors import DataError
from rankbench.data.raw import RawFile, blocks_of_lines
from rankbench.data.readers import movielens

PARQUET = b"PAR1"  # the first bytes


def format_of_names(names: list[str]) -> str | None:
    """The format of a folder or an archive of files with these names; None if the names do not tell."""
    bases = [PurePosixPath(name).name for name in names]
    if any(base.endswith(".inter") for base in bases):
        return "recbole"
    if sum(base in movielens.RATINGS for base in bases) == 1:
        return "movielens"
    return "elliot" if "train.tsv" in bases and "test.tsv" in bases else None


def format_of_file(raw: RawFile, columns: bool) -> str | None:
    """The format of a single file; None for a text with one interaction per line. `columns`: whether some are named, as in the
    files of MovieLens they need not be, and in those of LightGCN cannot be.
    """
    base = PurePosixPath(raw.member or raw.path.name).name.lower().removesuffix(".gz")
    if base.endswith(".inter"):
        return "recbole"
    if base.endswith((".parquet", ".pq")) or _begins(raw):
        return "parquet"
    lines = first_lines(raw)
    if base in movielens.RATINGS and not columns and lines and movielens.form_of(lines[0]):
        return "movielens"
    if lines and lines[0].startswith("{"):
        return "json-lines"
    if not columns and all(re.fullmatch(r"\d+( \d+)*", line.strip()) for line in lines):
        lengths = {len(line.split()) for line in lines}
        # Interactions with a value have lines of one length, too, but their users come again.
        if (len(lengths) > 1 or (len(lines) > 1 and max(lengths) > 2)) and not _a_user_comes_again(raw):
            return "user-lines"
        if len(lengths) > 1:
            what = "lines of several lengths, of which some begin with the same number"
            raise DataError(f"{raw.path}: {what}: are they baskets? Write a user, such as the number of the line, before each")
    return None


def _a_user_comes_again(raw: RawFile) -> bool:
    users = [line.split(maxsplit=1)[0] for line in first_lines(raw, 1_000_000)]
    return len({*users}) < len(users)


def first_lines(raw: RawFile, most: int = 20) -> list[str]:
    """The first lines of a text that are not empty."""
    with raw.open() as file:
        for _, block in blocks_of_lines(file, str(raw.path), raw.spec.encoding):
            filled = (line for line in io.BytesIO(block) if line.strip())
            return [line.decode(errors="replace").removesuffix("\n") for line in islice(filled, most)]
    return []


def _begins(raw: RawFile) -> bool:
    with raw.open() as file:
        return file.read(len(PARQUET)) == PARQUET
