"""Metrics of whole lists against loops in plain Python."""

import math
import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_data import csr, held_out, ranking

from rankbench.core.errors import ConfigError
from rankbench.evaluation.beyond import ALIASES, ITEM_GROUPS, OF_LISTS, USER_GROUPS
from rankbench.evaluation.metrics import METRICS, OTHERS, measure, metric_set

PROPERTY = settings(max_examples=60, deadline=None)  # kernels are compiled at their first call


@st.composite
def cases(draw):
    """(n_items, train, [(history, list, targets), ...]): sets of items, and lists that may end early or be empty."""
    n_items = draw(st.integers(1, 10))
    some = st.sets(st.integers(0, n_items - 1))
    train = draw(st.lists(some, min_size=1, max_size=8))
    one = st.tuples(
        some, st.permutations(range(n_items)), st.integers(0, n_items), st.sets(st.integers(0, n_items - 1), min_size=1)
    )
    users = [(history, list(order[:length]), T) for history, order, length, T in draw(st.lists(one, min_size=1, max_size=5))]
    return n_items, train, users


def item_groups(counts):
    """cold, tail, middle or head for each item."""
    total, before, groups = sum(counts), 0, {}
    for item in sorted(range(len(counts)), key=lambda item: (-counts[item], item)):
        share = before / total if total else 0
        groups[item] = "cold" if not counts[item] else "head" if share < 0.2 else "middle" if share < 0.8 else "tail"
        before += counts[item]
    return groups


def user_groups(known):
    """light, medium or heavy for each number of known interactions."""
    ordered = sorted(known)
    low, high = (ordered[math.ceil(len(known) * share) - 1] for share in (1 / 3, 2 / 3))
    return ["light" if n <= low else "medium" if n <= high else "heavy" for n in known]


def dcg(ranks):
    return sum(1 / math.log2(rank + 1) for rank in ranks)


def expected(n_items, train, users, k):
    """All metrics at k: the mean over users, by definition."""
    counts = [sum(item in row for row in train) for item in range(n_items)]
    n_train = sum(bool(row) for row in train)
    groups, levels = item_groups(counts), user_groups([len(history) for history, _, _ in users])
    result = {}
    shown = [order[:k] for _, order, _ in users]
    exposure = [sum(item in order for order in shown) for item in range(n_items)]
    total = sum(exposure)
    result["gini"] = sum(abs(a - b) for a in exposure for b in exposure) / (2 * n_items * total) if total else 0.0
    lifts, novelties, diversities, divergences = [], [], [], []
    for (history, _, _), order in zip(users, shown, strict=True):
        own = sum(counts[item] for item in history) / len(history) if history else 0
        listed = sum(counts[item] for item in order) / len(order) if order else 0
        lifts += [(listed - own) / own] if own else []
        novelties.append(sum(-math.log2((counts[i] + 1) / (n_train + 1)) for i in order) / max(len(order), 1))
        cosines = []
        for i, j in combinations(order, 2):
            both = sum(i in row and j in row for row in train)
            cosines.append(both / math.sqrt(counts[i] * counts[j]) if both else 0.0)
        diversities.append(1 - sum(cosines) / len(cosines) if cosines else 0.0)
        divergence = 0.0
        for group in ITEM_GROUPS:
            p = sum(groups[item] == group for item in history) / max(len(history), 1)
            q = 0.99 * sum(groups[item] == group for item in order) / max(len(order), 1) + 0.01 * p
            divergence += p * math.log(p / q) if p else 0.0
        divergences += [divergence] if history else []
    for name, values in (
        ("popularity_lift", lifts), ("novelty", novelties), ("diversity", diversities), ("miscalibration", divergences),
    ):  # fmt: skip
        result[name] = sum(values) / len(values) if values else 0.0
    for group in ITEM_GROUPS:
        hits = [
            [r for r, i in enumerate(o, 1) if i in T and groups[i] == group] for o, (_, _, T) in zip(shown, users, strict=True)
        ]
        targets = [sum(groups[item] == group for item in T) for _, _, T in users]
        result[f"recall_{group}"] = sum(map(len, hits)) / sum(targets) if sum(targets) else 0.0
        ideal = sum(dcg(range(1, min(k, n) + 1)) for n in targets)
        result[f"ndcg_{group}"] = sum(map(dcg, hits)) / ideal if ideal else 0.0
    for level in USER_GROUPS:
        own = [user for user, each in enumerate(levels) if each == level]
        recalls, ndcgs = [], []
        for user in own:
            T = users[user][2]
            hits = [rank for rank, item in enumerate(shown[user], 1) if item in T]
            recalls.append(len(hits) / len(T))
            ndcgs.append(dcg(hits) / dcg(range(1, min(k, len(T)) + 1)))
        result[f"recall_{level}"] = sum(recalls) / len(own) if own else 0.0
        result[f"ndcg_{level}"] = sum(ndcgs) / len(own) if own else 0.0
    return result


def measured(n_items, train, users, k):
    depth = min(k, n_items)
    lists = ranking([order[:depth] for _, order, _ in users], depth)
    holdout = held_out([T for _, _, T in users], n_items, [h for h, _, _ in users])
    found = measure(lists, holdout, metric_set(OF_LISTS, [k]), csr(train, n_items))
    return {name: float(np.mean(values)) for name, values in (found.values | found.overall).items()}


@PROPERTY
@given(case=cases(), k=st.integers(1, 14))
def test_every_metric_is_its_definition(case, k):
    oracle = expected(*case, k)
    assert set(oracle) == set(OF_LISTS)
    assert measured(*case, k) == pytest.approx({f"{name}@{k}": value for name, value in oracle.items()}, abs=1e-9)


def test_words_stand_for_several_metrics_and_unknown_training_interactions_are_refused():
    assert set(metric_set(["groups@5"]).names) == {f"{name}@5" for name in ALIASES["groups"]} and len(ALIASES["groups"]) == 14
    assert metric_set(["beyond"], [10, 20]).names[:2] == ("gini@10", "gini@20")
    with pytest.raises(ConfigError, match="novelty@1 cannot be measured here"):
        measure(ranking([[0]], 1), held_out([{0}], 2), metric_set(["novelty"], [1]))


def test_the_page_defines_every_metric():
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
    defined = set(re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))))
    assert defined == {*METRICS.names(), *OTHERS}
