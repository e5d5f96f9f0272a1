"""The store of what was measured: a folder with a file per dataset and kind of line, small enough to be committed.

DATASET.KIND.jsonl has the lines of a kind, such as gowalla.fits.jsonl. What each kind is, papers and leaderboards say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from rankbench.core.errors import DataError
from rankbench.ledger.json_lines import JsonLines
from rankbench.ledger.line import Line

T = TypeVar("T", bound=Line)


class Ledger:
    """The lines of a folder, which need not exist. `add` writes the file of the dataset anew, whole or not at all; with
    `read_only` it only remembers the line.
    """

    kinds: ClassVar[Mapping[str, type[Line]]]

    def __init__(self, folder: Path, read_only: bool = False, skipped: list[str] | None = None):
        """Read the folder. Raises DataError naming file and line for what cannot be read; with `skipped`, it is described there
        and left out, and nothing is written.
        """
        self.folder, self.read_only = folder, read_only or skipped is not None
        self._lines: dict[tuple[type[Line], str], list[Any]] = {}
        self.read(skipped)

    def read(self, skipped: list[str] | None = None) -> Self:
        """Read all files, to which other processes may have added lines."""
        for path in sorted(self.folder.glob("[!.]*.jsonl")):  # not what another process is writing
            dataset, _, name = path.name.removesuffix(".jsonl").rpartition(".")
            if name in self.kinds and dataset:
                self._lines[self.kinds[name], dataset] = self._file(self.kinds[name], dataset).read(skipped)
                continue
            problem = f"{path}: expected a name that ends in {', '.join(f'.{each}.jsonl' for each in self.kinds)}"
            if skipped is None:
                raise DataError(problem)
            skipped.append(problem)
        return self

    def read_again(self, kind: type[Line], dataset: str) -> None:
        """Read one file, to which other processes may have added lines."""
        self._lines[kind, dataset] = self._file(kind, dataset).read()

    def datasets(self, kind: type[Line]) -> list[str]:
        """The datasets with lines of a kind, in the order of their files."""
        return [dataset for each, dataset in self._lines if each is kind]

    def lines(self, kind: type[T], dataset: str) -> list[T]:
        """The lines of a kind about a dataset, in their order."""
        return self._lines.get((kind, dataset), [])

    def with_key(self, kind: type[T], dataset: str, key: tuple[Any, ...]) -> T | None:
        """The line of a kind about a dataset with a key, None if there is none."""
        return next((each for each in self.lines(kind, dataset) if each.key == key), None)

    def all(self, kind: type[T]) -> Iterator[T]:
        """The lines of a kind about all datasets."""
        for dataset in self.datasets(kind):
            yield from self.lines(kind, dataset)

    def add(self, line: Line) -> None:
        """Add a line, in place of those that it replaces. Lines that another process has added to the file since it was read
        are kept.
        """
        kind, dataset = type(line), line.dataset
        if self.read_only:
            self._lines[kind, dataset] = _with(line, self.lines(kind, dataset))
        else:
            self._lines[kind, dataset] = self._file(kind, dataset).update(lambda stored: _with(line, stored))

    def _file(self, kind: type[T], dataset: str) -> JsonLines[T]:
        name = next(name for name, each in self.kinds.items() if each is kind)
        return JsonLines(self.folder / f"{dataset}.{name}.jsonl", kind, dataset)


def _with(line: T, known: Iterable[T]) -> list[T]:
    """Return the lines in order, with `line` in place of those that it replaces."""
    kept, replaced = list[T](), list[T]()
    for each in known:
        (replaced if line.replaces(each) else kept).append(each)
    new = replaced if any(line.yields_to(each) for each in replaced) else [line]
    return sorted([*kept, *new], key=lambda each: each.key)
