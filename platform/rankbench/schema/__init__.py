"""What an experiment file and a stored sweep are, as types."""
