"""Lines on the fits that run now: how far each of them is."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rankbench.views.phases import clock

if TYPE_CHECKING:
    from rankbench.sweeps.running import Running, RunningFit

SHOWN = 6  # fits that are shown; a cluster runs hundreds


def running_lines(running: Running) -> list[str]:
    """A line for each running fit, the oldest first; of many, the number of those that are left out."""
    fits = running.fits
    more = [f"and {len(fits) - SHOWN} more fits"] if len(fits) > SHOWN else []
    return [_line(fit) for fit in fits[:SHOWN]] + more


def _line(fit: RunningFit) -> str:
    parts = [fit.title]
    if fit.of is None or not fit.done:
        parts.append(f"running for {clock(time.monotonic() - fit.started)}")
    else:
        parts.append(f"{fit.done} of {fit.of} {fit.counted}")
    if fit.valid is not None:
        parts.append(f"{fit.metric} {fit.valid:.4f} on valid")
    if (silence := fit.silence) is not None:
        parts.append(f"no report for {clock(silence)}")
    elif fit.remaining is not None:
        # Early stopping may end it before.
        parts.append(f"{'at most ' if fit.metric else ''}{clock(fit.remaining)} left")
    return ": ".join([parts[0], ", ".join(parts[1:])])
