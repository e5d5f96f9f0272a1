"""Each command that writes x SIGKILL, a full disk, two at once: nothing finished is lost, the command works again, and nothing
is left over. What a frozen process writes later is in `sweeps/test_frozen_writers.py`.

The default run takes a sample; the whole campaign is marked slow.
"""

import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from commands import Home
from writers import (
    Export,
    Fit,
    LargerFit,
    LargerRun,
    LeaderboardWriters,
    Preparation,
    Reproduction,
    Run,
    RunByTiles,
    RunOnACluster,
    Sweep,
    TrackedRun,
    Writer,
    made,
)

PAGE = os.sysconf("SC_PAGE_SIZE")
SLOW = [pytest.mark.slow, pytest.mark.timeout(3600)]


def campaign(**writers: tuple[type[Writer], int, int, int]) -> pytest.MarkDecorator:
    """Test each writer a few times by default, and many times where slow tests run: (kind, seed, few, many); 0 is never."""
    cases = []
    for name, (kind, seed, few, many) in writers.items():
        cases += [pytest.param(kind, few, seed, id=f"{name}-{few}")] if few else []
        cases += [pytest.param(kind, many, seed, marks=SLOW, id=f"{name}-{many}")] if many else []
    return pytest.mark.parametrize(("kind", "times", "seed"), cases)


def kill(kind: type[Writer], home: Home, times: int, seed: int) -> Writer:
    """Kill a command at `times` drawn moments, and run it again after each."""
    with made(kind, home, seed) as writer:
        if times > 1 and kind is Sweep:  # the sample saves the time of a sweep that nobody kills
            writer.expect()
        number = killed = 0
        while killed < times:  # others end before their death
            number += 1
            assert number <= 5 * times, f"only {killed} of the first {5 * times} commands were killed"
            more, before = writer.before(number), writer.finished()
            killed += home.run(*writer.words(number), *more, death=writer.death(number)).killed
            home.require_no_processes()
            after = writer.finished()
            assert before.items() <= after.items(), (number, more)
            writer.is_dead(before, after)
            if writer.again:
                writer.check(number, home.run(*writer.words(number), *writer.rng.choice(writer.again)))
        home.age()
        if kind is not Sweep:  # which `check` has seen whole, and without left-overs, after each death
            last = home.run(*writer.words(number + 1))
            assert last.code == 0, last.err
        assert not home.leftovers()
        home.require_no_processes()
        writer.finish()
    return writer


@campaign(
    run=(Run, 1, 1, 20), tracked=(TrackedRun, 2, 0, 5), cluster=(RunOnACluster, 3, 0, 20), tiles=(RunByTiles, 7, 0, 20),
    fit=(Fit, 4, 1, 20),
)  # fmt: skip
@pytest.mark.fault("F4")
def test_a_killed_fit_is_whole_or_absent(kind, times, seed, tmp_path, figure):
    kill(kind, Home(tmp_path / "home"), times, seed)
    figure(f"{kind.__name__}, SIGKILL at {times} drawn moments: records whole, the same result with --resume and without")


@campaign(sweep=(Sweep, 6, 1, 5), again=(Sweep, 0, 0, 5), once_more=(Sweep, 1, 0, 5), at_last=(Sweep, 2, 0, 5))
@pytest.mark.fault("F7")
def test_a_killed_driver_of_a_sweep_goes_on(kind, times, seed, tmp_path, figure):
    kill(kind, Home(tmp_path / "home"), times, seed)
    figure(f"sweep, SIGKILL at {times} drawn moments: no finished record changed or lost, no process left")


@campaign(preparation=(Preparation, 5, 2, 20), export=(Export, 3, 2, 20))
@pytest.mark.fault("F11")
def test_a_killed_preparation_leaves_nothing_half_done(kind, times, seed, tmp_path, figure):
    kill(kind, Home(tmp_path / "home"), times, seed)
    figure(f"{kind.__name__}, SIGKILL at {times} drawn moments: the same content, 0 left-overs")


@campaign(leaderboard=(LeaderboardWriters, 1, 0, 20), reproduction=(Reproduction, 2, 0, 20))
@pytest.mark.fault("F17")
def test_a_killed_writer_of_a_store_loses_no_line(kind, times, seed, tmp_path, figure):
    writing = kill(kind, Home(tmp_path / "home"), times, seed).writing
    figure(f"{kind.__name__}, SIGKILL at {times} moments after a stored line, {writing} while one was written: no line lost")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("kind", "size"), [(LeaderboardWriters, {"n_cards": 6}), (Reproduction, {"n_entries": 30})])
@pytest.mark.fault("F17")
def test_two_commands_at_once_run_each_entry_once(kind, size, tmp_path, figure):
    home = Home(tmp_path / "home")
    with made(kind, home, 1, **size) as writer, ThreadPoolExecutor(2) as pool:
        ended = [*pool.map(lambda _: home.run(*writer.words(1)), range(2))]
        assert [each.code for each in ended] == [0, 0], ended
        one, other = (writer.n_done(each.json) for each in ended)
        assert one + other == writer.n_entries
        writer.finish()
    figure(f"two at once on one store ({kind.__name__}): {one} + {other} entries, none twice")


class Disk:
    """A file system in memory, mounted at a folder."""

    def __init__(self, folder: Path):
        self.folder = folder

    def resize(self, n_bytes: int) -> None:
        subprocess.run(["mount", "-o", f"remount,size={n_bytes}", str(self.folder)], check=True)

    def leave_free(self, n_bytes: int) -> None:
        about = os.statvfs(self.folder)
        used = (about.f_blocks - about.f_bfree) * about.f_frsize
        self.resize(max(used + n_bytes, PAGE))  # a size of 0 is none at all


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


# Where the disk lies that is full, and how many pages are free at most when the command starts.
PLACES = {LargerRun: ("results", 40), LargerFit: ("results", 40), Preparation: ("data", 2), Sweep: ("results", 12),
          TrackedRun: ("results/spool", 1)}  # fmt: skip


@pytest.mark.skipif(os.geteuid() != 0, reason="a small disk can be mounted by root alone")
@campaign(
    run=(LargerRun, 1, 1, 10), fit=(LargerFit, 1, 1, 10), preparation=(Preparation, 2, 1, 10), spool=(TrackedRun, 3, 0, 10),
    sweep=(Sweep, 4, 0, 3),
)  # fmt: skip
@pytest.mark.fault("F9", "F15")
def test_a_full_disk_is_said_and_changes_nothing(kind, times, seed, tmp_path, figure):
    home, (place, pages), failed = Home(tmp_path / "home"), PLACES[kind], 0
    with disk_at(home.folder / place) as disk, made(kind, home, seed, forgets=1.0) as writer:
        for number in range(times):
            writer.before(number)
            before = writer.finished()
            disk.leave_free(PAGE * writer.rng.randint(0, pages))
            ended = home.run(*writer.words(number))
            full, after = writer.refused(ended), writer.finished()
            assert before.items() <= after.items(), number
            assert after == before or ended.code in (0, 4), number  # a sweep has several records
            assert not full or kind is Sweep or not [*disk.folder.rglob(".tmp-*")], number
            failed += full
            disk.resize(64 << 20)
            writer.check(number, home.run(*writer.words(number), *writer.rng.choice(writer.again)))
        assert failed >= 0.5 * times
        assert not home.leftovers()
        writer.finish()
    figure(f"{kind.__name__} with a full disk under {place}, {failed} of {times} met it: one line, nothing finished changed")
