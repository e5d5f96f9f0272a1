"""Progress in a notebook: one output that is replaced as the work goes on, with curves drawn live.

Only IPython's display is used, which every notebook has; no widgets need to be installed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from html import escape
from io import StringIO
from pathlib import Path
from types import TracebackType
from typing import Any

from rankbench.sweeps.heartbeat import Progress
from rankbench.sweeps.plan import Plan
from rankbench.sweeps.units import Unit
from rankbench.tracking.record import RunRecord
from rankbench.views.phases import clock
from rankbench.views.running_lines import running_lines
from rankbench.views.sweep_view import summary

EVERY = 1.0  # seconds between two updates; a drawing takes about 0.05 s
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")  # Okabe & Ito, for all eyes

Curve = Sequence[tuple[float, float]]


def in_notebook() -> bool:
    """Whether this code runs in a Jupyter kernel."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


class Output:
    """One place in the output of a cell, whose content is replaced at most once per second."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._shown_at = 0.0

    def due(self) -> bool:
        return time.monotonic() - self._shown_at >= EVERY

    def show(self, html: str) -> None:
        from IPython.display import DisplayHandle

        self._shown_at = time.monotonic()
        content = {"text/html": html, "text/plain": ""}
        if self._handle is None:
            self._handle = DisplayHandle()  # type: ignore[no-untyped-call]
            self._handle.display(content, raw=True)
        else:
            self._handle.update(content, raw=True)


def drawing(curves: Mapping[str, Curve], x: str, y: str) -> str:
    """Return an SVG picture of the curves, one colour per name; an empty string if no curve has two points."""
    drawn = {name: points for name, points in curves.items() if len(points) > 1}
    if not drawn:
        return ""
    from matplotlib import rc_context
    from matplotlib.figure import Figure  # not pyplot, whose settings belong to the user of the notebook

    text = StringIO()
    # Text as text, which is smaller; a dollar sign in a name is one.
    with rc_context({"svg.fonttype": "none", "text.parse_math": False}):
        figure = Figure(figsize=(7, 2.8), layout="constrained", facecolor="white")
        axis = figure.subplots()
        for position, (name, points) in enumerate(drawn.items()):
            axis.plot(*zip(*points, strict=True), label=name, color=COLOURS[position % len(COLOURS)], lw=1.5)
        axis.set(xlabel=x, ylabel=y)
        axis.grid(alpha=0.3)
        if len(drawn) > 1:
            axis.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()[text.getvalue().index("<svg") :]


class FitInNotebook:
    """The phases of a fit, and the loss of an iterative method by training seconds."""

    def __init__(self) -> None:
        self._output, self._phases = Output(), dict[str, str]()
        self._curve: list[tuple[float, float]] = []
        self._started: dict[str, float] = {}

    def __call__(self, phase: str, done: int, total: int | None) -> None:
        elapsed = time.monotonic() - self._started.setdefault(phase, time.monotonic())
        left = f", {clock(elapsed * (total - done) / done)} left" if total and done and done < total else ""
        self._phases[phase] = f"{phase} {done:,}{f' of {total:,}' if total else ''}, {clock(elapsed)}{left}"
        self._update()

    def curve(self, rows: Sequence[Mapping[str, float]]) -> None:
        """Take the curve so far; rows have seconds and loss."""
        self._curve = [(row["seconds"], row["loss"]) for row in rows if "loss" in row]
        self._update()

    def _update(self, at_once: bool = False) -> None:
        if at_once or self._output.due():
            lines = "<br>".join(map(escape, self._phases.values()))
            self._output.show(f"<div>{lines}</div>{drawing({'loss': self._curve}, 'training seconds', 'loss')}")

    def close(self) -> None:
        self._update(at_once=True)


class SweepInNotebook:
    """A running sweep: its fits and remaining time, and the best value of each arm so far as a curve over time."""

    def __init__(self, metric: str):
        self.metric = metric
        self._output = Output()
        self._progress: Progress | None = None
        self._best: dict[str, list[tuple[float, float]]] = {}
        self._lines: list[str] = []
        self._started = time.monotonic()

    def __enter__(self) -> SweepInNotebook:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._update(at_once=True)

    def accept(self, plan: Plan, begun: Path | None) -> None:
        """Ask nothing: a cell that runs a sweep was meant to."""

    def planned(self, plan: Plan, folder: Path) -> None:
        here = Path.cwd()
        shown = folder.relative_to(here) if folder.is_relative_to(here) else folder
        self._lines.append(f"{plan.spec.name}: {plan.n_settings} settings in {plan.n_fits} fits → {shown}")
        self._lines += [f"not available: {problem.reason}" for problem in plan.not_available.values()]
        self._update(at_once=True)

    def warn(self, line: str) -> None:
        self._lines.append(f"warning: {line}")
        self._update(at_once=True)

    def stage(self, progress: Progress) -> None:
        self._progress = progress
        progress.running.on_change = self._update
        self._update(at_once=True)

    def done(self, unit: Unit, records: list[RunRecord]) -> None:
        self._lines += [f"{record.arm or record.method} failed: {record.error}" for record in records if record.failed]
        if self._progress and self._progress.stage == "search":
            for label, value in self._progress.best.items():
                self._best.setdefault(label, []).append((time.monotonic() - self._started, value))
        self._update()

    def _update(self, at_once: bool = False) -> None:
        if at_once or self._output.due():
            now = [summary(self._progress), *running_lines(self._progress.running)] if self._progress else []
            lines = [*self._lines, *now]
            curves = drawing(self._best, "seconds", f"best {self.metric} on valid")
            self._output.show(f"<div>{'<br>'.join(map(escape, lines))}</div>{curves}")
