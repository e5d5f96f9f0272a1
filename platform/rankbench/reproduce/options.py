"""What `rankbench reproduce` may be asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rankbench.core.durations import seconds_of
from rankbench.core.errors import require
from rankbench.core.options import Options, cluster_address, comma_separated, lines_to_skip, option

TABLES = "Papers and tables, such as talos/3.1. Default: all."
PLACE = {"metavar": "[PAPER[/TABLE]]...", "argument": True, "complete": "tables"}
STORE = "Folder of the evidence. Default: evidence/ beside the experiment files, or in the results folder."


@dataclass(frozen=True)
class StoreOptions(Options):
    """How the evidence is read."""

    store: Path | None = option(None, STORE)
    skip_bad: bool = lines_to_skip()


@dataclass(frozen=True)
class StatusOptions(StoreOptions):
    """What is counted."""

    tables: list[str] | None = option(None, TABLES, **PLACE)


@dataclass(frozen=True)
class ReproduceOptions(Options):
    """What is measured."""

    tables: list[str] | None = option(None, TABLES, **PLACE)
    budget: str | None = option(None, "Time to spend, such as 90s, 10m or 2h. Default: until all is measured.")
    datasets: Sequence[str] = option(
        (), "Only these datasets of the tables, comma-separated.", parse=comma_separated, complete="selected_datasets"
    )
    search_budget: str | None = option(
        None, "Training time that the search of each row may use, the same for all. Default: all draws."
    )
    stages: Sequence[str] = option(
        (), "Only these stages of the work, comma-separated, such as printed or seeds; --dry-run shows the stages. The stage "
        "again, only done if it is named, fits what other machines have measured.", parse=comma_separated,
    )  # fmt: skip
    rows: Sequence[str] = option(
        (), "Only the rows with these labels, separated by semicolons, such as 'Talos, MF; SL, MF'.",
        parse=lambda text: [label for each in text.split(";") if (label := each.strip())],
    )  # fmt: skip
    alone: bool = option(
        False, "Measure seconds: run one measured fit per method again, alone on an idle machine with all processors."
    )
    address: str | None = cluster_address()
    device: str | None = option(
        None, "Device for gradient steps and inverses: cpu or cuda. Default: as in the file.", complete="devices"
    )
    gpus: float | None = option(None, "With --device cuda, the share of a GPU for each fit: with 0.25, four fits share it.")
    store: Path | None = option(None, STORE)

    @property
    def seconds(self) -> float | None:
        """The time to spend."""
        return None if self.budget is None else seconds_of(self.budget, "--budget")

    @property
    def search_seconds(self) -> float | None:
        """The training time that each search may use."""
        return None if self.search_budget is None else seconds_of(self.search_budget, "--search-budget")

    def check(self) -> None:
        """Raise ConfigError if options contradict each other."""
        require(not (self.alone and self.stages), "--alone runs measured fits of all stages again; leave out --stages")
        require(self.device in (None, "cpu", "cuda"), f"--device {self.device}: expected cpu or cuda")
        require(not (self.alone and self.device == "cuda"), "--alone measures seconds of processors; leave out --device cuda")
        require(self.gpus is None or self.device == "cuda", f"--gpus {self.gpus} is a share of a GPU; add --device cuda")
        share = self.gpus is None or 0 < self.gpus <= 1
        require(share, f"--gpus {self.gpus}: expected a share above 0, and at most 1")
        _ = self.seconds
        require(self.search_seconds != 0, f"--search-budget {self.search_budget} leaves a search no time; give it more")
        require(not (self.alone and self.address), "--alone measures this machine; leave out --address")
