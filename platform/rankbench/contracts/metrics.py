"""What is asked of every metric: one number per user, larger for better lists, whatever the other users got."""

from __future__ import annotations

import numpy as np

from rankbench.contracts.check import Contract, expect, expect_equal, expect_finite
from rankbench.evaluation.metrics import Hits

CONTRACT = Contract("metric")
LENGTH = 6


def lists(n_users: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Random hits (n_users, LENGTH), the first list empty and the last full of hits, and numbers of targets (n_users,)."""
    rng = np.random.default_rng(4)
    hits = rng.random((n_users, LENGTH)) < rng.random((n_users, 1))
    hits[0], hits[-1] = False, True
    return hits, hits.sum(axis=1) + rng.integers(1, 5, n_users)


@CONTRACT.check(
    "one finite number per user, for lists of any length",
    "return an array (m,); a user has at least one target and perhaps no hit, so divide by n_targets and not by hits",
)
def values_are_finite(metric: Hits) -> None:
    hits, n_targets = lists()
    for k in (1, LENGTH):
        values = np.asarray(metric(hits[:, :k], n_targets))
        expect(values.shape == (len(hits),), f"@{k}: returned the shape {values.shape} instead of {(len(hits),)}")
        expect_finite(values, f"@{k}")


@CONTRACT.check("the value of a user does not depend on other users", "compute along axis 1 only")
def users_are_separate(metric: Hits) -> None:
    hits, n_targets = lists()
    whole = metric(hits, n_targets)
    for user in (0, 7, -1):
        alone = metric(hits[user][None, :], n_targets[[user]])
        expect_equal(alone[0], whole[user], "value of a user alone and among others", 1e-12)


@CONTRACT.check("the arguments are not changed", "copy hits before you change them")
def arguments_are_unchanged(metric: Hits) -> None:
    hits, n_targets = lists()
    before = hits.copy(), n_targets.copy()
    metric(hits, n_targets)
    expect_equal(hits, before[0], "hits")
    expect_equal(n_targets, before[1], "n_targets")


@CONTRACT.check(
    "a further hit, or a hit at a better rank, never lowers the value, and no hit gives the lowest",
    "larger values must be better: searches take the maximum; negate an error measure",
)
def better_lists_have_larger_values(metric: Hits) -> None:
    hits, n_targets = lists()
    values = metric(hits, n_targets)
    expect(values[0] <= values.min() + 1e-12, f"a list without hits has {values[0]:.6g}, another one {values.min():.6g}")
    for user in range(len(hits)):
        for rank in range(LENGTH):
            better = hits[user].copy()
            if hits[user, rank] and rank and not hits[user, rank - 1]:
                better[[rank - 1, rank]] = True, False
            elif not hits[user, rank] and hits[user].sum() < n_targets[user]:
                better[rank] = True
            else:
                continue
            value = metric(better[None, :], n_targets[[user]])[0]
            shown = "".join("x" if hit else "-" for hit in hits[user]), "".join("x" if hit else "-" for hit in better)
            lower = f"hits {shown[0]} have {values[user]:.6g}, the better {shown[1]} {value:.6g}"
            expect(value >= values[user] - 1e-12, lower)
