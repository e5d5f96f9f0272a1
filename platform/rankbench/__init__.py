"""rankbench: distributed benchmarking of recommendation losses on implicit feedback."""
