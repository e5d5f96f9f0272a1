"""The wrong changes of `benchmarks/mutants.toml` fit the code as it is now."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_mutant_can_be_made():
    checked = subprocess.run([sys.executable, ROOT / "benchmarks" / "mutants.py", "--check"], capture_output=True, text=True)
    assert checked.returncode == 0, f"mend benchmarks/mutants.toml: {checked.stdout}{checked.stderr}"
