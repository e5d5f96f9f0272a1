"""The commands that repeat a sweep, and one row of its table."""

from __future__ import annotations

import json
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

from rankbench.core.config import scalar
from rankbench.evaluation.metrics import metric_set
from rankbench.schema.datasets import flatten
from rankbench.schema.stored_sweep import SweepFile
from rankbench.tracking.record import RunRecord


def row_command(about: SweepFile, record: RunRecord, searched: RunRecord | None, columns: tuple[str, ...]) -> str:
    """Return the command that fits and measures the final run `record` again; empty if one command cannot do it.

    `searched` is the run of the search whose setting was chosen, if there was a search; `columns` are the metrics of the table.
    """
    experiment = about.experiment
    entry = experiment.entry_of(record.dataset.name)
    # `rankbench run` fits on the part that the split prescribes, and reads the card of a stand-in from no file.
    if experiment.final.fit_on != "auto" or (isinstance(entry, dict) and "card" in entry):
        return ""
    words = ["rankbench", "run", entry if isinstance(entry, str) else str(entry.get("file", entry["name"])), record.method]
    arm = next((each for each in experiment.arms if each.label == record.label), None)
    stated = {*arm.params}.union(*arm.chosen.values()) if arm else set(record.params)
    # The final fit of a search that ended early has the best number of iterations.
    changed = {name for name, value in searched.params.items() if record.params.get(name) != value} if searched else set()
    words += [assignment(name, value) for name, value in record.params.items() if name in stated | changed]
    if isinstance(entry, dict):
        words += [assignment(f"data.{path}", value) for path, value in flatten(entry).items() if path not in ("name", "file")]
    if experiment.final.split_seeds is not None:
        words = [word for word in words if not word.startswith("data.split.seed=")]
        words.append(f"data.split.seed={record.dataset.split_seed}")
    if record.seed:
        words += ["--seed", str(record.seed)]
    if record.dtype != "float32":
        words += ["--dtype", record.dtype]
    if record.device != "cpu":
        words += ["--device", record.device.partition(":")[0]]
    if not {*columns} <= {*metric_set().names}:
        words += ["--metrics", ",".join(columns)]
    words += [word for file in _plugins(about) for word in ("--plugin", file)]
    return " ".join(shlex.quote(word) for word in words)


def _plugins(about: SweepFile) -> list[str]:
    """Return the plugins of the command and of the experiment file, whose files are relative to it."""
    try:
        words = shlex.split(about.command or "")
    except ValueError:  # a file that somebody has edited
        words = []
    given = [file for option, file in pairwise(words) if option == "--plugin"]
    folder = Path(words[2]).parent if len(words) > 2 else Path()
    return given + [str(folder / name) if name.endswith(".py") else name for name in about.experiment.plugins]


def assignment(name: str, value: Any) -> str:
    """Return `name=value` such that the command reads the same value."""
    plain = value if isinstance(value, str) else json.dumps(value)
    return f"{name}={plain if scalar(plain) == value else json.dumps(value)}"
