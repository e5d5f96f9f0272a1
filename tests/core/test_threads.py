"""What a fit does to the threads of the libraries below it."""

import os
import subprocess
import sys

import numba
import pytest
import torch
from threadpoolctl import threadpool_info

from rankbench.core import control_groups
from rankbench.core.errors import ConfigError
from rankbench.core.threads import available_cpus, own_threads, pinned
from rankbench.data.cards import load_card
from rankbench.experiment.execution import Execution
from rankbench.experiment.job import Job, configure
from rankbench.experiment.run import run


@pytest.mark.parametrize(
    ("membership", "files", "cpus"),
    [
        ("0::/mine", {"mine/cpu.max": "150000 100000", "cpu.max": "max 100000"}, 2),  # one and a half
        ("0::/mine", {"mine/cpu.max": "800000 100000", "cpu.max": "300000 100000"}, 3),
        ("0::/", {"cpu.max": "50000 100000"}, 1),
        ("3:cpu,cpuacct:/", {"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000"}, 2),
        ("3:cpu,cpuacct:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 16),
        ("2:memory:/", {"cpu.max": "100000 100000"}, 16),  # of a group that is not this process's
    ],
)
def test_a_container_has_the_processors_of_its_quota(tmp_path, monkeypatch, membership, files, cpus):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(16)), raising=False)
    (tmp_path / "membership").write_text(membership + "\n")
    monkeypatch.setattr(control_groups, "_MEMBERSHIP", tmp_path / "membership")
    monkeypatch.setattr(control_groups, "_CGROUP", tmp_path / "groups")
    for name, text in files.items():
        (tmp_path / "groups" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "groups" / name).write_text(text + "\n")
    assert available_cpus() == cpus


def pools() -> dict[str, int]:
    return {pool["filepath"]: pool["num_threads"] for pool in threadpool_info()}


@pytest.mark.parametrize("method, values", [("bpr", {"epochs": 1, "patience": 0}), ("ease", {}), ("ials", {"iterations": 1})])
def test_the_libraries_use_one_thread_during_a_fit(method, values, environment):
    """Threads that several fits on one machine would wait for."""
    card = load_card("synthetic", environment, {"source.generator": {"users": 60, "items": 40, "interactions_per_user": 8}})
    job = Job(card, (configure(method, values),), card.final_fit)
    seen = []

    def progress(phase, done, total):
        if phase == "fit":
            seen.append((torch.get_num_threads(), set(pools().values()), numba.get_num_threads()))

    run(job, environment, Execution(2), progress)
    assert seen
    assert set(map(str, seen)) == {str((1, {1}, 2))}


def test_the_numbers_of_threads_and_the_precision_of_products_are_restored():
    def now():
        return torch.get_num_threads(), torch.get_float32_matmul_precision(), numba.get_num_threads(), pools()

    torch.set_float32_matmul_precision("high")
    try:
        before = now()
        with pytest.raises(KeyError), pinned(2):
            assert torch.get_float32_matmul_precision() == "highest"
            raise KeyError
        assert now() == before
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.skipif(
    not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="this PyTorch has the older setting alone"
)
def test_tf32_by_pytorchs_newer_setting_is_set_aside():
    matmul = torch.backends.cuda.matmul
    before, matmul.fp32_precision = matmul.fp32_precision, "tf32"
    try:
        with pinned(2):
            assert matmul.fp32_precision == "ieee"
        assert matmul.fp32_precision == "tf32"
    finally:
        matmul.fp32_precision = before


def test_without_a_number_a_process_takes_what_numbas_variable_allows(monkeypatch):
    monkeypatch.setenv("NUMBA_NUM_THREADS", "1")
    assert own_threads() == 1 <= available_cpus()


def test_fewer_threads_by_numbas_variable_than_were_asked_for_are_refused(monkeypatch):
    monkeypatch.setenv("NUMBA_NUM_THREADS", "3")
    most = numba.config.NUMBA_NUM_THREADS
    with pytest.raises(ConfigError, match=f"NUMBA_NUM_THREADS={most} allows {most} of {most + 1} threads"), pinned(most + 1):
        pass


@pytest.mark.parametrize("given, expected", [(None, "passive"), ("active", "active")])
def test_idle_openmp_threads_sleep_unless_the_user_says_otherwise(given, expected):
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    environment |= {"OMP_WAIT_POLICY": given} if given else {}
    code = "import rankbench, os, sys; print(os.environ['OMP_WAIT_POLICY'], 'torch' in sys.modules or 'numba' in sys.modules)"
    output = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True).stdout
    assert output.split() == [expected, "False"]
