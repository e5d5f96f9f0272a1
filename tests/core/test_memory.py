"""A failed allocation, whichever library reports it, is one line that names the work."""

import numpy as np
import pytest
import torch

from rankbench.cli import _main
from rankbench.core import control_groups, memory
from rankbench.core.durations import seconds_of
from rankbench.core.errors import ConfigError, StorageError
from rankbench.core.memory import bytes_of, memory_errors_are_clear

PIBIBYTE, MIB = 1 << 50, 1 << 20


def group(folder, limit, used, inactive, names):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"cache 7\n{names[2]} {inactive}\n")


V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
V2 = ("memory.max", "memory.current", "inactive_file")


@pytest.mark.parametrize(
    ("membership", "folders", "names"),
    [
        ("0::/jobs/mine", ["", "jobs", "jobs/mine"], V2),
        ("4:memory:/jobs/mine\n2:cpu,cpuacct:/", ["memory", "memory/jobs", "memory/jobs/mine"], V1),
        ("0::/../../jobs/mine", ["", "", ""], V2),  # a container: its own group is the root
    ],
    ids=["version 2", "version 1", "container"],
)
def test_the_smallest_group_limits_the_memory(tmp_path, monkeypatch, membership, folders, names):
    (tmp_path / "membership").write_text(membership + "\n")
    monkeypatch.setattr(control_groups, "_MEMBERSHIP", tmp_path / "membership")
    monkeypatch.setattr(control_groups, "_CGROUP", tmp_path / "groups")
    unlimited = "max" if names is V2 else 1 << 62
    group(tmp_path / "groups" / folders[2], unlimited, 90 * MIB, 0, names)
    group(tmp_path / "groups" / folders[0], unlimited, 99 * MIB, 0, names)
    group(tmp_path / "groups" / folders[1], 100 * MIB, 95 * MIB, 20 * MIB, names)
    assert memory.available_memory() == 25 * MIB and memory.memory_of_machine() == 100 * MIB
    (tmp_path / "membership").unlink()
    assert memory.available_memory() > 25 * MIB


def on_device():
    if torch.cuda.is_available():
        return torch.empty(PIBIBYTE, dtype=torch.uint8, device="cuda")
    raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 PiB.\nMore words")


def of_cublas():
    raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")


def no_room_for_a_context():
    raise RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported")


@pytest.mark.parametrize(
    "allocate",
    [
        lambda: np.empty(PIBIBYTE, np.uint8),
        lambda: torch.empty(PIBIBYTE, dtype=torch.uint8),
        on_device,
        of_cublas,
        no_room_for_a_context,
    ],
    ids=["numpy", "torch", "cuda", "cublas", "context"],
)
def test_memory_that_cannot_be_had_is_a_storage_error(allocate):
    with pytest.raises(StorageError, match="shop: bpr: not enough memory") as error, memory_errors_are_clear("shop: bpr"):
        allocate()
    assert error.value.exit_code == 5 and "\n" not in str(error.value)


@pytest.mark.parametrize("error", [RuntimeError("mat1 and mat2 shapes cannot be multiplied"), RuntimeError(), ValueError("x")])
def test_another_error_keeps_its_name(error):
    with pytest.raises(type(error)) as raised, memory_errors_are_clear("shop: bpr"):
        raise error
    assert raised.value is error


def test_a_run_without_enough_memory_ends_with_one_line(home, capsys):
    assert _main(["run", "synthetic", "bpr", "embedding_dim=300000000", "epochs=1", "--no-track"]) == 5
    output = capsys.readouterr()
    assert output.err.count("\n") == 1 and "synthetic: bpr: not enough memory" in output.err
    assert not list(home.rglob("record.json"))


@pytest.mark.parametrize(("read", "unit"), [(bytes_of, "GB"), (seconds_of, "h")])
def test_an_amount_beyond_every_number_is_refused_in_a_short_line(read, unit):
    with pytest.raises(ConfigError, match=r"^--limit: expected a ") as refused:
        read("9" * 400 + unit, "--limit")
    assert len(str(refused.value)) < 250
