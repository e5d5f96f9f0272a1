"""Sentences on what preparing a dataset dropped or kept, from the counts that records have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

SENTENCES = {
    "dropped_missing": "{:,} rows of the raw files had no user, item, value or time, and were dropped",
    "alike_user_ids": "{:,} user ids equal another one but for blanks, zeros of a number or Unicode form: users of their own",
    "alike_item_ids": "{:,} item ids equal another one but for blanks, zeros of a number or Unicode form: items of their own",
    "known_test_pairs_dropped": "{:,} pairs of the test period were known before it and are no targets (`repeats: drop`)",
    "tied_test_users": "{:,} users have a test item of the time of their validation item; which one is for test was drawn",
    "known_test_pairs_kept": "{:,} test pairs were known before the test period; models are not told (`repeats: keep`)",
}


def data_notes(counts: Mapping[str, int]) -> Iterator[str]:
    """Yield one sentence per count that is not 0."""
    return (sentence.format(counts[name]) for name, sentence in SENTENCES.items() if counts.get(name))
