"""The energy of a fit, read by the library from files as the kernel has them; and no number where it is not known."""

import dataclasses
import os

import pytest

from rankbench.reports.rows import row_of
from rankbench.tracking import energy
from rankbench.tracking.energy import EnergyMeter
from rankbench.tracking.record import read_record, record_content, write_record
from rankbench.tracking.run_fields import record_metrics

from .test_record import RECORD

pytest.importorskip("codecarbon", reason="the extra energy is not installed")
WHOLE = 262_143_328_850  # microjoules until a counter begins again, on many machines


@pytest.fixture
def powercap(tmp_path, monkeypatch):
    """The kernel's folder on a machine with two sockets, whose packages have a core and memory below them."""
    for socket in range(2):
        for name, kind in ((f"intel-rapl:{socket}", f"package-{socket}"), (f"intel-rapl:{socket}:0", "core")):
            above = tmp_path / "intel-rapl" if name.count(":") == 1 else tmp_path / "intel-rapl" / f"intel-rapl:{socket}"
            (folder := above / name).mkdir(parents=True)
            (tmp_path / name).symlink_to(folder)
            (folder / "name").write_text(f"{kind}\n")
            (folder / "max_energy_range_uj").write_text(f"{WHOLE}\n")
            count(tmp_path, name, 5_000_000 + socket * 7_000_000)
    seconds = iter([(100.0, 40.0), (160.0, 99.0)])  # of 60 seconds of the processors, 59 are of this process
    monkeypatch.setattr(energy, "_processor_seconds", lambda: next(seconds))
    return tmp_path


def count(powercap, name, microjoules):
    (powercap / name / "energy_uj").write_text(f"{microjoules}\n")


def test_the_packages_are_added_and_what_is_a_part_of_them_is_not(powercap):
    meter = EnergyMeter(powercap=powercap)
    count(powercap, "intel-rapl:0", 5_000_000 + 120_000_000)
    count(powercap, "intel-rapl:0:0", 90_000_000)
    count(powercap, "intel-rapl:1", 12_000_000 + 30_000_000)
    assert meter.stop() == pytest.approx(150, rel=1e-4)


def test_a_counter_that_begins_again_goes_on_counting(powercap):
    count(powercap, "intel-rapl:0", WHOLE - 40_000_000)
    meter = EnergyMeter(powercap=powercap)
    count(powercap, "intel-rapl:0", 60_000_000)
    meter._read()  # as from time to time during a fit
    count(powercap, "intel-rapl:0", 75_000_000)
    assert meter.stop() == pytest.approx(115, rel=1e-4)


def late(powercap, monkeypatch):
    """A counter may have begun again twice since the last reading."""
    meter = EnergyMeter(powercap=powercap)
    meter._read_at -= 300
    return meter


def of_others(powercap, monkeypatch):
    seconds = iter([(100.0, 40.0), (160.0, 90.0)])
    monkeypatch.setattr(energy, "_processor_seconds", lambda: next(seconds))
    return EnergyMeter(powercap=powercap)


def unreadable(powercap, monkeypatch):
    readable = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: "intel-rapl:1/" not in str(path) and readable(path, mode))
    return EnergyMeter(powercap=powercap)


def lost(powercap, monkeypatch):
    meter = EnergyMeter(powercap=powercap)
    (powercap / "intel-rapl:1" / "energy_uj").unlink()
    return meter


def failing_gpu(powercap, monkeypatch):
    """Its driver fails during the fit."""
    monkeypatch.setattr(energy, "_gpus", lambda: ["gpu"])
    monkeypatch.setattr(energy, "_millijoules", lambda gpus: 7_000.0)
    meter = EnergyMeter("cuda", powercap)
    monkeypatch.setattr(energy, "_millijoules", lambda gpus: 1 / 0)
    return meter


def without_library(powercap, monkeypatch):
    monkeypatch.setattr(energy, "find_spec", lambda name: None)
    return EnergyMeter(powercap=powercap)


def without_counters(powercap, monkeypatch):
    return EnergyMeter(powercap=powercap / "none")


def without_gpu(powercap, monkeypatch):
    return EnergyMeter("cuda", powercap)


@pytest.mark.parametrize(
    "why", [late, of_others, unreadable, lost, failing_gpu, without_library, without_counters, without_gpu]
)
def test_what_is_not_known_is_no_number(powercap, monkeypatch, why):
    meter = why(powercap, monkeypatch)
    count(powercap, "intel-rapl:0", 500_000_000)
    assert meter.stop() is None


def test_a_gpu_is_added(powercap, monkeypatch):
    counted = iter([7_000, 7_000, 19_500])
    monkeypatch.setattr(energy, "_gpus", lambda: ["gpu"])
    monkeypatch.setattr(energy, "_millijoules", lambda gpus: next(counted) if gpus else 0.0)
    next(counted)
    meter = EnergyMeter("cuda", powercap)
    count(powercap, "intel-rapl:0", 8_000_000)
    assert meter.stop() == pytest.approx(12.5 + 3, rel=1e-3)


def test_a_record_has_joules_only_where_they_were_measured(tmp_path):
    assert "joules" not in record_content(RECORD) and "energy/joules" not in record_metrics(RECORD)
    measured = dataclasses.replace(RECORD, joules=1234.5)
    assert read_record(write_record(tmp_path, measured, None)).joules == 1234.5
    assert record_metrics(measured)["energy/joules"] == 1234.5
    rows = [row_of(records, ("ndcg@20",), {}, 1, {}) for records in ([measured] * 2, [measured, RECORD])]
    assert [row.joules for row in rows] == [1234.5, None]
