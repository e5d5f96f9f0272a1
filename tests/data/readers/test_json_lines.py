"""Amazon's and Steam's reviews, an object a line."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbench.core.errors import DataError
from rankbench.data.cards import Read

AMAZON = Read(format="json-lines", user="reviewerID", item="asin", value="overall", time="unixReviewTime")
STEAM = Read(format="json-lines", user="username", item="product_id", time="date")
RATED = Read(format="json-lines", value="value", time="time")
# As published: the Electronics reviews of 2014, the Magazine reviews of 2018, and the Steam reviews.
AMAZON_2014 = (
    '{"reviewerID": "AO94DHGC771SJ", "asin": "0528881469", "reviewerName": "amazdnu", "helpful": [0, 0], "reviewText": '
    '"We got this GPS ... \\u201cnice\\u201d", "overall": 5.0, "summary": "Gotta have GPS!", "unixReviewTime": 1370131200, '
    '"reviewTime": "06 2, 2013"}\n'
)
AMAZON_2018 = (
    '{"overall": 5.0, "vote": "9", "verified": true, "reviewTime": "11 8, 2001", "reviewerID": "AH2IFH762VY5U", "asin": '
    ' "B00005N7P0", "style": {"Format:": " Print Magazine"}, "reviewText": "for enthusiasts", "unixReviewTime": 1005177600}\n'
)
STEAM_REVIEWS = (
    "{u'username': u'Chaos Syren', u'hours': 0.1, u'products': 41, u'product_id': u'725280', u'page_order': 0, u'date': "
    "u'2017-12-17', u'text': u'This would not be acceptable \\xbd \"as\" \\d', u'early_access': False, u'page': 1}\n"
    "{u'hours': 51.1, u'user_id': u'76561197970982479', u'username': u\"\\u2661 Ariman's\", u'product_id': u'328100', "
    "u'date': u'2017-08-02', u'text': u'', u'early_access': True, u'found_funny': None}\n"
)


@pytest.mark.parametrize(
    ("text", "spec", "rows"),
    [
        (AMAZON_2014, AMAZON, [("AO94DHGC771SJ", "0528881469", 5.0, 1370131200)]),
        (AMAZON_2018, AMAZON, [("AH2IFH762VY5U", "B00005N7P0", 5.0, 1005177600)]),
        (STEAM_REVIEWS, STEAM, [("Chaos Syren", "725280", 1513468800), ("♡ Ariman's", "328100", 1501632000)]),
        ('\n{"user": 1, "item": "a"}\r\n\n \n{"item": 2, "user": "1"}', Read(format="json-lines"), [("1", "a"), ("1", "2")]),
        ('\ufeff{"user": 1, "item": 2}\n', Read(format="json-lines"), [("1", "2")]),
        # A missing time is allowed, as in every format; a number may be text.
        ('{"user": 1, "item": 2, "value": "4.5", "time": null}', RATED, [("1", "2", 4.5, None)]),
        ('{"user": 1, "item": 2, "value": 4, "time": "2005-09-06"}', RATED, [("1", "2", 4.0, 1125964800)]),
    ],
)
def test_reviews_are_read_as_published(text, spec, rows, rows_of):
    assert rows_of(text, spec) == rows
    assert rows_of(gzip.compress(text.encode()), spec, "raw.json.gz") == rows


words = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1).filter(
    lambda word: word.lower() != "nan" and not word.startswith("-")
)
entries = st.lists(st.tuples(words, words, st.floats(-1e6, 1e6), st.integers(-(2**53), 2**53)), min_size=1, max_size=20)


@given(entries=entries, write=st.sampled_from([json.dumps, lambda row: json.dumps(row, ensure_ascii=False), repr]))
def test_what_is_written_is_read_back(entries, write, rows_of):
    fields = ("user", "item", "value", "time")
    text = "".join(write(dict(zip(fields, entry, strict=True))) + "\n" for entry in entries)
    assert rows_of(text, RATED) == entries


GOOD = '{"user": "u", "item": "i", "value": 1, "time": 2}\n'


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ('{"user": "u", "item": "i", "value": 1}', "no 'time'"),
        ('{"User": "u", "item": "i", "value": 1, "time": 2}', "no 'user'; did you mean User?"),
        ('{"user": null, "item": "i", "value": 1, "time": 2}', "user is None"),
        ('{"user": "", "item": "i", "value": 1, "time": 2}', "user is ''"),
        ('{"user": "u", "item": ["i"], "value": 1, "time": 2}', r"item is \['i'\]"),
        ('{"user": true, "item": "i", "value": 1, "time": 2}', "user is True"),
        ('{"user": 1.5, "item": "i", "value": 1, "time": 2}', "user is 1.5; expected text or a whole number"),
        ('{"user": -1, "item": "i", "value": 1, "time": 2}', "user is '-1'"),
        ('{"user": "u\\u0000", "item": "i", "value": 1, "time": 2}', "user is 'u.x00'"),
        ('{"user": "u", "item": "i", "value": null, "time": 2}', "value is None; expected text or a number"),
        ('{"user": "u", "item": "i", "value": "good", "time": 2}', "expected the value to be a number, found 'good'"),
        ('{"user": "u", "item": "i", "value": false, "time": 2}', "value is False"),
        ('{"user": "u", "item": "i", "value": NaN, "time": 2}', "expected one object per line: .* at byte 37"),
        ('{"user": "u", "item": "i", "value": "nan", "time": 2}', "value is nan"),
        ('{"user": "u", "item": "i", "value": 1e99, "time": 2}', "value is 1e.99"),
        (
            '{"user": "u", "item": "i", "value": 1, "time": 2.5}',
            "expected the time in whole seconds since 1970 or as a date, found '2.5'",
        ),
        ('{"user": "u", "item": "i", "value": 1, "time": {}}', "time is {}"),
        ('{"user": "\\ud800", "item": "i", "value": 1, "time": 2}', "expected one object per line"),
        ('{"user": "u", "item": "i", "value": 1, "time": 2', "expected one object per line"),
        ('["u", "i", 1, 2]', r"expected an object, .* found \['u', 'i', 1, 2\]"),
        ('"text"', "expected an object, .* found 'text'"),
        ("null", "expected an object, .* found None"),
        ("[" * 5000, "expected one object per line"),
        # The first line is JSON, so this is not.
        ("{'user': 'u', 'item': 'i', 'value': 1, 'time': 2}", "expected one object per line"),
    ],
)
def test_the_line_that_is_wrong_is_named(bad, message, rows_of):
    with pytest.raises(DataError, match=rf"raw\.dat:13: .*{message}"):
        rows_of(GOOD * 10 + "\n\n" + bad + "\n" + GOOD * 10, RATED)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("{'user': open('/dev/null'), 'item': 'i'}", "not a plain value"),
        ("{'user': u, 'item': 'i'}", "not a plain value"),
        ("{[]: 1, 'user': 'u', 'item': 'i'}", "not a plain value"),
        ("{'user': '\\ud800', 'item': 'i'}", "half a character"),
        ("{'user': 'u', 'item': 'i'", "was never closed"),
        ("{'user': 'u', 'item': " + "-" * 100_000 + "1}", "not a plain value"),
        ("{'user': 'u', 'item': " + "(" * 1000 + "}", "nested"),
        ("{'user': 'u', 'item': 'i\x00'}", "null"),
        ("{'user': 'u', 'item': '" + "i" * (1 << 20) + "'}", "longer than 1 MB"),
        ('{"user": true, "item": "i"}', "not a plain value"),
        ("{'user': b'u', 'item': 'i'}", "user is b'u'"),
        ("{'item': 'i'}", "no 'user'"),
    ],
)
def test_literals_are_values_and_nothing_is_run(bad, message, rows_of):
    good = "{'user': 'u', 'item': 7}\n"
    with pytest.raises(DataError, match=rf"raw\.dat:3: .*{message}"):
        rows_of(good * 2 + bad + "\n" + good, Read(format="json-lines"))


def test_an_array_over_many_lines_is_refused_at_its_first(rows_of):
    with pytest.raises(DataError, match=r"raw\.dat:1: expected one object per line"):
        rows_of('[\n{"user": 1, "item": 2}\n]\n', Read(format="json-lines"))
