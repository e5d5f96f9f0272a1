"""The Taste Profile of the Million Song Dataset, made up but of true size and format.

    python benchmarks/msd_dump.py FOLDER [--scale 1.0] [--seed 0]

Writes train_triplets.txt.zip: a line for each listener, song and number of plays, a listener's lines together. At scale 1:
1,019,318 listeners, 384,546 songs, 48.4 million triplets; power laws on both sides, and listeners and songs have tastes, so
that there is something to learn.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
from netflix_dump import write_where_told

USERS, SONGS, TRIPLETS = 1_019_318, 384_546, 48_373_586
FEWEST = 10  # songs of a listener
TASTES, LIKING = 20, 4.0  # a song of one's taste is drawn so many times as often
NAME = "train_triplets.txt"
AT_ONCE = 20_000  # listeners


def write_dump(path: Path, scale: float, seed: int) -> int:
    """How many triplets; equal scale and seed, equal triplets."""
    names = pa.array([f"SO{_digits('song', song, 16).upper()}" for song in range(round(scale * SONGS))])
    options = pyarrow.csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")
    n = 0
    packed = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1)
    with packed as archive, archive.open(NAME, "w", force_zip64=True) as file:
        for first, user, song, plays in listeners(scale, seed):
            who = pa.array([_digits("user", first + each, 40) for each in range(int(user[-1]) + 1)])
            columns = [who.take(pa.array(user)), names.take(pa.array(song)), pa.array(plays)]
            pyarrow.csv.write_csv(pa.table(columns, ["user", "song", "plays"]), file, options)
            n += len(user)
    return n


def listeners(scale: float, seed: int) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray]]:
    """Some listeners at a time: the number of their first, and of each triplet the listener from there, song, plays."""
    rng = np.random.default_rng(seed)
    n_users, n_songs = round(scale * USERS), round(scale * SONGS)
    popularity = 1 / (n_songs / 2000 + rng.permutation(n_songs))
    taste = rng.integers(TASTES, size=n_songs)
    by_taste = [np.cumsum(np.where(taste == each, LIKING, 1.0) * popularity) for each in range(TASTES)]
    spread = rng.lognormal(0, 1.1, n_users)
    wanted = FEWEST + spread / spread.sum() * (TRIPLETS / USERS - FEWEST) * n_users
    for first in range(0, n_users, AT_ONCE):
        counts = wanted[first : first + AT_ONCE].astype(int).clip(FEWEST, n_songs // 2)
        cumulative = [by_taste[each] for each in rng.integers(TASTES, size=len(counts))]
        # More than are wanted are drawn: some are drawn twice.
        drawn = [
            np.unique(np.searchsorted(each, rng.random(n + n // 8 + 2) * each[-1], "right"))
            for each, n in zip(cumulative, counts, strict=True)
        ]
        songs = [rng.permutation(each)[:n] for each, n in zip(drawn, counts, strict=True)]
        user = np.repeat(np.arange(len(songs)), [len(each) for each in songs])
        yield first, user, np.concatenate(songs), rng.geometric(0.4, len(user))


def _digits(kind: str, number: int, length: int) -> str:
    return hashlib.sha1(f"{kind} {number}".encode()).hexdigest()[:length]


if __name__ == "__main__":
    write_where_told(__doc__, f"{NAME}.zip", write_dump, "triplets")
