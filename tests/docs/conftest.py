"""Lets the tests of this room import what stands beside them, and the programs under docs/."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "docs")]
