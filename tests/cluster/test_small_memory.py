"""Object stores, disks and machines that are too small: the right answer, or one line that says what was too small.

The programs are in small_memory.py.
"""

import json
import os
import subprocess
from contextlib import contextmanager
from pathlib import Path

import groups
import pytest
from programs import HERE, answer, printed, run_command

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(400)]

GROUP = 3 << 30  # bytes that a cluster of two processors and its driver have


@contextmanager
def small_disk(folder, n_bytes):
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={n_bytes}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(words, capture_output=True).returncode:
        pytest.skip("a small disk can be mounted by root alone")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.fault("F6")
def test_answers_of_four_times_the_object_store_are_right(figure):
    seen = answer(HERE / "small_memory.py", "spill")
    assert seen["value"] is True and seen["afterwards"]["value"] == [5, 6, 7], seen
    figure(f"320 MB of answers held in a store of 80 MB: all right, {seen['seconds']:.1f} s")


@pytest.mark.fault("F6")
def test_a_full_disk_below_the_object_store_is_one_line_and_code_5(tmp_path, figure):
    with small_disk(tmp_path / "spill", 64 << 20) as folder:
        seen = answer(HERE / "small_memory.py", "disk", folder)
    assert seen["code"] == 5 and "\n" not in seen["error"] and seen["error"].startswith("block "), seen
    assert seen["afterwards"]["value"] == [5, 6, 7], seen
    figure(f"the disk of the object store is full: exit 5 after {seen['seconds']:.1f} s: {seen['error'][:60]}…")


@pytest.mark.fault("F6")
def test_a_block_that_takes_all_memory_is_named_by_rays_monitor(figure):
    seen = answer(HERE / "small_memory.py", "hog", "monitor")
    assert seen["code"] == 5 and seen["error"].startswith("block 3 of 8 needs more memory than its node has ("), seen
    assert "\n" not in seen["error"], seen
    figure(f"a block beyond the machine's memory: named after {seen['seconds']:.1f} s, exit 5")


@pytest.mark.fault("F6")
def test_a_block_that_the_kernel_kills_for_its_memory_is_named(figure):
    if why := groups.unavailable():
        pytest.skip(why)
    with groups.memory_group(GROUP) as inside:
        seen = answer(HERE / "small_memory.py", "hog", before=inside)
    # Ray starts the worker again and again; on a busy machine the deadline of a call comes first.
    lost, late = "block 3 of 8 was lost with its worker", "1 of 8 are in flight, the first is block 3;"
    assert seen["code"] == 4 and (seen["error"].startswith(lost) or late in seen["error"]), seen
    assert "\n" not in seen["error"], seen
    figure(f"a block beyond a control group of 3 GiB: named after {seen['seconds']:.1f} s, exit 4")


@pytest.mark.fault("F6")
def test_a_run_in_a_small_group_goes_by_tiles(tmp_path, figure):
    """The limit of a container is seen before the work: a matrix of 670 MB is not tried in 900 MB."""
    if why := groups.unavailable():
        pytest.skip(why)
    sizes = [f"data.source.generator.{size}" for size in ("users=3000", "items=12000", "interactions_per_user=60")]
    with groups.memory_group(900 << 20) as inside:
        done = printed(run_command(tmp_path / "results", "ease", "lam=30", *sizes, before=inside))
    record = json.loads((Path(done["folder"]) / "record.json").read_text())
    assert record["tiles"], record
    figure(
        f"EASE of 12,000 items in a control group of 900 MiB: by tiles, {record['peak_memory_bytes'] / 1e6:.0f} MB at its peak"
    )
