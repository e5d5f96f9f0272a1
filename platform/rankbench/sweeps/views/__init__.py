"""What a user sees of running work, on a terminal and in a notebook."""
