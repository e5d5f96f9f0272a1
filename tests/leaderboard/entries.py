"""Entries of a leaderboard that were not run."""

from rankbench.leaderboard.results import Result


def entry(dataset="lastfm", entrant="ease", value=None, **other):
    """A finished entry, whose ndcg@20 is `value` if it is given."""
    metrics = {} if value is None else {"ndcg@20": (value, None, None)}
    plain = {"card": "card", "rules": "rules", "allowed": "10s", "budget": 10.0, "metric": "ndcg@20", "metrics": metrics}
    return Result(dataset=dataset, entrant=entrant, **plain | other)
