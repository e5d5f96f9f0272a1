"""The energy that the machine used during a fit, where it is measured; nothing is estimated.

Counters of the machine are read: those of the packages of its processors (RAPL, by codecarbon) and, for a fit on a GPU, those
of all its NVIDIA GPUs (NVML). They count whoever uses the machine and what it needs when idle, and cannot be divided among
fits. So a fit has a number only if it had the machine for itself, by the processor time that other processes took meanwhile.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

POWERCAP = Path("/sys/class/powercap")
EVERY = 20.0  # seconds between two readings: counters of packages begin again at 0 after some minutes
MOST_WATTS = 1000.0  # of a package: a reading that comes so late that a counter may have begun again twice counts for nothing
OTHERS = 0.1  # the most processor time of other processes, as a share of that of the fit


class EnergyMeter:
    """Measures from now on. `powercap` is the kernel's folder with the counters of packages."""

    def __init__(self, device: str = "cpu", powercap: Path = POWERCAP):
        self._packages, self._gpus = _packages(powercap), _gpus() if device != "cpu" else []
        self._known = bool(self._packages) and self._gpus is not None
        self._joules = 0.0
        if not self._known:
            return
        for package in self._packages:
            package.start()
        self._at_gpus, self._busy = _millijoules(self._gpus), _processor_seconds()
        self._read_at, self._over = time.monotonic(), threading.Event()
        # The thread ends with the meter, which is never stopped where a fit ends by an error.
        self._thread = threading.Thread(target=_watch, args=(weakref.ref(self), self._over), daemon=True)
        self._thread.start()

    def stop(self) -> float | None:
        """Return the joules since the beginning; None where they are unknown."""
        if not self._known:
            return None
        self._over.set()
        self._thread.join()
        try:
            self._read()
            gpus = (_millijoules(self._gpus) - self._at_gpus) / 1000
        except Exception:  # of a driver that has failed meanwhile: the fit is done, and has its result
            return None
        (all_before, own_before), (every, own) = self._busy, _processor_seconds()
        fit = own - own_before
        alone = every - all_before - fit <= OTHERS * fit
        return round(self._joules + gpus, 1) if self._known and alone else None

    def _read(self) -> None:
        from codecarbon.core.units import Energy, Time

        now, duration = time.monotonic(), Time.from_seconds(max(time.monotonic() - self._read_at, 1e-3))
        for package in self._packages:
            package.delta(duration)
            joules, whole = (float(each) / Energy.JOULES_TO_KWH for each in (package.energy_delta, package.max_energy_reading))
            self._known = self._known and not package.sample_skipped and (now - self._read_at) * MOST_WATTS < whole
            self._joules += joules
        self._read_at = now


def _watch(meter: weakref.ref[EnergyMeter], over: threading.Event) -> None:
    while not over.wait(EVERY) and (alive := meter()) is not None:
        alive._read()
        del alive


def _packages(powercap: Path) -> list[Any]:
    """Return codecarbon's readers of the packages, without any if the kernel has none, or lets this user not read all."""
    files = [*powercap.glob("intel-rapl:*/energy_uj")]
    if not files or find_spec("codecarbon") is None or not all(os.access(file, os.R_OK) for file in files):
        return []
    logging.getLogger("codecarbon").setLevel(logging.CRITICAL)
    from codecarbon.core.cpu import IntelRAPL

    meter = IntelRAPL(str(powercap / "intel-rapl"))
    meter.start()  # leaves out counters that are another one under a second name
    twice = meter._mirrored_candidates
    return [each for each in meter._rapl_files if each.name.startswith("Processor Energy") and each.path not in twice]


def _gpus() -> list[Any] | None:
    """Return NVML's handles of all GPUs; None if it cannot tell their energy."""
    try:
        import pynvml

        pynvml.nvmlInit()
        found = [pynvml.nvmlDeviceGetHandleByIndex(number) for number in range(pynvml.nvmlDeviceGetCount())]
        _millijoules(found)
    except Exception:  # no package, no driver, or a GPU that is too old: errors of NVML have no common class without it
        return None
    return found or None


def _millijoules(gpus: list[Any] | None) -> float:
    if not gpus:
        return 0.0
    import pynvml

    return float(sum(pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu) for gpu in gpus))


def _processor_seconds() -> tuple[float, float]:
    """Return the seconds that processors have worked: for all processes, and for this one with those that it started."""
    machine, me = psutil.cpu_times(), psutil.Process()
    idle = sum(getattr(machine, name, 0.0) for name in ("idle", "iowait", "guest", "guest_nice"))  # guests are in user and nice
    every = sum(machine) - idle
    own = me.cpu_times()
    children = 0.0
    for child in me.children(recursive=True):
        try:
            children += sum(child.cpu_times()[:2])
        except psutil.Error:
            continue  # it has ended; its seconds count as those of another process
    return every, own.user + own.system + children
