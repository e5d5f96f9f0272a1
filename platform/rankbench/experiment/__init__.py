"""One run: load, split, fit, rank, measure and record."""
