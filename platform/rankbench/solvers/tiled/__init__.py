"""The closed forms whose item-item matrix does not fit into memory: its inverse by tiles that lie in a file."""
