"""Alternating least squares: a squared loss over all pairs of a user and an item, minimised alternately over either side."""
