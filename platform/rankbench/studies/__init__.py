"""Studies: simulations and figures of the papers. One file per study; every file in this folder is registered."""
