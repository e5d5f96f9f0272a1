"""Closed forms whose item-item matrix does not fit into memory: its inverse is computed by tiles that are stored in a file."""
