"""The folder of a local Ray cluster: entered by its user alone, and removed with its processes once its owner is gone."""

import fcntl
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from rankbench.cluster.private_folder import FOLDER, PARENT, private_folder, remove_abandoned

# Holds a folder and a process in it, which has a child whose environment does not name the folder; says all three; waits.
OWNER = """
import os, subprocess, sys
from pathlib import Path
from rankbench.cluster.private_folder import FOLDER, private_folder

CHILD = '''
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], env={})
print(child.pid, flush=True)
child.wait()
'''
with private_folder(Path(sys.argv[1])) as folder:
    (folder / "1" / "logs").mkdir(parents=True)
    words = [sys.executable, "-c", CHILD]
    process = subprocess.Popen(words, env=os.environ | {FOLDER: str(folder)}, stdout=subprocess.PIPE, text=True)
    print(folder, process.pid, process.stdout.readline(), flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def owner(tmp_path):
    """The process of another owner under tmp_path, its folder, and the processes that work in it."""
    words = [sys.executable, "-c", OWNER, str(tmp_path)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    folder, *pids = process.stdout.readline().split()
    working = [psutil.Process(int(pid)) for pid in pids]
    yield process, Path(folder), working
    for each in (psutil.Process(process.pid) if process.poll() is None else None, *working):
        if each and each.is_running():
            each.kill()
    process.communicate()


def test_only_its_user_can_enter_and_it_goes_with_the_block(tmp_path):
    before = os.umask(0)
    try:
        with private_folder(tmp_path) as folder:
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
            (folder / "deep").mkdir()
    finally:
        os.umask(before)
    assert not folder.exists()
    # The sockets of Ray have names that fit.
    name = "1/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store"
    with private_folder() as folder:
        assert folder.parent == PARENT and len(os.fsencode(folder / name)) <= 107


@pytest.mark.fault("F7")
def test_the_folder_of_a_killed_owner_goes_with_its_processes(tmp_path, owner, figure):
    """A living owner loses nothing."""
    process, folder, working = owner
    with private_folder(tmp_path):
        assert (folder / "1" / "logs").exists() and all(each.is_running() for each in working)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert folder.exists() and all(each.is_running() for each in working)
    with private_folder(tmp_path) as own:
        assert own.exists() and not folder.exists()
    _, alive = psutil.wait_procs(working, timeout=30)
    assert not alive
    figure("processes that a killed driver left: ended by the next start")


def test_what_is_written_after_the_last_look_goes_too(tmp_path, monkeypatch):
    remove, tries = Path.rmdir, []

    def rmdir(folder):
        tries.append(folder)
        if len(tries) == 1:
            (folder / "late").touch()
        remove(folder)

    monkeypatch.setattr(Path, "rmdir", rmdir)
    with private_folder(tmp_path):
        pass
    assert len(tries) == 2 and [*tmp_path.iterdir()] == []


def test_a_removal_that_fails_is_left_for_the_next_process(tmp_path, monkeypatch):
    monkeypatch.setattr("rankbench.cluster.private_folder._PATIENCE", 0.2)
    with monkeypatch.context() as patch, private_folder(tmp_path) as folder:
        (folder / "logs").mkdir()
        patch.setattr("shutil.rmtree", lambda *args, **options: None)
    assert (folder / "logs").exists()
    remove_abandoned(tmp_path)
    assert not folder.exists()


def test_the_process_that_cleans_up_waits_for_the_end_of_the_owner_and_leaves_other_folders(tmp_path):
    mine, other = tmp_path / "rb-mine", tmp_path / "rb-other"
    for folder in (mine, other):
        folder.mkdir()
        (folder / "owner.lock").touch()
    with (mine / "owner.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        words = [sys.executable, "-m", "rankbench.cluster.private_folder"]
        process = subprocess.Popen(words, env=os.environ | {FOLDER: str(mine)})
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(2)
    assert process.wait(60) == 0
    assert not mine.exists() and other.exists()


def test_what_is_no_such_folder_stays(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "owner.lock").touch()
    (tmp_path / "rb-link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "rb-other").mkdir()
    (tmp_path / "rb-file").touch()
    kept = ["elsewhere", "rb-file", "rb-link", "rb-other"]
    if os.getuid() == 0:  # who alone can make a folder another user's
        kept.append("rb-theirs")
        (tmp_path / "rb-theirs").mkdir()
        (tmp_path / "rb-theirs" / "owner.lock").touch()
        os.chown(tmp_path / "rb-theirs", 65534, 65534)
    remove_abandoned(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == kept
    assert FOLDER not in os.environ
