"""Programs in processes of their own, because Ray reads its settings when it is imported."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from pytest import approx

HERE = Path(__file__).parent


def environment(**more):
    """The variables of this process without those of Ray and rankbench; modules of this folder can be imported."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "RANKBENCH_"))}
    folders = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
    return plain | {"PYTHONPATH": os.pathsep.join(folders)} | more


def start(*words, before=(), **more):
    """Python with `words`, after the words of a command that starts it; `more` are variables."""
    command = [*before, sys.executable, *map(str, words)]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(command, text=True, env=environment(**more), **pipes)


def answer(*words, timeout=400, **more):
    """The last line that such a process prints, which is JSON."""
    process = start(*words, **more)
    output, errors = process.communicate(timeout=timeout)
    assert process.returncode == 0, errors[-3000:]
    return json.loads(output.splitlines()[-1])


def run_command(folder, *words, begin=None, before=(), **more):
    """A `run` of synthetic data whose results lie in `folder`, begun by `Hosts.start` or here, where `before` starts it."""
    command = [*before, sys.executable, "-m", "rankbench", "run", "synthetic", *words, "--no-track", "--json", "--curve", "0"]
    places = {"RANKBENCH_DATA": str(folder.parent / "data"), "RANKBENCH_RESULTS": str(folder)}
    pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    if begin:
        return begin(command, env=places | more, **pipes)
    return subprocess.Popen(command, env=environment(**places, **more), text=True, **pipes)


def printed(process):
    """What a command printed as JSON, which ended well."""
    output, errors = process.communicate(timeout=400)
    assert process.returncode == 0, errors[-3000:]
    return json.loads(output)


def assert_same_metrics(joined, alone):
    """Of a run on a cluster and of one in memory, whose sums have another order."""
    for name, value in alone["metrics"].items():
        assert joined["metrics"][name]["mean"] == approx(value["mean"], abs=1e-4, rel=1e-4), name


@contextmanager
def running_nodes(n=3):
    """What nodes.py says of a cluster of n nodes, which runs during the block."""
    process = start(HERE / "nodes.py", "--nodes", n)
    try:
        yield json.loads(process.stdout.readline())
    finally:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors[-3000:]
