"""Ctrl-C in real processes: an answer at once, an orderly end with its exit code, and a second Ctrl-C that ends it now."""

import json
import os
import select
import signal
import subprocess
import sys
import time

import pytest

from ..sweeps.commands import wait_until

pytestmark = pytest.mark.usefixtures("home")

ANSWER = 30.0  # seconds, on a machine that may be very busy; alone it takes some milliseconds
LONG = "data.source.generator.users=3000"
SWEEP = ["sweep", "--datasets", "synthetic", "--methods", "bpr", "epochs=100000", "patience=0", "--search", "none", "--yes"]


# Checkpoints come early, so that nobody has to wait for one.
SOON = "from rankbench.training import methods; methods.SAVE_EVERY = 0.3; from rankbench.cli import main; main()"


class Command:
    """A command in a process of its own, whose stderr is read as it comes."""

    def __init__(self, *words):
        command = [sys.executable, "-c", SOON, *words]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
        self.output = b""

    def read_until(self, text, limit):
        """Wait until stderr has `text`, and return the seconds that it took."""
        began = time.monotonic()
        while text.encode() not in self.output:
            left = limit - (time.monotonic() - began)
            assert left > 0, f"no {text!r} in {limit} s: {self.output.decode()}"
            if select.select([self.process.stderr], [], [], min(left, 0.5))[0]:
                new = os.read(self.process.stderr.fileno(), 4096)
                assert new or text.encode() in self.output, f"it ended without {text!r}: {self.output.decode()}"
                self.output += new
        return time.monotonic() - began

    def interrupt(self):
        os.kill(self.process.pid, signal.SIGINT)

    def end(self, limit=60):
        """The exit code and the lines of stderr."""
        self.output += self.process.communicate(timeout=limit)[1]
        return self.process.returncode, self.output.decode().splitlines()


CASES = {
    "a fit by gradient steps": ["run", "synthetic", "bpr", "epochs=100000", "patience=0", "--no-track"],
    "a fit in closed form": ["run", "synthetic", "ease", "data.source.generator.items=7000", LONG, "--no-track"],
    "loading": ["run", "synthetic", "ease", "data.source.generator.users=150000", "--no-track"],
}


@pytest.mark.parametrize("words", CASES.values(), ids=CASES)
@pytest.mark.fault("F16")
def test_an_interrupt_is_answered_at_once(home, words, figure):
    command = Command("-v", *words)
    if words[2] == "bpr":
        wait_until(lambda: any(home.glob("results/checkpoints/*/*")))
    else:
        wait_until(lambda: any(home.glob("data/prepared/.*")) or any(home.glob("data/prepared/*")))
        time.sleep(1.5)
    command.interrupt()
    seconds = command.read_until("stopping: the same command with --resume continues", ANSWER)
    code, lines = command.end()
    assert code == 130
    assert sum(line.startswith("stopping: ") for line in lines) == 1 and "press Ctrl-C again" in "".join(lines)
    assert lines[-1].startswith("error: interrupted; the same command with --resume continues")
    assert not any("Traceback" in line for line in lines), lines
    print(f"answered after {seconds:.3f} s")
    figure(f"Ctrl-C in a run: answered after {seconds:.2f} s, exit 130")


@pytest.mark.fault("F16")
def test_a_terminated_run_keeps_its_checkpoint(home, figure):
    words = CASES["a fit by gradient steps"]
    command = Command(*words)
    wait_until(lambda: any(home.glob("results/checkpoints/*/[0-9]*")))  # complete: scratch begins with a dot
    began = time.monotonic()
    os.kill(command.process.pid, signal.SIGTERM)
    code, lines = command.end()
    seconds = time.monotonic() - began
    assert code == 143 and not any("Traceback" in line for line in lines), lines
    assert lines[-1].startswith("error: terminated; the same command with --resume continues")
    assert any(home.glob("results/checkpoints/*/[0-9]*")) and not any(home.rglob(".tmp-*"))
    figure(f"SIGTERM in a run: ended after {seconds:.2f} s, exit 143, its checkpoint kept")


def test_a_second_interrupt_ends_it_now(home):
    command = Command("run", "synthetic", "ease", "data.source.generator.items=7000", LONG, "--no-track")
    wait_until(lambda: any(home.glob("data/prepared/synthetic-*")))
    time.sleep(1.5)
    command.interrupt()
    command.read_until("stopping: ", ANSWER)
    began = time.monotonic()
    command.interrupt()
    code, lines = command.end()
    assert code == 130 and time.monotonic() - began < ANSWER
    assert not any("Traceback" in line for line in lines)


LOST = """
import ctypes, os, signal, sys
from rankbench.cli.interrupts import watch

watch("")

@ctypes.CFUNCTYPE(None)
def callback():
    if sys.argv[1] == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(10):
            pass
    else:
        raise ValueError("lost")

callback()
"""


@pytest.mark.parametrize(("what", "reported"), [("interrupt", False), ("error", True)])
def test_only_an_interrupt_is_silent_in_a_callback_of_compiled_code(what, reported):
    ended = subprocess.run([sys.executable, "-c", LOST, what], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0
    assert ("stopping: " in ended.stderr) is (what == "interrupt")
    assert ("Traceback" in ended.stderr) is reported


def trains(home):
    """Whether a trial of a sweep has told of an epoch."""
    beats = [json.loads(path.read_text()) for path in home.glob("results/sweeps/*/running.json")]
    return any(fit["done"] for beat in beats for fit in beat.get("progress", {}).get("running", []))


@pytest.mark.cluster
@pytest.mark.parametrize("twice", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.fault("F16")
def test_a_sweep_is_interrupted(home, twice, figure):
    command = Command(*SWEEP)
    command.read_until("1 fits of the final stage", 120)
    wait_until(lambda: trains(home))
    command.interrupt()
    command.read_until("stopping: finished runs are kept; the same command with --resume continues the sweep", ANSWER)
    if twice:
        command.interrupt()
    code, lines = command.end(limit=ANSWER if twice else 60)
    assert code == 130 and not any("Traceback" in line for line in lines), lines
    figure(f"Ctrl-C {'twice ' * twice}in a sweep: exit 130")
