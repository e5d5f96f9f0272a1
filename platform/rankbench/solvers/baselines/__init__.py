"""Non-personalised baselines: popularity and random."""
