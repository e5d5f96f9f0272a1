"""Baselines that are not personal: popularity and random."""
