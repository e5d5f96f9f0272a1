"""Selections of names by patterns and families, against what fnmatch of the standard library or a set says."""

import pytest

from rankbench.core.errors import ConfigError
from rankbench.core.patterns import is_pattern, matches, selected

NAMES = ["bpr", "deql", "deql-l2", "ease", "movielens-100k", "movielens-1m", "sl"]
FAMILIES = {"linear": ["deql", "deql-l2", "ease"], "softmax": ["sl"]}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["all"], NAMES),
        (["deql*"], ["deql", "deql-l2"]),
        (["movielens-1?"], ["movielens-1m"]),
        (["sl", "bpr"], ["sl", "bpr"]),
        (["family:linear", "sl"], ["deql", "deql-l2", "ease", "sl"]),
        (["all", "!family:linear", "!movielens-*"], ["bpr", "sl"]),
        (["!movielens-*"], ["bpr", "deql", "deql-l2", "ease", "sl"]),
        (["ease", "family:linear"], ["ease", "deql", "deql-l2"]),
    ],
)
def test_what_words_select(words, expected):
    assert selected(words, NAMES, "here", FAMILIES) == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["movilens-*"], "here: 'movilens-*' matches nothing; did you mean movielens-100k, movielens-1m?"),
        (["deqll*"], "here: 'deqll*' matches nothing; did you mean deql, deql-l2?"),
        (["*100m"], "here: '*100m' matches nothing; did you mean movielens-100k"),
        (["zzz*"], "here: 'zzz*' matches nothing"),
        (["family:softmx"], "here: unknown family 'softmx'; did you mean softmax?"),
        (["family:q"], "here: unknown family 'q'; known: linear, softmax"),
        (["eas"], "here: unknown name 'eas'; did you mean ease?"),
        (["sl", "!s*"], "here: sl, !s* leaves nothing"),
        (["all", "!eas*x"], "'eas*x' matches nothing; did you mean ease"),
    ],
)
def test_a_word_that_selects_nothing_names_the_nearest(words, message):
    with pytest.raises(ConfigError) as error:
        selected(words, NAMES, "here", FAMILIES)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_name_is_no_pattern():
    assert not any(map(is_pattern, NAMES))
    assert all(map(is_pattern, ["all", "deql*", "family:softmax", "!ease", "m[ab]"]))
    assert matches("!deql", NAMES, "here") == ["deql"]
