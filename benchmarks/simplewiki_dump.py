"""Dumps in the format of simplewiki, made up but of true size, and how fast the product reads them in how much memory.

    python benchmarks/simplewiki_dump.py [--scale 1.0] [--seed 0] [--parse] [FOLDER]

Writes simplewiki-20250101-{pagelinks,linktarget,page}.sql.gz to FOLDER (default: a temporary one, removed at the
end). At scale 1: 270,000 articles, 110,000 redirects and 180,000 other pages, 1.56 million linked titles, 27.7 million links,
power laws on both sides. `--parse` reads them through the reader and the encoder, in this process, and prints what it took;
its peak of memory is meaningful for dumps that an earlier call wrote, which are read as they are.
"""

from __future__ import annotations

import argparse
import gzip
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rankbench.data.cards import Read
from rankbench.data.interactions import PARTS, Encoder
from rankbench.data.raw import RawFile
from rankbench.data.readers import reader

TABLES = ("pagelinks", "linktarget", "page")
ROWS_A_LINE = 50_000  # an INSERT of about a megabyte, as the real dumps have them

HEAD = """/*M!999999\\- enable the sandbox mode */
-- MariaDB dump 10.19  Distrib 10.5.26-MariaDB, for debian-linux-gnu (x86_64)
--
-- Host: localhost    Database: simplewiki
-- ------------------------------------------------------
/*!40101 SET NAMES utf8mb4 */;
DROP TABLE IF EXISTS `{table}`;
CREATE TABLE `{table}` (
{columns},
  PRIMARY KEY ({key})
) ENGINE=InnoDB DEFAULT CHARSET=binary;

/*!40000 ALTER TABLE `{table}` DISABLE KEYS */;
"""
TAIL = "/*!40000 ALTER TABLE `{table}` ENABLE KEYS */;\n-- Dump completed on 2025-01-01  0:00:00\n"
COLUMNS = {
    "pagelinks": ["pl_from int(8) unsigned", "pl_from_namespace int(11)", "pl_target_id bigint(20) unsigned"],
    "linktarget": ["lt_id bigint(20) unsigned", "lt_namespace int(11)", "lt_title varbinary(255)"],
    "page": [
        "page_id int(8) unsigned",
        "page_namespace int(11)",
        "page_title varbinary(255)",
        "page_is_redirect tinyint(1) unsigned",
        "page_is_new tinyint(1) unsigned",
        "page_random double unsigned",
        "page_touched binary(14)",
        "page_links_updated varbinary(14)",
        "page_latest int(8) unsigned",
        "page_len int(8) unsigned",
        "page_content_model varbinary(32)",
        "page_lang varbinary(35)",
    ],
}
WORDS = """a an ar ba ber bo ca chi co da de den do el en er fo ga ge ha hi in ka la le li lo ma mi mo na ne ni no o on or pa
per po ra re ri ro sa se sha si so st ta te ti to tra u va ve vi wa é ü ø 東 京 Ж _of_ _the_ _in_ , ( ) & - / 's"""
SYLLABLES = np.array(WORDS.split())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, help="where the dumps lie or are written")
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of pages, titles and links")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--parse", action="store_true", help="read the dumps, too")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="simplewiki-") as temporary:
        folder = given.folder or Path(temporary)
        if not all(path_of(folder, table).is_file() for table in TABLES):
            start = time.perf_counter()
            folder.mkdir(parents=True, exist_ok=True)
            n_rows = write_dumps(folder, given.scale, given.seed)
            print(", ".join(f"{table} {n:,}" for table, n in n_rows.items()), f"rows in {time.perf_counter() - start:.0f} s")
        for table in TABLES:
            print(f"{path_of(folder, table).name:45s} {path_of(folder, table).stat().st_size / 1e6:8.1f} MB")
        if given.parse:
            parse(folder)


def parse(folder: Path) -> None:
    """The reader and the encoder on the dumps, timed."""
    start = time.perf_counter()
    encoder = Encoder("simplewiki")
    for table in reader("mediawiki-sql")(raw_file(folder)):
        encoder.add(table, PARTS.index("all"))
    data = encoder.finish()
    seconds = time.perf_counter() - start
    print(
        f"{len(data):,} links of {len(data.users):,} pages to {len(data.items):,} in {seconds:.1f} s, "
        f"{len(data) / seconds:,.0f} links/s, peak memory {peak_gb():.2f} GB"
    )


def raw_file(folder: Path) -> RawFile:
    def one(table: str, **more) -> RawFile:
        return RawFile("all", path_of(folder, table), "", Read(format="mediawiki-sql"), "file", **more)

    return one("pagelinks", companions={name: one(name) for name in ("linktarget", "page")})


def path_of(folder: Path, table: str) -> Path:
    return folder / f"simplewiki-20250101-{table}.sql.gz"


def peak_gb() -> float:
    """The most memory that this process has held at once (VmHWM)."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 2**20


def write_dumps(folder: Path, scale: float, seed: int) -> dict[str, int]:
    """The dumps, and how many rows each has; equal scale and seed, equal content."""
    rng = np.random.default_rng(seed)
    n_articles, n_redirects, n_other, n_missing = (round(scale * n) for n in (270_000, 110_000, 180_000, 1_000_000))
    n_pages, n_links = n_articles + n_redirects + n_other, round(scale * 28_000_000)  # before those drawn twice are united

    page_id = np.cumsum(rng.integers(1, 4, n_pages))  # pages are deleted now and then
    kind = rng.permutation(np.repeat([0, 1, 2], [n_articles, n_redirects, n_other]))  # article, redirect, other
    namespace = np.where(kind < 2, 0, rng.choice([1, 2, 3, 4, 10, 14], n_pages))
    titles = make_titles(n_pages + n_missing, rng)
    n_rows = {}
    n_rows["page"] = write_dump(folder, "page", page_rows(page_id, namespace, titles.slice(0, n_pages), kind == 1, rng))

    # Every page is a linked title, and a million more have no page yet; their ids come in random order.
    title_id = rng.permutation(np.arange(1, len(titles) + 1))
    title_namespace = np.concatenate([namespace, rng.choice([0, 0, 0, 1, 2, 10], n_missing)])
    order = np.argsort(title_id)
    linktarget = [title_id[order], title_namespace[order], quoted(titles.take(pa.array(order)))]
    n_rows["linktarget"] = write_dump(folder, "linktarget", chunks(linktarget))

    # A redirect has the one link that it is; other pages link, and are linked to, less than articles.
    shares = power_law(n_pages, 0.55, rng) * np.array([1.0, 0.0, 0.3])[kind]
    out_degree = rng.multinomial(n_links - n_redirects, shares / shares.sum()) + (kind == 1)
    shares = power_law(n_pages, 0.7, rng) * np.array([1.0, 0.2, 0.2])[kind]
    popularity = np.concatenate([shares / shares.sum(), power_law(n_missing, 0.3, rng) * 0.1])
    links = link_rows(page_id, namespace, out_degree, popularity, title_id, rng)
    n_rows["pagelinks"] = write_dump(folder, "pagelinks", links)
    return n_rows


def power_law(n: int, exponent: float, rng: np.random.Generator) -> np.ndarray:
    """Shares rank^-exponent of n in random order, which sum to 1."""
    shares = (1 + rng.permutation(n)) ** -exponent
    return shares / shares.sum()


def make_titles(n: int, rng: np.random.Generator) -> pa.Array:
    """n distinct titles of 20 bytes or so, some with quotes, backslashes and letters beyond ASCII."""
    letters = pa.array(SYLLABLES)
    words = [letters.take(pa.array(rng.integers(0, len(SYLLABLES), n))) for _ in range(7)]
    words = [pc.if_else(pa.array(rng.random(n) < 0.4 + 0.6 * (place < 4)), word, "") for place, word in enumerate(words)]
    odd = pc.if_else(pa.array(rng.random(n) < 0.01), pa.scalar('"\\'), "")
    number = pa.array(np.arange(n)).cast(pa.string())  # what keeps them apart
    return pc.binary_join_element_wise(*words, odd, "_", number, "")


def quoted(titles: pa.Array) -> pa.Array:
    """Titles as a dump writes them."""
    for letter in ("\\", "'", '"'):
        titles = pc.replace_substring(titles, letter, "\\" + letter)
    return pc.binary_join_element_wise("'", titles, "'", "")


def page_rows(page_id, namespace, titles, is_redirect, rng) -> Iterator[pa.Array]:
    n = len(page_id)
    random, latest, length = rng.random(n).round(12), rng.integers(1, 10**7, n), rng.integers(20, 50_000, n)
    touched = pa.array(np.full(n, "'20241231235959'"))
    rest = [touched, touched, latest, length, np.full(n, "'wikitext'"), np.full(n, "NULL")]
    return chunks([page_id, namespace, quoted(titles), is_redirect.astype(int), np.zeros(n, int), random, *rest])


def link_rows(page_id, namespace, out_degree, popularity, title_id, rng) -> Iterator[pa.Array]:
    """By source page, as the real dump is; sources some thousands at a time. A link is listed once."""
    cumulative = np.cumsum(popularity)
    for start in range(0, len(page_id), 20_000):
        part = slice(start, start + 20_000)
        source = np.repeat(np.arange(len(page_id))[part], out_degree[part])
        target = np.searchsorted(cumulative, rng.random(len(source)) * cumulative[-1], side="right")
        source, target = np.divmod(np.unique(source * (len(title_id) + 1) + title_id[target]), len(title_id) + 1)
        yield from chunks([page_id[source], namespace[source], target])


def chunks(columns: Sequence) -> Iterator[pa.Array]:
    """`(1,0,'Title')` for every row, as many at a time as one INSERT holds."""
    for start in range(0, len(columns[0]), ROWS_A_LINE):
        texts = [pa.array(column[start : start + ROWS_A_LINE]).cast(pa.string()) for column in columns]
        yield pc.binary_join_element_wise("(", pc.binary_join_element_wise(*texts, ","), ")", "")


def write_dump(folder: Path, table: str, rows: Iterator[pa.Array]) -> int:
    """How many rows were written."""
    n_rows = 0
    names = [column.split()[0] for column in COLUMNS[table]]
    columns = ",\n".join(f"  `{name}`{column.removeprefix(name)}" for name, column in zip(names, COLUMNS[table], strict=True))
    with path_of(folder, table).open("wb") as file, gzip.GzipFile("", "wb", compresslevel=1, fileobj=file, mtime=0) as packed:
        packed.write(HEAD.format(table=table, columns=columns, key=f"`{names[0]}`").encode())
        for chunk in rows:
            packed.write(f"INSERT INTO `{table}` VALUES ".encode())
            packed.write(",".join(chunk.to_pylist()).encode())
            packed.write(b";\n")
            n_rows += len(chunk)
        packed.write(TAIL.format(table=table).encode())
    return n_rows


if __name__ == "__main__":
    main()
