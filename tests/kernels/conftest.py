"""Lets the tests of this room import what stands beside them: the operations in plain PyTorch."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
