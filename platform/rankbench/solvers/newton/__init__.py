"""Newton-CG over whole datasets."""
