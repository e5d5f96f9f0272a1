"""The Netflix Prize's files, made up but of true size and format.

    python benchmarks/netflix_dump.py FOLDER [--scale 1.0] [--seed 0]

Writes nf_prize_dataset.tar.gz, as it was published: a packed archive in which download/training_set.tar holds a text for each
movie. At scale 1: 480,189 customers, 17,770 movies, 100.5 million ratings, 57 % of them 4 or 5; power laws on both sides, and
customers and movies have tastes, so that there is something to learn.
"""

from __future__ import annotations

import argparse
import io
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

CUSTOMERS, MOVIES, RATINGS = 480_189, 17_770, 100_480_507
LARGEST_ID = 2_649_429
GOOD = 0.566  # share of ratings of 4 and 5
TASTES, LIKING = 12, 4.0  # a movie of one's taste is drawn so many times as often
NAME = "nf_prize_dataset.tar.gz"


def write_where_told(about: str, name: str, write: Callable[[Path, float, int], int], rows: str) -> None:
    """Write a dump into the folder of the command line, and say how large it is."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers above")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    began = time.perf_counter()
    given.folder.mkdir(parents=True, exist_ok=True)
    n = write(given.folder / name, given.scale, given.seed)
    size = (given.folder / name).stat().st_size
    print(f"{n:,} {rows}, {size / 1e6:,.0f} MB packed, in {time.perf_counter() - began:.0f} s")


def write_dump(path: Path, scale: float, seed: int) -> int:
    """How many ratings; equal scale and seed, equal ratings."""
    inner = path.with_name("training_set.tar")
    n = 0
    with tarfile.open(inner, "w") as archive:
        for number, (text, ratings) in enumerate(movies(scale, seed), start=1):
            _add(archive, f"training_set/mv_{number:07d}.txt", io.BytesIO(text), len(text))
            n += ratings
    with tarfile.open(path, "w:gz", compresslevel=1) as archive, inner.open("rb") as file:
        _add(archive, "download/training_set.tar", file, inner.stat().st_size)
    inner.unlink()
    return n


def movies(scale: float, seed: int) -> Iterator[tuple[bytes, int]]:
    """The text of each movie, and its number of ratings."""
    rng = np.random.default_rng(seed)
    n_customers, n_movies = round(scale * CUSTOMERS), round(scale * MOVIES)
    customers = np.sort(rng.choice(np.arange(1, LARGEST_ID + 1), n_customers, replace=False))
    taste = rng.integers(TASTES, size=n_customers)
    activity = rng.lognormal(0, 1.1, n_customers)
    by_taste = [np.cumsum(np.where(taste == each, LIKING, 1.0) * activity) for each in range(TASTES)]
    shares = 1 / (n_movies / 180 + rng.permutation(n_movies))
    counts = (shares / shares.sum() * scale * RATINGS).astype(int).clip(3, n_customers // 2)
    days = np.datetime64("1999-11-11") + np.arange(2242)
    dates = pa.array(np.datetime_as_string(days))
    options = pyarrow.csv.WriteOptions(include_header=False, quoting_style="none")
    for number, count in enumerate(counts, start=1):
        cumulative = by_taste[rng.integers(TASTES)]
        who = _some(cumulative, count, rng)
        good = rng.random(len(who)) < GOOD
        rating = np.where(good, rng.integers(4, 6, len(who)), rng.integers(1, 4, len(who)))
        date = dates.take(pa.array(rng.integers(len(days), size=len(who))))
        sink = pa.BufferOutputStream()
        sink.write(f"{number}:\n".encode())
        pyarrow.csv.write_csv(pa.table([pa.array(customers[who]), pa.array(rating), date], ["c", "r", "d"]), sink, options)
        yield sink.getvalue().to_pybytes(), len(who)


def _some(cumulative: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """`count` different customers, the active ones more often; in random order."""
    found = np.empty(0, int)
    while len(found) < count:
        drawn = np.searchsorted(cumulative, rng.random(2 * count) * cumulative[-1], "right")
        found = np.union1d(found, drawn)
    return rng.permutation(found)[:count]


def _add(archive: tarfile.TarFile, name: str, file: io.BufferedIOBase, size: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = size
    archive.addfile(entry, file)


if __name__ == "__main__":
    write_where_told(__doc__, NAME, write_dump, "ratings")
