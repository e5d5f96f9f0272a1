"""Output that cannot be written: the exit code is that of the work, a full disk is an error, and a reader may leave early."""

import json
import subprocess
import sys

import pytest

# Each case in a process of its own that has the imports already: words, where stdout and stderr go, and what is unbuffered.
DRIVER = """
import json, os, sys
import rankbench.cli
from rankbench.experiment.methods import registered
registered()
results = []
for words, out, error, unbuffered in json.loads(sys.argv[1]):
    reader, writer = os.pipe()
    os.close(reader)  # so that nobody reads the pipe
    said, says = os.pipe()
    full = os.open("/dev/full", os.O_WRONLY)
    if (child := os.fork()) == 0:
        os.dup2({"full": full, "gone": writer, "none": os.open(os.devnull, os.O_WRONLY)}[out], 1)
        os.dup2({"full": full, "kept": says}[error], 2)
        sys.stdout.reconfigure(write_through=unbuffered)
        sys.argv = ["rankbench", *words]
        rankbench.cli.main()
    for each in (writer, says, full):
        os.close(each)
    text = open(said).read()
    results.append([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text])
print(json.dumps(results))
"""
FULL = "error: standard output: no space left on device\n"
METHODS, WRONG = ["methods"], ["run", "synthetic", "nosuch", "--no-track"]
NO_METHOD = "error: unknown method 'nosuch'"
# words, stdout, stderr, unbuffered, exit code, beginning of stderr
CASES = [
    (METHODS, "full", "kept", False, 5, FULL),
    (METHODS, "full", "full", False, 5, ""),
    (METHODS, "gone", "kept", False, 0, ""),
    (METHODS, "gone", "kept", True, 0, ""),
    (["methods", "ease", "--json"], "full", "kept", True, 5, FULL),
    (["--version"], "full", "kept", False, 5, FULL),
    (["--version"], "gone", "kept", True, 0, ""),
    (["run", "--help"], "gone", "kept", False, 0, ""),
    (["run", "--help"], "full", "kept", True, 5, FULL),
    ([], "full", "kept", False, 2, FULL),  # the help of no command
    ([], "gone", "kept", False, 2, ""),
    (WRONG, "none", "full", False, 2, ""),
    (WRONG, "gone", "kept", False, 2, NO_METHOD),
    ([*WRONG, "--json"], "full", "kept", False, 2, NO_METHOD),
    ([*WRONG, "--json"], "gone", "full", False, 2, ""),
    (["data", "describe", "synthetic"], "full", "kept", False, 5, FULL),
    (["fit", "synthetic", "popularity", "--out", "model"], "gone", "full", False, 0, ""),
]


@pytest.fixture(scope="module")
def ends(tmp_path_factory):
    given = json.dumps([case[:4] for case in CASES])
    home = tmp_path_factory.mktemp("home")
    about = {"RANKBENCH_DATA": str(home / "data"), "RANKBENCH_RESULTS": str(home / "results"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, given], capture_output=True, text=True, timeout=300, env=about, cwd=home
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("number", range(len(CASES)), ids=[f"{' '.join(each[0])} {each[1:4]}" for each in CASES])
def test_a_stream_that_fails(ends, number):
    _, _, _, _, expected, begins = CASES[number]
    code, said = ends[number]
    assert code == expected and "Traceback" not in said and "Exception ignored" not in said
    assert said.startswith(begins) and (begins or "error" not in said)
