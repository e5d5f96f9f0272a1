"""Rankings that learn next to nothing."""
