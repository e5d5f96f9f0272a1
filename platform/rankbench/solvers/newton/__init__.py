"""Newton-CG on the loss over all training data."""
