"""Matrix factorisation by alternating least squares, one file per loss."""
