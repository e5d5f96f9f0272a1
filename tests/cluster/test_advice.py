"""What is advised if Ray does not start: each cause is made in turn, and only that one is named."""

import socket
import subprocess

import pytest

from rankbench.cluster import advice as room
from rankbench.cluster.advice import advice, keep_logs


@pytest.fixture(autouse=True)
def healthy(monkeypatch):
    """A machine on which nothing is short, whatever this one is like."""
    monkeypatch.setattr(room, "available_memory", lambda: 64e9)
    monkeypatch.setattr(room, "ENOUGH_DISK", 0)
    monkeypatch.setattr(room, "_other_nodes", lambda: [])


def refused(*words, **more):
    raise TimeoutError("timed out")


@pytest.mark.parametrize(
    ("where", "name", "fault", "told"),
    [
        (room, "available_memory", lambda: 64e9, "`rankbench doctor` checks this machine"),
        (room, "available_memory", lambda: 0.4e9, "only 0.4 GB of memory are free: stop other programs"),
        (socket, "create_connection", refused, "no connection to 127.0.0.1: let the firewall allow"),
    ],
)
def test_each_cause_is_named_alone(where, name, fault, told, monkeypatch):
    monkeypatch.setattr(where, name, fault)
    assert advice(0).startswith(told) and "; " not in advice(0)


@pytest.mark.skipif(not room.SHARED.is_dir(), reason="this system has no /dev/shm")
def test_too_little_shared_memory():
    assert "free in /dev/shm: start the container with --shm-size=2g" in advice(1 << 60)


def test_another_ray_is_found_by_its_process(monkeypatch, tmp_path):
    monkeypatch.undo()
    program = tmp_path / "raylet"
    program.symlink_to("/bin/sleep")
    process = subprocess.Popen([program, "60"], env={})
    try:
        assert process.pid in room._other_nodes()
    finally:
        process.kill()
        process.wait()


def test_the_ends_of_all_logs_are_kept_in_one_file(tmp_path, monkeypatch):
    monkeypatch.setenv("RANKBENCH_DATA", str(tmp_path / "data"))
    logs = tmp_path / "session" / "session_1" / "logs"
    logs.mkdir(parents=True)
    (tmp_path / "session" / "start.log").write_text("the last words\n")
    (logs / "raylet.err").write_text("\n".join(f"line {n}" for n in range(1000)))
    (logs / "empty.out").write_text("")
    path = keep_logs(tmp_path / "session")
    text = path.read_text()
    assert path == tmp_path / "data" / "ray-start.log"
    assert "==> start.log\nthe last words" in text and "==> raylet.err\nline 800\n" in text
    assert "line 999" in text and "line 799\n" not in text and "empty" not in text
    monkeypatch.setenv("RANKBENCH_DATA", "/proc/nowhere")
    assert keep_logs(tmp_path / "session") is None
