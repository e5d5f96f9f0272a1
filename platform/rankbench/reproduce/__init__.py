"""Published tables, measured under a time budget: what is published, what is measured, and what to fit next."""
