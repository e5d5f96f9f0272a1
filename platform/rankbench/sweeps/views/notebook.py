"""Progress in a notebook: one output that is replaced as the work goes on, with curves drawn live.

Only IPython's display is used, which every notebook has; no widgets need to be installed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from html import escape
from io import StringIO
from typing import Any, Self

from rankbench.core.palette import COLOURS
from rankbench.sweeps.units import Unit
from rankbench.sweeps.views.live import running_lines
from rankbench.sweeps.views.phases import clock
from rankbench.sweeps.views.sweep_view import SweepView
from rankbench.tracking.record import RunRecord

EVERY = 1.0  # seconds between two updates; a drawing takes about 0.05 s


def in_notebook() -> bool:
    """Whether this code runs in a Jupyter kernel."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


class InNotebook:
    """One place in the output of a cell, whose content is replaced at most once per second."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._shown_at = 0.0
        self._began = time.monotonic()

    def content(self) -> tuple[list[str], str]:
        """Lines of text, and a drawing below them."""
        raise NotImplementedError  # abstract: a sweep and a reproduction have their own

    def update(self, at_once: bool = False) -> None:
        if not at_once and time.monotonic() - self._shown_at < EVERY:
            return
        from IPython.display import DisplayHandle

        lines, picture = self.content()
        self._shown_at = time.monotonic()
        content = {"text/html": f"<div>{'<br>'.join(map(escape, lines))}</div>{picture}", "text/plain": ""}
        if self._handle is None:
            self._handle = DisplayHandle()  # type: ignore[no-untyped-call]
            self._handle.display(content, raw=True)
        else:
            self._handle.update(content, raw=True)

    def close(self) -> None:
        self.update(at_once=True)


def drawing(curves: Mapping[str, Sequence[tuple[float, float]]], x: str, y: str) -> str:
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
            colour, line = COLOURS[position % len(COLOURS)], ("-", "--", ":", "-.")[position // len(COLOURS) % 4]
            axis.plot(*zip(*points, strict=True), label=name, color=colour, ls=line, lw=1.5)
        axis.set(xlabel=x, ylabel=y)
        axis.grid(alpha=0.3)
        if len(drawn) > 1:
            axis.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()[text.getvalue().index("<svg") :]


class FitInNotebook(InNotebook):
    """The phases of a fit, and the loss of an iterative method by training seconds."""

    def __init__(self) -> None:
        super().__init__()
        self._phases, self._started = dict[str, str](), dict[str, float]()
        self._curve: list[tuple[float, float]] = []

    def __call__(self, phase: str, done: int, total: int | None) -> None:
        elapsed = time.monotonic() - self._started.setdefault(phase, time.monotonic())
        left = f", {clock(elapsed * (total - done) / done)} left" if total and done and done < total else ""
        self._phases[phase] = f"{phase} {done:,}{f' of {total:,}' if total else ''}, {clock(elapsed)}{left}"
        self.update()

    def curve(self, rows: Sequence[Mapping[str, float]]) -> None:
        """Take the curve so far; rows have seconds and loss."""
        self._curve = [(row["seconds"], row["loss"]) for row in rows if "loss" in row]
        self.update()

    def close(self) -> None:
        if self._phases or self._curve:
            super().close()

    def content(self) -> tuple[list[str], str]:
        return [*self._phases.values()], drawing({"loss": self._curve}, "training seconds", "loss")


class SweepInNotebook(InNotebook, SweepView):
    """A running sweep: what a log has of it, where it is now, and the best value of each arm so far as a curve over time."""

    def __init__(self, metric: str):
        InNotebook.__init__(self)
        SweepView.__init__(self, metric)
        self._curves: dict[str, list[tuple[float, float]]] = {}
        self._lines: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def say(self, line: str) -> None:
        self._lines.append(line)
        self.update(at_once=True)

    def changed(self) -> None:
        self.update()

    def done(self, unit: Unit, records: list[RunRecord]) -> None:
        super().done(unit, records)
        if self.progress.stage == "search":
            for label, value in self.progress.best.items():
                self._curves.setdefault(label, []).append((time.monotonic() - self._began, value))
        self.update()

    def content(self) -> tuple[list[str], str]:
        # At its end, a stage is a line that was said.
        going = self.running is not None and self.progress.done < self.progress.of
        now = [self.summary(), *running_lines(self.progress.running)] if going else []
        return [*self._lines, *now], drawing(self._curves, "seconds", f"best {self.metric} on valid")
