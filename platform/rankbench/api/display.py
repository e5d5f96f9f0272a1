"""Which display fits the place where Python runs: a notebook, a terminal, or none of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from rankbench.core.progress import Progress
from rankbench.experiment.execution import ignore_progress
from rankbench.sweeps.views.notebook import FitInNotebook, SweepInNotebook, in_notebook
from rankbench.sweeps.views.phases import err, phase_progress
from rankbench.sweeps.views.sweep_view import SweepView

OnCurve = Callable[[Sequence[Mapping[str, float]]], None]


@contextmanager
def fit_display(progress: Progress | bool) -> Iterator[tuple[Progress, OnCurve]]:
    """Yield the functions that a fit calls with its progress and with its curve so far.

    `progress` is a function, True for the display of this place, or False for none.
    """
    if callable(progress):
        yield progress, ignore_progress
    elif progress and in_notebook():
        view = FitInNotebook()
        try:
            yield view, view.curve
        finally:
            view.close()
    elif progress and err.is_terminal:
        with phase_progress() as on_terminal:
            yield on_terminal, ignore_progress
    else:
        yield ignore_progress, ignore_progress


def sweep_display(metric: str, progress: bool) -> SweepView:
    """Return the display of a sweep; without `progress`, one that prints nothing but warnings."""
    if progress and in_notebook():
        return SweepInNotebook(metric)
    return SweepView(metric, quiet=not (progress and err.is_terminal))
