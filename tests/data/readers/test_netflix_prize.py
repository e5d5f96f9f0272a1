"""The Netflix Prize, as one text and as the tar of a file a movie."""

import gzip
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packed import tarred

from rankbench.core.errors import DataError
from rankbench.data.cards import Read

SPEC = Read(format="netflix-prize", value="rating", time="date")
# The first lines of the published files.
MOVIES = {1: "1488844,3,2005-09-06\n822109,5,2005-05-13\n", 2: "2059652,4,2005-09-05\n", 17770: ""}
ROWS = [(1488844, 1, 3.0, 1125964800), (822109, 1, 5.0, 1115942400), (2059652, 2, 4.0, 1125878400)]
TEXT = "".join(f"{movie}:\n{ratings}" for movie, ratings in MOVIES.items())


TAR = tarred({f"training_set/mv_{m:07d}.txt": f"{m}:\n{ratings}".encode() for m, ratings in MOVIES.items()})


@pytest.mark.parametrize("kept", [3 * 512, 3 * 512 + 100])
def test_a_tar_that_ends_between_two_files_or_in_a_header_is_damaged(rows_of, kept):
    """The header and the content of the first movie take 512 bytes each; tarfile takes this for the end."""
    assert len(rows_of(TAR, SPEC)) == len(ROWS)
    with pytest.raises(DataError, match="unexpected end of data"):
        rows_of(TAR[: kept - 512], SPEC)


def test_the_published_forms_are_the_same_ratings(rows_of):
    assert rows_of(TEXT, SPEC) == ROWS
    assert rows_of(TEXT.replace("\n", "\r\n"), SPEC) == ROWS
    assert rows_of(gzip.compress(TEXT.encode()), SPEC, "raw.txt.gz") == ROWS
    assert rows_of(TAR, SPEC, "training_set.tar") == ROWS
    whole = tarred({"download/README": b"see there", "download/training_set.tar": TAR}, "w:gz")
    assert rows_of(whole, SPEC, "nf_prize_dataset.tar.gz", "download/training_set.tar") == ROWS


def test_only_columns_that_the_card_names_are_made(rows_of):
    assert rows_of(TEXT, Read(format="netflix-prize")) == [row[:2] for row in ROWS]


ratings = st.tuples(st.integers(0, 10**18 - 1), st.integers(0, 9999), st.dates())
movies = st.lists(st.tuples(st.integers(0, 10**18 - 1), st.lists(ratings, max_size=5)), max_size=5)


@given(movies=movies, end=st.sampled_from(["\n", "\r\n", "\n\n"]))
def test_every_date_and_number_is_read_back(movies, end, rows_of):
    lines, rows = [], []
    for movie, rated in movies:
        lines.append(f"{movie}:")
        for user, stars, date in rated:
            lines.append(f"{user},{stars},{date.isoformat()}")
            midnight = datetime(date.year, date.month, date.day, tzinfo=UTC)
            rows.append((user, movie, float(stars), (midnight - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)))
    assert rows_of(end.join(lines), SPEC) == rows


@pytest.mark.parametrize(
    "bad",
    [
        "7,5",
        "7,5,2005-09-06,",
        "7,5,2005-9-6",
        "7,5,2005-13-01",
        "7,5,2005-02-29",
        "7,5,1900-02-29",
        "7,5,2005-04-31",
        "7,5,2005-00-10",
        "7,5,2005/09/06",
        "7,,2005-09-06",
        ",5,2005-09-06",
        "-7,5,2005-09-06",
        "7,-5,2005-09-06",
        "7,4.5,2005-09-06",
        "7,inf,2005-09-06",
        "7;5;2005-09-06",
        "9999999999999999999,5,2005-09-06",
        "7,99999,2005-09-06",
        "seven:",
        "7: ",
        ":",
        "7",
        "7,5,2005-09-0\x00",
        "7,5,2005-09-",
    ],
)
def test_the_line_that_is_wrong_is_named(bad, rows_of):
    for text, line in ((f"{TEXT}\n{bad}\n1:\n", 8), (TEXT + bad, 7)):  # the last line may lack its end
        with pytest.raises(DataError, match=rf"raw\.dat:{line}: expected a movie, .* or a rating, .* found '"):
            rows_of(text, SPEC)


def test_ratings_before_the_first_movie_belong_to_none(rows_of):
    with pytest.raises(
        DataError, match=r"raw\.dat:2: expected a line with the movie first, such as 12:, found '7,5,2005-09-06'"
    ):
        rows_of("\n7,5,2005-09-06\n1:\n", SPEC)
    # Nor to the movie of the file before.
    tar = tarred({"a/mv_1.txt": b"1:\n7,5,2005-09-06\n", "a/mv_2.txt": b"8,5,2005-09-06\n"})
    with pytest.raises(DataError, match=r"raw\.tar: a/mv_2\.txt:1: expected a line with the movie first"):
        rows_of(tar, SPEC, "raw.tar")
