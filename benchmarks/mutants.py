"""Whether the tests notice wrong code: each mutant of `mutants.toml` is made in a copy of the product, and its tests are run.

    python benchmarks/mutants.py --room losses --json found.json
    python benchmarks/mutants.py --check

`--tree` names another checkout, of this or an earlier commit. A mutant is killed if a test fails with it that passes without
it; SURVIVED means that its tests are blind; it is invalid if nothing can be said. The exit code is 1 unless all are killed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", ".*_cache", "__pycache__", "_site", "*.egg-info")
PASSED = 0, 5  # exit codes of pytest: all tests passed, or all are left out by their marks
FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)


def place(mutant: dict[str, Any], tree: Path) -> tuple[Path, str] | str:
    """Return the file of a mutant in `tree` and its content with the change, or why it cannot be made."""
    file, old, new = (mutant[name] for name in ("file", "old", "new"))
    if missing := [test for test in mutant["tests"] if not (tree / test).exists()]:
        return f"there is no {missing[0]}"
    text = (tree / file).read_text(encoding="utf-8") if (tree / file).is_file() else ""
    if text.count(old) == 1:
        return Path(file), text.replace(old, new)
    return f"{file}: the old text occurs {text.count(old)} times"


class Copy:
    """A copy of a tree in `folder`, in which one file at a time is wrong."""

    def __init__(self, tree: Path, folder: Path, timeout: float):
        self.tree, self.folder, self.kernels, self.timeout = tree, folder / "tree", folder / "kernels", timeout
        shutil.copytree(tree, self.folder, ignore=LEFT_OUT, symlinks=True)

    def run(self, mutant: dict[str, Any], number: int) -> dict[str, Any]:
        """Return what happened to a mutant: its `state`, the test that failed, and the seconds of its tests."""
        made = place(mutant, self.tree)
        if isinstance(made, str):
            return {"state": "invalid", "why": made}
        (path, text), kernels = made, self.kernels
        target = self.folder / path
        target.write_text(text, encoding="utf-8")
        os.utime(target, (number, number))  # Python tells changes apart by seconds and size
        if "njit" in text:  # Numba does not see that a function which it inlined was changed in another file
            kernels = self.kernels.with_name(f"kernels-{number}")
        start = time.perf_counter()
        for test in mutant["tests"]:  # one after another, because pytest would sort a file into the folder that follows it
            output, code = self.tests(test, kernels)
            if code not in PASSED:
                break
        shutil.copy2(self.tree / path, target)
        about, failed = {"seconds": round(time.perf_counter() - start, 1)}, FAILED.search(output)
        if code is None or code in PASSED:
            return {"state": "timeout" if code is None else "SURVIVED", **about}
        if code != 1 or not failed:
            return {"state": "invalid", "why": output.strip()[-600:], **about}
        if self.tests(failed[1], self.kernels)[1] != 0:
            return {"state": "invalid", "why": f"{failed[1]} fails without the mutant", **about}
        return {"state": "killed", "by": failed[1], **about}

    def tests(self, name: str, kernels: Path) -> tuple[str, int | None]:
        """Run tests until one fails. Returns the output of pytest and its exit code, None if there was not time enough."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "--tb=line", name]
        folders = {"PYTHONPATH": f"{self.folder}/platform", "NUMBA_CACHE_DIR": str(kernels), "TMPDIR": f"{self.folder.parent}"}
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "start_new_session": True}
        with subprocess.Popen(command, cwd=self.folder, env=os.environ | folders, **streams) as process:
            try:
                return process.communicate(timeout=self.timeout)[0], process.returncode
            except subprocess.TimeoutExpired:
                return "", None
            finally:
                if process.returncode is None:
                    os.killpg(process.pid, signal.SIGKILL)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tree", type=Path, default=HERE.parent, help="the checkout to test; default: this one")
    parser.add_argument("--room", nargs="+", default=[], help="only the mutants of a room, such as losses")
    parser.add_argument("--only", nargs="+", default=[], metavar="ID", help="only these mutants")
    parser.add_argument("--check", action="store_true", help="only say which mutants cannot be made")
    parser.add_argument("--timeout", type=float, default=900, help="most seconds of each file or folder of tests; default: 900")
    parser.add_argument("--json", type=Path, help="file for the results")
    given = parser.parse_args()
    tree = given.tree.resolve()
    mutants = tomllib.loads((HERE / "mutants.toml").read_text(encoding="utf-8"))["mutant"]
    if wanted := (*(f"{room}/" for room in given.room), *given.only):
        mutants = [mutant for mutant in mutants if mutant["id"].startswith(wanted)]
    if not mutants:
        parser.error("no such mutant")
    if given.check:
        wrong = [f"{mutant['id']}: {made}" for mutant in mutants if isinstance(made := place(mutant, tree), str)]
        print("\n".join(wrong) or f"all {len(mutants)} mutants can be made")
        return int(bool(wrong))
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="m-", ignore_cleanup_errors=True) as folder:
        copy = Copy(tree, Path(folder), given.timeout)
        for number, mutant in enumerate(mutants, start=1):
            result = found[mutant["id"]] = copy.run(mutant, number)
            told = result.get("by") or result.get("why") or mutant["wrong"]
            print(f"{result['state']:9}{result.get('seconds', 0):7.1f} s  {mutant['id']:32}{told}", flush=True)
            if given.json:
                given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    states = Counter(result["state"] for result in found.values())
    print(", ".join(f"{number} {state}" for state, number in states.items()))
    return int(states["killed"] < len(found))


if __name__ == "__main__":
    sys.exit(main())
