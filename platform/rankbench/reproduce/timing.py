"""Seconds that can be compared: one fit per method, alone on the machine with all of its processors."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace

from rankbench.core.environment import Environment
from rankbench.core.errors import ConfigError
from rankbench.data.prepare import prepare
from rankbench.evaluation.metrics import MetricSet
from rankbench.experiment.estimate import Size
from rankbench.reproduce.evidence import Evidence, stored_fit
from rankbench.reproduce.ledger_records import StoredFit
from rankbench.reproduce.required_fits import PaperRow, RequiredFit, required_fits
from rankbench.reproduce.schedule import measurement_of
from rankbench.reproduce.search import Done
from rankbench.schema.experiment import ExperimentSpec
from rankbench.sweeps.units import Unit, units
from rankbench.tracking.record import RunRecord

# What describes the seconds of a line, and not its metrics.
OF_SECONDS = ("seconds", "fit_shared_by", "peak_memory_gb", "threads", "device", "cpu", "idle")
CPU = "cpu"
QUIET = 0.25  # load per processor up to which a machine counts as idle

Run = Callable[[Unit, ExperimentSpec, Done], None]


def require_idle(cpus: int) -> None:
    """Raise ConfigError if other processes use the machine."""
    load = os.getloadavg()[0]
    if load > QUIET * cpus:
        raise ConfigError(
            f"--alone: other processes use this machine (load {load:.1f} on {cpus} processors), so seconds could not be "
            "compared; end them, wait a minute and try again"
        )


def untimed(rows: Iterable[PaperRow], evidence: Evidence) -> list[RequiredFit]:
    """Return one fit per dataset, method and encoder that was measured on processors, as it will be timed, and of which none
    was timed alone.
    """
    first: dict[tuple[str, str, str], RequiredFit] = {}
    timed = set()
    for fit in required_fits(rows, evidence):
        kind = (fit.card.name, fit.config.method, str(fit.config.flat.get("model", "")))
        found = evidence.find(fit.card.name, fit.card_key, fit.config, fit.part, fit.dtype)
        if any(each.idle for each in found):
            timed.add(kind)
        elif (known := measurement_of(fit, evidence)) and known.device == CPU:
            first.setdefault(kind, fit)
    return [fit for kind, fit in first.items() if kind not in timed]


def time_alone(
    fit: RequiredFit, evidence: Evidence, environment: Environment, metrics: MetricSet, cpus: int, run: Run
) -> RunRecord | None:
    """Fit once more on all `cpus` processors and store the seconds with the fit that is known, whose metrics and tests stay
    those of its own run; None if the fit failed. `run(unit, spec, done)` runs the unit with the resources of `spec` and calls
    `done` with its records. It must not use records of other runs, which shared the machine.
    """
    known = measurement_of(fit, evidence)
    assert known, "only a measured fit is timed"
    spec = fit.experiment
    resources = spec.resources.model_copy(update={"cpus": cpus, "concurrent": 1, "device": CPU, "gpus": 1.0})
    alone = spec.model_copy(update={"resources": resources})
    size = Size.of(prepare(fit.card, environment))
    (unit,) = units(fit.card, size, [fit.config], alone, metrics, "final", cpus)
    fitted: list[RunRecord] = []
    run(unit, alone, lambda unit, records, cached: fitted.extend(records))
    finished = [record for record in fitted if record.finished]
    for record in finished:
        evidence.add(_with_seconds_of(stored_fit(record, fit.config, fit.card_key, idle=True, metrics=fit.metrics), known))
    return finished[0] if finished else None


def keep_seconds(line: StoredFit, fit: RequiredFit, evidence: Evidence) -> StoredFit:
    """Return the line of a fit that was made again, with the seconds that it took alone, if the evidence has them."""
    known = measurement_of(fit, evidence)
    timed = known is not None and known.idle and (known.fingerprint, known.device) == (line.fingerprint, line.device)
    return _with_seconds_of(known, line) if known and timed else line


def _with_seconds_of(timed: StoredFit, line: StoredFit) -> StoredFit:
    """Return the line with the seconds of the timed fit. If its curves are of a slower fit, it gets those of the timed one."""
    slower = any(seconds > timed.seconds["fit"] for curve in line.curves for _, seconds, _ in curve.points)
    named = (*OF_SECONDS, "curves") if slower else OF_SECONDS
    return replace(line, **{name: getattr(timed, name) for name in named})
