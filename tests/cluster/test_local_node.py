"""A local Ray that does not come up because its node dies or hangs: tried again, within bounds, then said in one line.

The faults are real ones of a real Ray: a signal to its raylet at the moment when a driver joins.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from programs import environment, start

from rankbench.cluster.local_node import _last_errors
from rankbench.cluster.private_folder import FOLDER
from rankbench.cluster.session import _ENVIRONMENT

# Python runs this in every process as it starts. FAULT is a signal that the process WHO sends, once for each letter in the file
# `left`: to itself, or to Ray's raylet at the moment when it joins Ray. The file `folder` then says where Ray worked.
FAULTS = """
import os, sys
from pathlib import Path

home = Path(os.environ["FAULTS"])
who = "node" if "rankbench.cluster.node_process" in sys.orig_argv else "driver" if "--driver" in sys.orig_argv else None

def strikes():
    left = (home / "left").read_text()
    (home / "left").write_text(left[1:])
    (home / "folder").write_text(os.path.dirname(os.environ["RAY_AUTH_TOKEN_PATH"]))
    return bool(left)

def connect(*words, **more):
    if strikes():
        for process in psutil.Process().children(recursive=True):
            if process.name() == "raylet":
                process.send_signal(int(os.environ["FAULT"]))
    return join(*words, **more)

if who == os.environ["WHO"]:
    import psutil
    if os.environ["TO"] == "self" and strikes():
        os.kill(os.getpid(), int(os.environ["FAULT"]))
    if os.environ["TO"] == "raylet":
        import ray._private.worker as worker
        join, worker.connect = worker.connect, connect
"""

SESSION = """
import sys
from rankbench.cluster import join_deadline, local_node
from rankbench.cluster.session import session
from rankbench.core.errors import ClusterError

local_node.PATIENCE, join_deadline.PATIENCE = map(float, sys.argv[2:4])
join_deadline._GRACE = 10.0  # seconds that the watch may be late on a busy machine
try:
    with session(cpus=1):
        import ray
        print("answer", ray.get(ray.remote(lambda: 42).remote(), timeout=200), flush=True)
        if "--wait" in sys.orig_argv:
            sys.stdin.read()
except ClusterError as error:
    print(f"error: {error}", file=sys.stderr)
    sys.exit(error.exit_code)
"""


def run(
    home: Path, words: list[str], who: str, fault: signal.Signals, times: int, to: str = "raylet"
) -> subprocess.CompletedProcess:
    """Run Python with a fault that strikes `times` times, and check that nothing of its Ray is left."""
    (home / "sitecustomize.py").write_text(FAULTS)
    (home / "left").write_text("x" * times)
    # Ray reads its settings when it is imported, which the faults do before the session does.
    variables = environment(**_ENVIRONMENT, RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0")
    variables |= {"FAULTS": str(home), "WHO": who, "TO": to, "FAULT": str(int(fault))}
    variables |= {"PYTHONPATH": f"{home}{os.pathsep}{variables['PYTHONPATH']}"}
    variables |= {"RANKBENCH_DATA": str(home / "data"), "RANKBENCH_RESULTS": str(home / "results")}
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=500, env=variables)
    wait_until_gone((home / "folder").read_text())
    return done


def wait_until_gone(folder: str) -> None:
    until = time.monotonic() + 60
    while (Path(folder).exists() or of_folder(folder)) and time.monotonic() < until:
        time.sleep(0.1)
    assert not Path(folder).exists() and not of_folder(folder)


def of_folder(folder: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(FOLDER) == folder:
                found.append(process)
        except psutil.Error:
            continue
    return found


def session(patience: float, join_patience: float) -> list[str]:
    return ["-c", SESSION, "--driver", str(patience), str(join_patience)]


def errors(done: subprocess.CompletedProcess) -> list[str]:
    """What was said on stderr, without warnings and Ray's own lines."""
    return [line for line in done.stderr.splitlines() if line.startswith("error: ")]


@pytest.mark.timeout(300)
@pytest.mark.cluster
def test_a_node_that_dies_as_it_starts_is_started_again(tmp_path):
    done = run(tmp_path, session(120, 120), "node", signal.SIGKILL, times=1)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "answer 42\n"
    assert "warning: Ray did not start (" in done.stderr and "trying once more" in done.stderr


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_node_that_dies_twice_ends_a_sweep_with_one_line_and_code_4(tmp_path):
    done = run(tmp_path, ["-m", "rankbench", "sweep", "demo"], "node", signal.SIGKILL, times=2)
    assert done.returncode == 4, done.stderr
    (line,) = errors(done)
    assert line.startswith("error: cannot start a local Ray cluster, tried 2 times: ") and ".log: " in line and "raylet" in line
    assert "==> raylet" in (tmp_path / "data" / "ray-start.log").read_text()
    assert "Traceback" not in done.stderr and done.stdout == ""


@pytest.mark.timeout(100)
def test_a_node_that_hangs_is_given_up_twice(tmp_path):
    done = run(tmp_path, session(2, 120), "node", signal.SIGSTOP, times=2, to="self")
    assert done.returncode == 4, done.stderr
    why = f"no answer in 2 s; its logs give no reason; see {tmp_path}/data/ray-start.log; "
    (line,) = errors(done)
    assert line.startswith(f"error: cannot start a local Ray cluster, tried 2 times: {why}")
    assert "`rankbench doctor`" in line or "free" in line or "another Ray" in line
    assert (tmp_path / "data" / "ray-start.log").is_file()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_raylet_that_hangs_is_given_up_although_ray_waits_on_without_python(tmp_path):
    done = run(tmp_path, session(60, 120), "node", signal.SIGSTOP, times=1)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "answer 42\n"
    assert "warning: Ray has not started after 15 s" in done.stderr and "trying once more" in done.stderr


@pytest.mark.timeout(300)
def test_a_node_that_hangs_when_the_driver_joins_ends_it_although_no_python_runs(tmp_path):
    done = run(tmp_path, session(120, 3), "driver", signal.SIGSTOP, times=1)
    assert done.returncode == 4, done.stderr
    assert errors(done) == ["error: cannot join the local Ray cluster: no answer in 3 s"]


@pytest.mark.timeout(300)
def test_a_killed_driver_leaves_nothing(tmp_path):
    script = SESSION.replace('print("answer"', 'print(__import__("os").environ["RAY_AUTH_TOKEN_PATH"], "answer"')
    process = start("-c", script, "--driver", 120, 120, "--wait")
    token, *answer = process.stdout.readline().split()
    assert answer == ["answer", "42"] and of_folder(str(Path(token).parent))
    process.kill()
    process.communicate()
    wait_until_gone(str(Path(token).parent))


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("[2026-01-01 10:00:00,000 E 12 34] gcs.cc:10: no disk", "gcs.cc:10: no disk"),
        ("[2026-01-01 10:00:00,000 I 12 34] gcs.cc:10: hello", None),
        ("Exception: The current node timed out during startup.", "Exception: The current node timed out during startup."),
        ("ray.exceptions.RaySystemError: broken", "ray.exceptions.RaySystemError: broken"),
        ("2026-01-01 10:00:00,000\tERROR agent.py:3 -- no port", "2026-01-01 10:00:00,000\tERROR agent.py:3 -- no port"),
    ],
)
def test_the_line_that_says_why_is_found_in_the_logs(tmp_path, line, told):
    (tmp_path / "start.log").write_text(f"before\n{line}\nafter\n")
    assert _last_errors(tmp_path) == (f"start.log: {told}" if told else "its logs give no reason")
