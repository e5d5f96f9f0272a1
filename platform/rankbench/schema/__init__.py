"""Types of an experiment file and of a stored sweep."""
