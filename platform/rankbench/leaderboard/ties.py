"""Which of the best methods on a dataset its users tell from the best one: paired tests, kept in the store."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from rankbench.judge.compare import compare
from rankbench.leaderboard.results import Leaderboard, Result, Ties

TESTED = 10  # methods of a dataset that are compared: each further one needs more resamples for all pairs


def ties(ranked: Sequence[Result], metric: str, results: Leaderboard) -> Ties | None:
    """Compare the best entries of a dataset, which are given best first, or read what was compared before.

    None for fewer than two entries, or if their users are not on this machine and the store has no verdicts of these entries.
    """
    best = ranked[:TESTED]
    if len(best) < 2:
        return None
    dataset, of = best[0].dataset, _of(best)
    for each in results.lines(Ties, dataset):
        if each.key == (of, metric):
            return each
    samples = {each.entrant: users for each in best if (users := results.users_of(each, metric)) is not None}
    if len(samples) < len(best):
        return None
    tests = compare(samples, metric=metric)
    verdicts = {pair.model: pair.verdict for pair in tests.pairs if pair.against == tests.best}
    worse = tuple(name for name, verdict in verdicts.items() if verdict == "worse")
    equal = tuple(name for name in verdicts if name not in worse)
    allowed = best[0].allowed
    found = Ties(dataset=dataset, allowed=allowed, metric=metric, of=of, best=tests.best, worse=worse, equal=equal)
    results.add(found)
    return found


def _of(entries: Sequence[Result]) -> str:
    content = json.dumps([[each.card, each.entrant, each.allowed, each.rules, each.started_at] for each in entries])
    return hashlib.sha256(content.encode()).hexdigest()[:16]
