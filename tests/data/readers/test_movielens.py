"""The MovieLens archives in their true layout, zipped and unpacked: a card names the archive and nothing else."""

import pytest
from packed import zipped

from rankbench.core.errors import DataError
from rankbench.data.cards import Read
from rankbench.data.prepare import load

PAIRS = [(user, item) for user in range(1, 9) for item in range(1, 10) if (user + item) % 4]
# Archive → its folder, the file of ratings, and one rating as it stands there.
ARCHIVES = {
    "ml-100k": ("ml-100k", "u.data", "{}\t{}\t3\t881250949\n"),
    "ml-1m": ("ml-1m", "ratings.dat", "{}::{}::3::881250949\n"),
    "ml-10m": ("ml-10M100K", "ratings.dat", "{}::{}::3.5::881250949\n"),
    "ml-20m": ("ml-20m", "ratings.csv", "{},{},3.5,881250949\n"),
}


def contents(archive: str) -> dict[str, bytes]:
    """The files of an archive; the titles are latin-1 in the older ones."""
    folder, name, row = ARCHIVES[archive]
    ratings = "".join(row.format(user, item) for user, item in PAIRS)
    head = "userId,movieId,rating,timestamp\n" if name.endswith(".csv") else ""
    titles = "1::Misérables, Les (1995)::Drama\n".encode("latin-1")
    others = {
        f"{folder}/README": b"x",
        f"{folder}/movies.dat": titles,
        f"{folder}/u1.base": b"",
        f"{folder}/tags.csv": b"a,b\n",
        "__MACOSX/x/._ratings.dat": b"x",
    }
    return others | {f"{folder}/{name}": (head + ratings).encode()}


@pytest.mark.parametrize("archive", ARCHIVES)
def test_an_archive_as_downloaded_and_unpacked(archive, write, environment, tmp_path):
    files, read = contents(archive), {"format": "movielens"}
    packed = load(write({"source": {"file": "x.zip"}, "read": read}, {"x.zip": zipped(files)}), environment)
    assert packed.raw_counts == {"users": 8, "items": 9, "interactions": len(PAIRS)}
    assert packed.time_span == (881250949, 881250949)
    for name, content in files.items():
        path = tmp_path / "cards" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    unpacked = load(write({"source": {"folder": ARCHIVES[archive][0]}, "read": read}), environment)
    assert unpacked.fingerprint == packed.fingerprint


def test_the_rating_can_be_a_threshold(write, environment):
    rows = "".join(f"{user}::{item}::{1 + item % 5}::9\n" for user, item in PAIRS)
    card = {"source": {"file": "ratings.dat"}, "read": {"format": "movielens"}, "prepare": [{"min_value": 2}]}
    data = load(write(card, {"ratings.dat": rows}), environment)
    assert data.counts["interactions"] == sum(item % 5 > 0 for _, item in PAIRS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "1|Toy Story (1995)|01-Jan-1995\n",
            r"raw\.dat:1: not one of MovieLens' u\.data, ratings\.dat, ratings\.csv: found '1\|Toy",
        ),
        ("userId,movieId,tag,timestamp\n1,2,x,3\n", r"raw\.dat:1: not one of MovieLens'"),
        ("1::2::3::4\n1::2::3\n", r"raw\.dat:2: Expected 4 columns, got 3"),
        ("1\t2\t3\t4\n1\t2\tx\t4\n", r"raw\.dat:2: expected the value to be a number, found 'x'"),
        ("\x1b[2J\n", r"raw\.dat:1: not one of"),
    ],
)
def test_another_text_is_one_line(text, message, rows_of):
    with pytest.raises(DataError, match=message) as error:
        rows_of(text, Read(format="movielens"))
    assert str(error.value).isprintable()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"ml-1m/movies.dat": b"x"}, r"x\.zip: none of u\.data, ratings\.dat, ratings\.csv; is it one of the MovieLens"),
        ({"a/ratings.csv": b"x", "b/ratings.csv": b"x"}, r"x\.zip: several files of ratings, a/ratings\.csv, b/ratings\.csv"),
    ],
)
def test_another_archive_is_refused(files, message, write, environment):
    with pytest.raises(DataError, match=message):
        load(write({"source": {"file": "x.zip"}, "read": {"format": "movielens"}}, {"x.zip": zipped(files)}), environment)
