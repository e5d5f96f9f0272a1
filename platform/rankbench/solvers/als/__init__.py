"""Alternating least squares: a square loss over every pair of a user and an item, minimised in turn over either side."""
