"""Fresh virtual environments, outside the checkout, and the wheel that is installed in them."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONSTRAINTS = ROOT / "constraints.txt"


def clean_environment(folder):
    """The environment of a user who has set nothing of rankbench and whose working folder is `folder`."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("RANKBENCH_", "MLFLOW_", "RAY_", "PYTHON"))
    }
    return kept | {"RANKBENCH_DATA": str(folder / "data"), "RANKBENCH_OFFLINE": "1", "MPLBACKEND": "agg"}


class Venv:
    """A virtual environment in `folder`/venv; commands run in `folder`/work, which is empty at first."""

    def __init__(self, folder: Path):
        self.folder, self.work = folder, folder / "work"
        self.work.mkdir(parents=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)

    def run(self, *words, check=True, timeout=1200):
        """Run a program of the environment and return its output."""
        program = str(self.folder / "venv" / "bin" / words[0])
        done = subprocess.run(
            [program, *map(str, words[1:])],
            cwd=self.work,
            env=clean_environment(self.folder),
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )
        assert done.returncode == 0 or not check, f"{words}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done

    def install(self, *words):
        self.run("python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", CONSTRAINTS, *words)


def tracked_files(target: Path) -> Path:
    """Copy what git tracks, as it is in the working folder, to `target`: a tree without .git, as in an archive."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        source, copy = ROOT / name, target / name
        if source.is_file():
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(source.read_bytes())
    return target


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}
