"""Lets the tests of this room import small fits, which stand beside them, and tensors that lie elsewhere."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "kernels")]
