"""Linear autoencoders: closed forms on the Gram."""
