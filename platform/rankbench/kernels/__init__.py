"""Compiled products and sums of vectors, with their gradients, that encoders and the trainer share."""
