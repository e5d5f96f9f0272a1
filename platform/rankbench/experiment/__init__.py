"""One run: load, split, fit, rank, measure, record."""
