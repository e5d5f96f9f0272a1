"""Link prediction against links counted source by source; a page and its own list."""

from collections import Counter
from decimal import ROUND_HALF_UP, Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbench.data.protocols.link_prediction import LinkPrediction
from rankbench.evaluation.ranking import rank
from rankbench.fitting.recommenders import FactorRecommender

HUB = [(50, page) for page in range(60)]
some_links = st.sets(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=80).map(lambda links: HUB + sorted(links))
shares = st.sampled_from(["0.05", "0.1", "0.29", "0.5", "0.9"])
WORDS = {page: f"page {page}" if page % 3 else str(page) for page in range(60)}


def half_up(share, n):
    return int((Decimal(share) * n).quantize(Decimal(1), ROUND_HALF_UP))


@given(
    links=some_links,
    test=shares,
    valid=shares,
    self_candidate=st.booleans(),
    seed=st.integers(0, 2**40),
    shuffle=st.randoms(use_true_random=False),
)
def test_every_source_gives_a_rounded_share_and_keeps_a_link(cut, links, test, valid, self_candidate, seed, shuffle):
    spec = LinkPrediction(test=float(test), valid=float(valid), self_candidate=self_candidate, seed=seed)
    parts = cut(links, spec).parts
    kept = sorted(link for link in links if self_candidate or link[0] != link[1])
    assert sorted(parts["train"] + parts["valid_target"] + parts["test_target"]) == kept
    assert parts["valid_history"] == parts["test_history"] == []
    found = {name: Counter(source for source, _ in part) for name, part in parts.items()}
    for source, n in Counter(source for source, _ in kept).items():
        n_test = min(half_up(test, n), n - 1)
        n_valid = min(half_up(valid, n), n - 1 - n_test)
        expected = [n - n_test - n_valid, n_valid, n_test]
        assert [found[name][source] for name in ("train", "valid_target", "test_target")] == expected
    assert cut(shuffle.sample(links, len(links)), spec).parts == parts


@pytest.mark.parametrize(
    "name", [int, WORDS.get, lambda page: "forty" if page == 40 else str(page)], ids=["int", "text", "both"]
)
@pytest.mark.parametrize("self_candidate", [False, True])
def test_a_page_is_no_candidate_of_its_own_list(cut, name, self_candidate):
    """The model scores every page highest for itself: with `self_candidate` the page leads its list, unless it is known to
    link to itself; without, it is nowhere. Source 55 is no target, and target 40 no source: where only the targets have a
    word among their names, the sources are numbers and the targets text.
    """
    links = {(a, b) for a in range(12) for b in [*range(16), 40] if (a + b) % 5} | {(55, b) for b in range(8)}
    made, data, parts = cut([(name(a), name(b)) for a, b in links], LinkPrediction(self_candidate=self_candidate, test=0.2))
    sources, targets = (list(map(str, ids.to_pylist())) for ids in (data.users, data.items))
    own = np.array([[source == target for target in targets] for source in sources], np.float32)
    assert own.sum() == 12
    model = FactorRecommender(own, np.eye(len(targets), dtype=np.float32))
    for on, fitted_on, known in (("valid", "train", ["train"]), ("test", "train+valid", ["train", "valid_target"])):
        known_links = {(str(source), str(target)) for part in known for source, target in parts[part]}
        holdout = made.holdout(on, fitted_on)
        (ranking,) = rank([model], holdout, len(targets))
        assert {sources[user] for user in ranking.users} == {str(source) for source, _ in parts[f"{on}_target"]}
        for user, items in zip(ranking.users, ranking.items, strict=True):
            source, listed = sources[user], [targets[item] for item in items if item >= 0]
            masked = {target for target in targets if (source, target) in known_links}
            assert {targets[item] for item in holdout.history[[user]].indices} == masked
            masked |= {source} & set(targets) if not self_candidate else set()
            assert {targets[item] for item in holdout.seen[[user]].indices} == masked
            assert set(listed) == set(targets) - masked
            assert (listed[0] == source) == (source in set(targets) - masked)


def test_a_share_that_is_no_binary_number_rounds_as_it_is_written(cut):
    """0.29 · 50 is 14.5, rounded up; in floating point it is a hair less."""
    parts = cut([(0, page) for page in range(1, 51)], LinkPrediction(test=0.29, valid=0.29)).parts
    assert (len(parts["test_target"]), len(parts["valid_target"])) == (15, 15)
