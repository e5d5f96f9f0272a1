"""Helpers of this folder, and the cluster of another, are imported by name."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
