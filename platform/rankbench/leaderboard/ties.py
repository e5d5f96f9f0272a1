"""Which of the best methods on a dataset its users tell from the best one: paired tests, kept in the store.

ties/DATASET.jsonl      one line per set of entries and metric. The values of each user, which the tests need, stay where they
                        were measured; their verdicts are small and travel with the store.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from rankbench.core.json_lines import JsonLines
from rankbench.evaluation.compare import compare
from rankbench.leaderboard.results import Result, Results

TESTED = 10  # methods of a dataset that are compared: each further one needs more resamples for all pairs


@dataclass(frozen=True)
class Ties:
    """The `worse` and the `equal` methods, those that are not told from `best`. `of`: key of the entries that were compared."""

    allowed: str
    metric: str
    of: str
    best: str
    worse: tuple[str, ...]
    equal: tuple[str, ...]

    @property
    def key(self) -> tuple[str, str]:
        return self.of, self.metric

    def verdict(self, method: str) -> str:
        return "worse" if method in self.worse else "= best" if method in self.equal else ""


def ties(ranked: Sequence[Result], metric: str, results: Results) -> Ties | None:
    """Compare the best entries of a dataset, which are given best first, or read what was compared before.

    None for fewer than two entries, or if their users are not on this machine and the store has no verdicts of these entries.
    """
    best = ranked[:TESTED]
    if len(best) < 2:
        return None
    path, key = results.folder / "ties" / f"{best[0].dataset}.jsonl", (_of(best), metric)
    file = JsonLines(path, Ties, lambda each: each.key, best[0].dataset)
    for each in file.read(results.skipped):
        if each.key == key:
            return each
    samples = {each.entrant: users for each in best if (users := results.users_of(each, metric)) is not None}
    if len(samples) < len(best):
        return None
    tests = compare(samples, metric=metric)
    verdicts = {pair.model: pair.verdict for pair in tests.pairs if pair.against == tests.best}
    worse = tuple(name for name, verdict in verdicts.items() if verdict == "worse")
    equal = tuple(name for name in verdicts if name not in worse)
    found = Ties(best[0].allowed, metric, key[0], tests.best, worse, equal)
    if results.skipped is None:  # a file of which lines were left out is not written
        file.update(lambda stored: [*(each for each in stored if each.key != key), found])
    return found


def _of(entries: Sequence[Result]) -> str:
    content = json.dumps([[each.card, each.entrant, each.allowed, each.rules, each.started_at] for each in entries])
    return hashlib.sha256(content.encode()).hexdigest()[:16]
