"""What the commands that fit one method may be asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rankbench.core.options import Options, option, required

PARAMS = "Parameters of the method; data.PATH=VALUE changes the card."
WORDS = {"argument": True, "metavar": "[param=value]...", "complete": "params"}


@dataclass(frozen=True, kw_only=True)
class FitOptions(Options):
    """How a method is fitted: none of these options changes what the model is."""

    address: str | None = option(None, "HOST:PORT of a Ray cluster. Default: RAY_ADDRESS if it is set, otherwise no cluster.")
    workers: int = option(
        1, "Processes that make gradient steps together, by Ray Train, each with one processor (or GPU).", min=1
    )
    device: str = option("cpu", "Device for gradient steps and inverses: cpu or cuda.", complete="devices")
    memory: str | None = option(
        None, "Memory limit (of a worker, on a cluster), such as 4GB. A closed form that needs more is solved by tiles."
    )
    resume: bool = option(False, "Continue from the last saved iteration or tiles.")
    dry_run: bool = option(False, "Predict the fit on --nodes, and exit.")
    nodes: str | None = option(None, "With --dry-run: NODESxCORESxMEMORY@GIGABITS, such as 64x16x128GB@10.", metavar="NODES")


@dataclass(frozen=True, kw_only=True)
class MetricOptions(Options):
    """What is measured."""

    metrics: str | None = option(None, "Metrics, comma-separated, such as recall,ndcg@100,auc.", complete="metrics")
    cutoffs: str | None = option(None, "Lengths k of the lists, comma-separated.  [default: 10,20,50]")


@dataclass(frozen=True, kw_only=True)
class Measured(MetricOptions):
    """What is fitted, and how it is measured."""

    dataset: str = required("A dataset's name (rankbench data list) or a card file.", argument=True, complete="datasets")
    method: str = required("A method's name (rankbench methods).", argument=True, complete="methods")
    params: list[str] | None = option(None, PARAMS, **WORDS)
    seed: int = option(0, "Seed of the method and of the bootstrap.", min=0)
    dtype: str = option("float32", "float32 or float64.", complete="dtypes")
    threads: int | None = option(None, "Number of threads, at most 4 per processor.  [default: one per processor]", min=1)
    curve: int = option(1, "Record metrics of 2,000 users every CURVE iterations; 0: never.", min=0)
    fit_on: str | None = option(
        None, "train or train+valid.  [default: as the protocol says, or train if the validation set ends the fit]"
    )
    spill: Path | None = option(None, "Folder for the tiles, shared by all hosts.  [default: in the results folder]")
    fresh: bool = option(False, "Replace an earlier record of this run.")
    track: bool = option(True, "Send the record to MLflow.", flags=("--track/--no-track",))


@dataclass(frozen=True, kw_only=True)
class RunOptions(FitOptions, Measured):
    """What is fitted, how it is measured, and how it is fitted."""


@dataclass(frozen=True, kw_only=True)
class ListOptions(MetricOptions):
    """Whose lists are measured, on what, and where the result is kept."""

    dataset: str = required("A dataset's name (rankbench data list) or a card file.", argument=True, complete="datasets")
    lists: str = required("Parquet, CSV or TSV with user, item, and rank or score; or a run of TREC.", argument=True)
    params: list[str] | None = option(
        None, "data.PATH=VALUE changes the card, as in the export.", argument=True, metavar="[data.path=value]..."
    )
    name: str | None = option(None, "Name of the lists in tables.  [default: that of the file]")
    on: str = option("test", "Part that is measured: test or valid.")
    fit_on: str | None = option(
        None, "What the other program was fitted on: train or train+valid.  [default: for test as the protocol says]"
    )
    allow_missing: bool = option(False, "Measure even if more than half of the users have no list; each counts as 0.")
    seconds: float | None = option(None, "Seconds that the fit took, as you measured them, for the tables.", min=0)
    sweep: str | None = option(
        None, "Also put them as a row into the table of this finished sweep, with its metrics.", complete="sweeps"
    )
    leaderboard: Path | None = option(None, "Also put them into this folder of a leaderboard, beside the ranks.")
    seed: int = option(0, "Seed of the bootstrap.", min=0)
    track: bool = option(True, "Send the record to MLflow.", flags=("--track/--no-track",))


@dataclass(frozen=True, kw_only=True)
class Saved(Options):
    """What is fitted and saved."""

    dataset: str | None = option(
        None, "A dataset's name (rankbench data list) or a card file; with --from, one of those.",
        argument=True, complete="datasets",
    )  # fmt: skip
    method: str | None = option(
        None, "A method's name (rankbench methods); not with --from.", argument=True, complete="methods"
    )
    params: list[str] | None = option(None, PARAMS, **WORDS)
    source: tuple[str, str] | None = option(
        None, "Fit what won: the final run of this row of a sweep.", flags=("--from",), metavar="SWEEP ROW"
    )
    fit_on: str | None = option(
        None, "train, train+valid or all; a model of all, which includes test, cannot be measured.  "
        "[default: as the protocol says, or train if the validation set ends the fit; with --from as the final run]",
    )  # fmt: skip
    to: Path = option(Path("model"), "Folder for the model; it must not exist.", flags=("--out",))
    seed: int | None = option(
        None, "Seed of methods that use random numbers.  [default: 0; with --from that of the final run]", min=0
    )
    dtype: str | None = option(
        None, "float32 or float64.  [default: float32; with --from that of the final run]", complete="dtypes"
    )
    register: str | None = option(None, "Register the model in MLflow under NAME, once it is saved.", metavar="NAME")


@dataclass(frozen=True, kw_only=True)
class ModelOptions(FitOptions, Saved):
    """What is fitted and saved, and how it is fitted."""
