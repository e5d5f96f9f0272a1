"""Linear autoencoders, most of them closed forms of the Gram matrix."""
