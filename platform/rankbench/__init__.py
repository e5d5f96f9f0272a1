"""rankbench: recommendation losses on implicit feedback, benchmarked exactly and at speed."""

import os

# Threads that wait by spinning take the processor from those that work, as soon as two fits share a machine: a step of tens
# of milliseconds then takes a quarter of a second. OpenMP reads this once, when torch or numba load it.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
