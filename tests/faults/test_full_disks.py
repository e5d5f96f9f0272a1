"""A disk that runs full while results, the cache or the spool are written: one line and exit code 5, nothing finished is lost,
and the command works once there is room. How much room there is when a command starts is drawn.
"""

import os
import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from commands import Ended, Home

from rankbench.experiment.fitted_model import load

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a small disk can be mounted by root alone")

SIZES = ("data.source.generator.users=300", "data.source.generator.items=200", "data.source.generator.interactions_per_user=20")
IALS = ("synthetic", "ials", "embedding_dim=32", "iterations=4", *SIZES)
SWEEP = """
name: full
datasets:
  - {name: synthetic, source: {generator: {users: 300, items: 200, interactions_per_user: 20}}}
arms:
  - {method: ease, params: {lam: {grid: [1, 3, 10, 30]}}}
search: {choose: {metric: ndcg@10, on: valid}}
resources: {cpus: 1}
"""
PAGE = os.sysconf("SC_PAGE_SIZE")


def disks(sample: int) -> pytest.MarkDecorator:
    whole = pytest.param(10, marks=[pytest.mark.slow, pytest.mark.timeout(3600)], id="10")
    return pytest.mark.parametrize("times", [pytest.param(sample, id=f"{sample}"), whole] if sample else [whole])


class Disk:
    """A file system in memory, mounted at a folder."""

    def __init__(self, folder: Path):
        self.folder = folder

    def resize(self, n_bytes: int) -> None:
        subprocess.run(["mount", "-o", f"remount,size={n_bytes}", str(self.folder)], check=True)

    def leave_free(self, n_bytes: int) -> None:
        self.resize(max(self.used + n_bytes, PAGE))  # a size of 0 is none at all

    @property
    def used(self) -> int:
        about = os.statvfs(self.folder)
        return (about.f_blocks - about.f_bfree) * about.f_frsize


@contextmanager
def disk_at(folder: Path) -> Iterator[Disk]:
    folder.mkdir(parents=True)
    words = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)]
    if subprocess.run(words, capture_output=True).returncode:
        pytest.skip("this machine mounts nothing")
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def is_one_line_and_5(ended: Ended, number: int) -> None:
    assert ended.code == 5, (number, ended)
    assert ended.err.count("\n") == 1 and "no space left on the device" in ended.err, (number, ended.err)


@disks(sample=2)
@pytest.mark.fault("F15")
def test_results(times, tmp_path, figure):
    """A run with checkpoints, beside the record of another; and a fit whose model and checkpoints are on that disk."""
    home, rng, failed = Home(tmp_path / "home"), random.Random(1), 0
    with disk_at(home.results) as disk:
        standing = home.run("run", "synthetic", "ease", "lam=3", *SIZES, "--no-track")
        assert standing.code == 0, standing.err
        before, words = home.records(), ("run", *IALS, "--no-track")
        for number in range(times):
            out = home.results / f"model-{number}"
            fit = ("fit", *IALS, "--out", str(out))
            command = fit if number % 2 else words
            disk.leave_free(PAGE * rng.randint(0, 40))
            ended = home.run(*command)
            failed += ended.code != 0
            if ended.code:
                is_one_line_and_5(ended, number)
                assert home.records() == before, number
                assert not out.exists() and not [*home.results.rglob(".tmp-*")], number
            disk.resize(64 << 20)
            again = home.run(*command, *rng.choice([(), ("--resume",)]))
            assert again.code == (2 if command is fit and ended.code == 0 else 0), (number, again.err)
            if command is fit:
                load(out)
            else:
                (new,) = home.records().keys() - before.keys()
                new.unlink()
        assert failed >= 0.5 * times
        assert not home.leftovers()
    figure(f"run and fit on a full disk, {failed} of {times} failed: exit 5, one line, records unchanged")


@disks(sample=1)
@pytest.mark.fault("F15")
def test_the_cache(times, tmp_path, figure):
    home, rng, failed = Home(tmp_path / "home"), random.Random(2), 0
    with disk_at(home.data) as disk:
        for number in range(times):
            words = ("run", *IALS[:1], "random", *SIZES, f"data.split.seed={number}", "--no-track")
            disk.leave_free(PAGE * rng.randint(0, 12))
            before, ended = home.records(), home.run(*words)
            failed += ended.code != 0
            if ended.code:
                is_one_line_and_5(ended, number)
                assert home.records() == before and not home.leftovers(), number
            disk.resize(64 << 20)
            again = home.run(*words)
            assert again.code == 0, (number, again.err)
        assert failed >= 0.5 * times
    figure(f"data prepared on a full disk, {failed} of {times} failed: exit 5, one line, nothing left")


@disks(sample=0)
@pytest.mark.fault("F9", "F15")
def test_the_spool(times, tmp_path, figure):
    """What MLflow was to be told is a warning; the record is whole, and later runs are told."""
    home, rng = Home(tmp_path / "home"), random.Random(3)
    with disk_at(home.results / "spool") as disk:
        for number in range(times):
            words = ("run", "synthetic", "ease", f"lam={number + 1}", *SIZES)
            disk.leave_free(PAGE * rng.randint(0, 1))
            ended = home.run(*words)
            assert ended.code == 0, (number, ended.err)
            assert ended.err == "" or "results are complete on disk" in ended.err, (number, ended.err)
            assert len(home.records()) == number + 1 and not [*disk.folder.glob(".tmp-*")], number
            disk.resize(64 << 20)
        last, sync = home.run(*words, "--fresh"), home.run("tracking", "sync")  # a busy machine may not have sent it yet
        assert (last.code, sync.code) == (0, 0), (last.err, sync.err)
        assert not [*disk.folder.glob("*.json")]
    figure(f"a full disk under the queue for MLflow, {times} times: exit 0, records whole, all sent later")


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.fault("F15")
def test_results_of_a_sweep(tmp_path, figure):
    """The sweep is continued on a disk that is full again, and at last on one with room."""
    home, rng = Home(tmp_path / "home"), random.Random(4)
    (home.folder / "full.yaml").write_text(SWEEP)

    def sweep() -> Ended:
        return home.run("sweep", "full.yaml", *["--resume"] * any(home.results.glob("sweeps/*/sweep.json")))

    with disk_at(home.results) as disk:
        before: dict[Path, bytes] = {}
        for number in range(3):
            disk.leave_free(PAGE * rng.randint(2, 12))
            ended = sweep()
            assert ended.code in (4, 5), (number, ended)
            assert "Traceback" not in ended.err and ended.err.count("error: ") == 1, (number, ended.err)
            after = home.records()
            assert {path: after.get(path) for path in before} == before, number
            before = after
            home.require_no_processes()
        disk.resize(64 << 20)
        home.age()
        last, after = sweep(), home.records()
        assert last.code == 0, last.err
        assert {path: after.get(path) for path in before} == before
        assert not home.leftovers()
    figure("a sweep on a full disk 3 times: finished records unchanged, then continued")
