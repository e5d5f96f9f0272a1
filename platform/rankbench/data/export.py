"""Write a prepared dataset in raw ids, for other programs to fit on: one file per part of the split, or one in all."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import scipy.sparse as sp

from rankbench.core.errors import DataError, require
from rankbench.core.files import atomic_folder, require_writable, sha256_of, write_json, write_text
from rankbench.core.registry import nearest
from rankbench.data.prepare import Dataset

AT_ONCE = 1 << 20  # interactions in one table


@dataclass(frozen=True)
class Format:
    """How a part is written: the names of its columns, of its file, and the separator of a text."""

    columns: tuple[str, str] = ("user", "item")
    file: str = "{part}.parquet"
    separator: str = ""


FORMATS = {
    "parquet": Format(),
    "csv": Format(file="{part}.csv", separator=","),
    "recbole": Format(("user_id:token", "item_id:token"), "{name}/{name}.{part}.inter", "\t"),
    "lenskit": Format(("user_id", "item_id")),
}
WORDS = {
    "all": "all interactions",
    "train": "to fit on",
    "valid": "to choose settings by",
    "test": "what is measured: the users to rank items for; never fit on it",
    "valid_history": "what is known of the users of valid, who are not in train",
    "test_history": "what is known of the users of test, who are not in train",
}


def require_exportable(folder: Path, format: str) -> None:
    """Raise ConfigError for an unknown format and if the folder exists, and StorageError if it cannot be written."""
    require(format in FORMATS, f"--format: unknown {format!r}{nearest(format, FORMATS)}; one of {', '.join(FORMATS)}")
    require(not folder.exists(), f"--out {folder}: already exists; choose another folder")
    require_writable(folder)


def export(dataset: Dataset, folder: Path, format: str, by_part: bool, given: Sequence[str]) -> dict[str, Any]:
    """Write a new folder, whole or not at all: a file per part, README.md and split.json, whose content is returned.

    `by_part`: whether to write the parts of the split, or all interactions in one file. `given`: the words by which the user
    names the dataset and the changes of its card. Raises DataError for an id that the format cannot hold, and otherwise as
    `require_exportable`.
    """
    require_exportable(folder, format)
    form, split, parts = FORMATS[format], dataset.split, {"all": dataset.split.fit_matrix("all")}
    if by_part:
        named = {name.removesuffix("_target"): matrix for name, matrix in split.matrices.items()}
        parts = {name: matrix for name, matrix in named.items() if matrix.nnz or not name.endswith("_history")}
    about: dict[str, Any] = {
        "dataset": dataset.name,
        "changes": [*given[1:]],
        "protocol": dataset.card.split.protocol,
        "seed": dataset.card.split.seed,
        "fingerprint": dataset.fingerprint,
        "fitted_for_test": dataset.card.final_fit,
        "evaluate": shlex.join(["rankbench", "evaluate", given[0], "LISTS", *given[1:]]),
        "files": {},
    }
    with atomic_folder(folder) as scratch:
        for part, matrix in parts.items():
            file = form.file if by_part else form.file.replace("{name}.{part}", "{name}")  # RecBole splits NAME.inter itself
            path = scratch / file.format(name=dataset.name, part=part)
            path.parent.mkdir(exist_ok=True)
            _write(path, form, _tables(dataset, matrix, form.columns))
            name = path.relative_to(scratch).as_posix()
            about["files"][name] = {"is": WORDS[part], "interactions": matrix.nnz, "sha256": sha256_of(path)}
        write_json(scratch / "split.json", about)
        write_text(scratch / "README.md", _readme(about))
    return about


def _tables(dataset: Dataset, matrix: sp.csr_array, columns: tuple[str, str]) -> Iterator[pa.Table]:
    for start in range(0, max(matrix.nnz, 1), AT_ONCE):
        rows = np.arange(start, min(start + AT_ONCE, matrix.nnz))
        user = np.searchsorted(matrix.indptr, rows, side="right") - 1
        ids = dataset.users.take(pa.array(user)), dataset.items.take(pa.array(matrix.indices[rows]))
        yield pa.table(dict(zip(columns, ids, strict=True)))


def _write(path: Path, form: Format, tables: Iterator[pa.Table]) -> None:
    first = next(tables)
    with path.open("wb") as file:  # Arrow opens only paths that are valid UTF-8
        writer: Any
        if form.separator:
            quoting = "needed" if form.separator == "," else "none"  # RecBole knows no quotes
            options = csv.WriteOptions(include_header=False, delimiter=form.separator, quoting_style=quoting)
            file.write((form.separator.join(form.columns) + "\n").encode())
            writer = csv.CSVWriter(file, first.schema, write_options=options)
        else:
            writer = pq.ParquetWriter(file, first.schema, compression="zstd")
        with writer:
            try:
                for table in chain([first], tables):
                    writer.write_table(table)
            except pa.ArrowInvalid:
                raise DataError(f"{path.name}: an id has a tab, a quote or a line end; write another --format") from None


def _readme(about: dict[str, Any]) -> str:
    files = [f"- `{name}`: {file['interactions']:,} interactions, {file['is']}" for name, file in about["files"].items()]
    listed = "\n".join(files)
    return f"""# {about["dataset"]}, as rankbench splits it

Protocol {about["protocol"]}, seed {about["seed"]}, fingerprint {about["fingerprint"]}. The ids are those of the data.

{listed}

Before their test, the methods of rankbench are fitted on {about["fitted_for_test"]}; fits that validation ends, on train.
Write the lists of another program, for the users of test, as a table with the columns user, item, and rank or score.
This command measures them:

    {about["evaluate"]}
"""
