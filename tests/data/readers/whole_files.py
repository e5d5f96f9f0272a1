"""Raw files of every format, small and whole; tests harm them."""

import gzip

from hypothesis import strategies as st
from packed import parquet, tarred, zipped

PAIRS = [(user, item) for user in range(9) for item in range(7) if (user + item) % 3]
USERS, ITEMS = [user for user, _ in PAIRS], [item for _, item in PAIRS]


CSV = "".join(f"{user},{item},4.5,2005-09-06\n" for user, item in PAIRS).encode()
NAMED = b"user,item,value,time\n" + CSV
ROWS = {"format": "delimited", "value": "value", "time": "time"}
AT = {"header": False, "user": 0, "item": 1, "value": 2, "time": 3}
JSON = "".join(f'{{"user": "u{user}", "item": {item}, "value": 4.5, "time": 9}}\n' for user, item in PAIRS).encode()
LITERALS = "".join(f"{{u'user': u'u{user}', u'item': u'\\u00e9{item}'}}\n" for user, item in PAIRS).encode()
TABS = "".join(f"{user}\t{item}\t4.5\t1125964800\n" for user, item in PAIRS).encode()
NETFLIX = b"7:\n" + b"".join(b"%d,%d,2005-09-06\n" % pair for pair in PAIRS)
MEMBER = "folder/raw"  # of an archive

# Name → what is read so, whole; how; the file's name, and the member of an archive.
VALID = {
    "csv": (NAMED, ROWS, "raw.csv", None),
    "quoted": (NAMED.replace(b",4.5,", b',"4.5",'), ROWS, "raw.csv", None),
    "::": (CSV.replace(b",", b"::"), ROWS | AT | {"separator": "::"}, "raw.dat", None),
    "user-lines": (b"0 1 2 3\n1 4 5\n2\n3 1\n", {"format": "user-lines"}, "raw.txt", None),
    "json": (JSON, ROWS | {"format": "json-lines"}, "raw.json", None),
    "literals": (LITERALS, {"format": "json-lines"}, "raw.json", None),
    "netflix": (NETFLIX, ROWS | {"format": "netflix-prize"}, "raw.txt", None),
    "netflix-tar": (tarred({MEMBER: NETFLIX}, "w:"), {"format": "netflix-prize"}, "raw.tar", None),
    "parquet": (parquet(user=USERS, item=ITEMS, value=ITEMS), {"format": "parquet", "value": "value"}, "raw.parquet", None),
    "parquet-text": (parquet(user=[f"é{u}" for u in USERS], item=ITEMS), {"format": "parquet"}, "raw.parquet", None),
    "recbole": (
        b"user_id:token\titem_id:token\trating:float\ttimestamp:float\n" + TABS,
        {"format": "recbole"},
        "x.inter",
        None,
    ),
    "elliot": (TABS, {"format": "elliot"}, "train.tsv", None),
    "cornac": (TABS, {"format": "cornac"}, "uirt.txt", None),
    "ml-100k": (zipped({MEMBER: TABS}), {"format": "movielens"}, "ml-100k.zip", MEMBER),
    "ml-1m": (zipped({MEMBER: TABS.replace(b"\t", b"::")}), {"format": "movielens"}, "ml-1m.zip", MEMBER),
    "ml-20m": (b"userId,movieId,rating,timestamp\n" + TABS.replace(b"\t", b","), {"format": "movielens"}, "ratings.csv", None),
    "utf-16": (NAMED.decode().encode("utf-16"), ROWS | {"encoding": "utf-16"}, "raw.csv", None),
    "gz": (gzip.compress(NAMED, mtime=0), ROWS, "raw.csv.gz", None),
    "zip": (zipped({MEMBER: NAMED}), ROWS, "raw.zip", MEMBER),
    "tar": (tarred({MEMBER: NAMED}, "w:"), ROWS, "raw.tar", MEMBER),
    "tar-gz": (tarred({MEMBER: NAMED}, "w:gz"), ROWS, "raw.tar.gz", MEMBER),
    "tar-xz": (tarred({MEMBER: NAMED}, "w:xz"), ROWS, "raw.tar.xz", MEMBER),
    "tar-bz2": (tarred({MEMBER: NAMED}, "w:bz2"), ROWS, "raw.tar.bz2", MEMBER),
}


@st.composite
def harmed(draw, content: bytes) -> bytes:
    for _ in range(draw(st.integers(1, 3))):
        at, beyond = sorted((draw(st.integers(0, len(content))), draw(st.integers(0, len(content)))))
        part = content[at:beyond]
        by = draw(
            st.sampled_from([b"", b"\x00", b"\xef\xbb\xbf", b"\xff", b'"', b"\n", b"\r", b"{", b"-", part[::-1], 3 * part])
        )
        # A part that is long is most often all that matters.
        beyond = draw(st.sampled_from([beyond, min(at + 1, beyond), len(content)]))
        content = content[:at] + by + content[beyond:]
    return content
