"""Bad input, by the command line: exit code 2 (5: storage), one line that names what is wrong, and nothing left behind."""

# ruff: noqa: E501  a case a line

import gzip
import io
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from rankbench.cli import _main

PAIRS = [(user, item) for user in range(8) for item in range(9) if (user + item) % 3]
HEADER = "user,item,rating,time\n"
ROWS = "".join(f"{user},{item},5,{item}\n" for user, item in PAIRS)
LINES = "".join(f"{user} " + " ".join(str(item) for one, item in PAIRS if one == user) + "\n" for user in range(8))
JSON = "".join(f'{{"user": {user}, "item": {item}}}\n' for user, item in PAIRS)
NETFLIX = "".join(f"{item}:\n" + "".join(f"{u},5,2005-09-06\n" for u, i in PAIRS if i == item) for item in range(9))
N = len(PAIRS)


def gz(content: str | bytes, times: int = 1) -> bytes:
    """`times` over: what is packed one after the other is unpacked so."""
    return times * gzip.compress(content.encode() if isinstance(content, str) else content)


def zipped(content: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("raw/ratings.csv", content)
    return buffer.getvalue()


def tarred(content: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        entry = tarfile.TarInfo("../../raw.csv")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content.encode()))
    return buffer.getvalue()


def parquet(**columns) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer)
    return buffer.getvalue()


RATED = {"value": "rating", "time": "time"}
ZIP, GIGABYTE = zipped(HEADER + ROWS), 1 << 10
USER_LINES, JSON_LINES = {"format": "user-lines"}, {"format": "json-lines"}
PARQUET = {"format": "parquet"}
TEXT = HEADER + ROWS

# name → the raw file's name and content, what the card says beside it, and words of the one line.
FILES = {
    "empty file": ("raw.csv", "", {}, ["raw.csv", "no interactions"]),
    "header only": ("raw.csv", HEADER, {}, ["raw.csv", "no interactions"]),
    "missing column": ("raw.csv", TEXT, {"read": {"user": "usr"}}, ["raw.csv", "no column 'usr'; did you mean user?"]),
    "position beyond": ("raw.csv", ROWS, {"read": {"header": False, "user": 0, "item": 9}}, ["no column '9'; there are 4"]),
    "nan id": ("raw.csv", TEXT + "nan,1,5,0\n", {}, [f"raw.csv:{N + 2}: user is 'nan'"]),
    "negative id": ("raw.csv", TEXT + "-1,1,5,0\n", {}, [f"raw.csv:{N + 2}: user is '-1'"]),
    "no id": ("raw.csv", TEXT + ",1,5,0\n", {}, [f"raw.csv:{N + 2}: user is None"]),
    "nan value": ("raw.csv", TEXT + "1,1,nan,0\n", {"read": RATED}, [f"raw.csv:{N + 2}: value is nan"]),
    "infinite value": ("raw.csv", TEXT + "1,1,inf,0\n", {"read": RATED}, [f"raw.csv:{N + 2}: value is inf"]),
    "no number": ("raw.csv", TEXT + "1,1,x,0\n", {"read": RATED}, [f"raw.csv:{N + 2}: expected the value to be a number, found 'x'"]),
    "no time": ("raw.csv", TEXT + "1,1,5,x\n", {"read": RATED}, [f"raw.csv:{N + 2}: expected the time in whole seconds since 1970 or as a date, found 'x'"]),
    "nul": ("raw.csv", TEXT + "1\0,1,5,0\n", {}, [f"raw.csv:{N + 2}: user is '1\\x00'"]),
    "not utf-8": ("raw.csv", TEXT.encode() + b"\xff,1,5,0\n", {}, [f"raw.csv:{N + 2}: not utf-8 text"]),
    "utf-16": ("raw.csv", TEXT.encode("utf-16"), {}, ["raw.csv: not utf-8 but utf-16 text"]),
    "too few columns": ("raw.csv", TEXT + "\n1,1\n", {}, [f"raw.csv:{N + 3}: Expected 4 columns, got 2"]),
    "open quote": ("raw.csv", TEXT + '1,1,"5,0\n' + ROWS, {}, [f"raw.csv:{N + 2}: Expected 4 columns, got 3"]),
    "other separator": ("raw.csv", TEXT.replace(",", ";"), {}, ["raw.csv: no column 'user'"]),
    "control character": ("raw.csv", TEXT + "\x1f\n", {"read": {"separator": "::"}}, ["raw.csv", "control character 0x1f"]),
    "a line of a gigabyte": ("raw.csv.gz", gz(TEXT) + gz(16 * 2**20 * "1", 64), {}, [f"raw.csv.gz:{N + 2}: the line is longer"]),
    "a gigabyte of zeros": ("raw.csv.gz", gz(bytes(16 << 20), 64), {}, ["raw.csv.gz:1: the line is longer than 8 MB"]),
    "a gigabyte of lines": ("raw.csv.gz", gz(TEXT) + gz(16 * 2**20 * "\n", 64), {}, ["raw.csv.gz", "unpacks to more than"]),
    "cut gzip": ("raw.csv.gz", gz(TEXT)[:-20], {}, ["raw.csv.gz: damaged"]),
    "no gzip": ("raw.csv.gz", TEXT, {}, ["raw.csv.gz: damaged", "Not a gzipped file"]),
    "cut zip": ("raw.zip", ZIP[:-40], {"member": "raw/ratings.csv"}, ["raw.zip: damaged"]),
    "no such member": ("raw.zip", ZIP, {"member": "ratings.csv"}, ["raw.zip: the archive holds no ratings.csv"]),
    "member above": ("raw.zip", ZIP, {"member": "../../raw/ratings.csv"}, ["raw.zip: the archive holds no ../../raw/ratings.csv"]),
    "tar without the member": ("raw.tar.gz", tarred(TEXT), {"member": "raw.csv"}, ["raw.tar.gz: the archive holds no raw.csv"]),
    "user-lines, a word": ("raw.txt", LINES + "9 x\n", {"read": USER_LINES}, ["raw.txt:9: expected whole numbers"]),
    "user-lines, negative": ("raw.txt", LINES + "9 -1\n", {"read": USER_LINES}, ["raw.txt:9: -1 is below 0"]),
    "json, cut": ("raw.json", JSON + '{"user": 1,', {"read": JSON_LINES}, [f"raw.json:{N + 1}: expected one object per line"]),
    "json, no key": ("raw.json", JSON + '{"user": 1}', {"read": JSON_LINES}, [f"raw.json:{N + 1}: no 'item'"]),
    "json, null": ("raw.json", JSON + '{"user": null, "item": 1}', {"read": JSON_LINES}, [f"raw.json:{N + 1}: user is None"]),
    "json, code": ("raw.json", "{'user': exit(9), 'item': 1}", {"read": JSON_LINES}, ["raw.json:1: expected one object per line"]),
    "netflix, no date": ("raw.txt", NETFLIX + "1,5,x\n", {"read": {"format": "netflix-prize"}}, [f"raw.txt:{N + 10}: ", "'1,5,x'"]),
    "netflix, no movie": ("raw.txt", "1,5,2005-09-06\n", {"read": {"format": "netflix-prize"}}, ["raw.txt:1: ", "movie first"]),
    "no parquet": ("raw.parquet", TEXT, {"read": PARQUET}, ["raw.parquet: not a Parquet file"]),
    "cut parquet": ("raw.parquet", parquet(user=[1], item=[2])[:-9], {"read": PARQUET}, ["raw.parquet: not a Parquet file"]),
    "parquet of lists": ("raw.parquet", parquet(user=[[1]], item=[2]), {"read": PARQUET}, ["the column 'user' is list"]),
    "parquet, negative": ("raw.parquet", parquet(user=[1, -1], item=[2, 3]), {"read": PARQUET}, ["raw.parquet: row 2: user is -1"]),
    "wiki without companions": ("raw.sql", "", {"read": {"format": "mediawiki-sql"}}, ["raw.sql", "source.companions.linktarget"]),
    "wrong checksum": ("raw.csv", TEXT, {"sha256": "0" * 64}, ["raw.csv: sha256 is ", "the card toy says 000"]),
    "a core that nobody is in": ("raw.csv", TEXT, {"prepare": [{"k_core": 99}]}, ["prepare.0: k_core: 99 leaves no interaction"]),
    "value of no column": ("raw.csv", TEXT, {"prepare": [{"min_value": 4}]}, ["prepare.0: min_value needs a value column"]),
    "no test": ("raw.csv", HEADER + "1,1,5,0\n2,2,5,0\n", {}, ["toy: ", "part is empty"]),
}  # fmt: skip


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Every command works in this folder, writes under it, and none reaches the network."""
    monkeypatch.chdir(tmp_path)
    for name in ("RANKBENCH_MIRROR", "RANKBENCH_TRACKING_URI", "RANKBENCH_HOME", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RANKBENCH_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("RANKBENCH_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("RANKBENCH_OFFLINE", "1")
    return tmp_path


def write(name: str, content: str | bytes, says: dict) -> str:
    """The raw file and its card, toy.yaml."""
    Path(name).write_bytes(content.encode() if isinstance(content, str) else content)
    of_file = {key: value for key, value in says.items() if key in ("member", "sha256")}
    of_card = {key: value for key, value in says.items() if key not in of_file}
    card = {"name": "toy", "source": {"files": {"all": {"file": name} | of_file}}} | of_card
    Path("toy.yaml").write_text(yaml.safe_dump(card), encoding="utf-8")
    return "toy.yaml"


def is_refused(words: list[str], message: list[str], capsys, code: int = 2) -> None:
    """The whole contract."""
    before = left(Path.cwd())
    capsys.readouterr()
    assert _main(words) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ") and printed.err.count("\n") == 1 and printed.err.rstrip("\n").isprintable()
    assert "Traceback" not in printed.err
    for part in message:
        assert part in printed.err
    assert left(Path.cwd()) == before


def left(folder: Path) -> set[Path]:
    """What lies under data/ and results/. A lock, the remembered checksums and a dataset that was prepared whole may stay."""
    found = [path for name in ("data", "results") for path in (folder / name).rglob("*")]
    whole = [path.parent for path in found if path.name == "manifest.json" and not path.parent.name.startswith(".")]
    stays = ("checksums.json",)
    files = (path for path in found if path.is_file() and path.suffix != ".lock" and path.name not in stays)
    return {path for path in files if path.parent not in whole}


@pytest.mark.parametrize("case", FILES)
def test_a_bad_file_or_card(case, capsys):
    name, content, says, message = FILES[case]
    card = write(name, content, says)
    is_refused(["run", card, "ease", "lam=1", "--no-track"], message, capsys)


def test_the_files_are_good_where_they_are_not_harmed(capsys):
    for name, content, says in (
        ("raw.csv", TEXT, {"read": RATED}),
        ("raw.csv", "\ufeff" + TEXT, {}),
        ("raw.csv.gz", gz(TEXT), {}),
        ("raw.zip", ZIP, {"member": "raw/ratings.csv"}),
        # A name that points out of the folder is a name: nothing is unpacked to disk.
        ("raw.tar.gz", tarred(TEXT), {"member": "../../raw.csv"}),
        ("raw.txt", LINES, {"read": USER_LINES}),
        ("raw.json", JSON, {"read": JSON_LINES}),
        ("raw.txt", NETFLIX, {"read": {"format": "netflix-prize"}}),
    ):
        assert _main(["data", "describe", write(name, content, says), "--json"]) == 0
        assert f'"interactions": {N}' in capsys.readouterr().out
    assert not list(Path.cwd().parent.glob("raw.*"))


SMALL = ["data.source.generator.users=80", "data.source.generator.items=40", "data.source.generator.interactions_per_user=10"]
EASE = ["run", "synthetic", "ease", "lam=1", "--no-track"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "synthetic", "easy"], ["unknown method 'easy'; did you mean ease?"]),
        (["run", "synthetic", "ease", "lamb=1"], ["ease: unknown parameter 'lamb'; did you mean lam?"]),
        (["run", "synthetic", "ease", "lam=-1"], ["ease: lam must be > 0, got -1.0"]),
        (["run", "synthetic", "ease", "lam=.nan"], ["ease: lam"]),
        (["run", "synthetic", "edlae", "p=1.5", "lam=1"], ["edlae: p must lie in [0, 1), got 1.5"]),
        (["run", "synthetic", "ease", "lam=one"], ["ease: lam: expected a number, got 'one'"]),
        ([*EASE, "--cutoffs", "5000", *SMALL], ["5000", "40 items of synthetic"]),
        ([*EASE, "--cutoffs", "0"], ["--cutoffs: k must be at least 1, got 0"]),
        ([*EASE, "--metrics", "recal"], ["unknown metric 'recal'; did you mean recall?"]),
        ([*EASE, "--threads", "0"], ["--threads"]),
        ([*EASE, "--seed", "-1"], ["--seed"]),
        ([*EASE, "data.split.test=1.5"], ["split.test"]),
        ([*EASE, "data.split.protocol=random"], ["split.protocol: unknown 'random'"]),
        ([*EASE, "data.read.format=csv"], ["read.format: unknown 'csv'"]),
        ([*EASE, "data.source.generator.users=-5"], ["source.generator.users"]),
        ([*EASE, "data.source.generator.seed=-1"], ["source.generator.seed: must be ≥ 0, got -1"]),
        ([*EASE, "data.source.generator.users=50000000", "data.source.generator.items=50000000"], ["50,000,000 users x 50,000,000 items"]),
        (["run", "synthetic", "ease", "lam=true"], ["ease: lam: expected a number, got True"]),
        (["run", "synthetic", "ease", "lam='80'"], ["ease: lam: expected a number, got '80'"]),
        (["run", "synthetic", "ials", "iterations=true"], ["ials: iterations: expected a whole number, got True"]),
        ([*EASE, "data.split.test=true"], ["split.test: must be < 1, got True"]),
        ([*EASE, "data.split.seed='1'"], ["split.seed: expected a whole number, got '1'"]),
        (["sweep", "demo", "search.trials=true"], ["search.trials: expected a whole number, got True"]),
        (["sweep", "demo", "final.seeds=['1']"], ["final.seeds.0: expected a whole number, got '1'"]),
        (["sweep", "demo", "resources.cpus='1'"], ["resources.cpus: expected auto or a whole number of at least 1, got '1'"]),
        (["run", "movielens-1", "ease"], ["unknown dataset 'movielens-1'; did you mean movielens-1m?"]),
        (["run", "./none.yaml", "ease"], ["none.yaml: no such dataset card"]),
        (["sweep", "none.yaml"], ["none.yaml: no such experiment file"]),
        (["sweep", "demo", "serch.trials=3"], ["serch: unknown key; did you mean search?"]),
        (["sweep", "demo", "--address", "not an address", "--dry-run"], ["address"]),
        (["report", "none"], ["none"]),
        (["data", "describe", "nowhere"], ["unknown dataset 'nowhere'"]),
    ],
    ids=lambda value: " ".join(value)[:60],
)  # fmt: skip
def test_a_bad_command(words, message, capsys):
    is_refused(words, message, capsys)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: toy\nsource: {file: raw.csv}\nraed: {}\n", ["toy.yaml: raed: unknown key; did you mean read?"]),
        ("name: toy\nsource: {file: raw.csv}\nread: {usr: a}\n", ["toy.yaml: read.usr: unknown key; did you mean user?"]),
        ("name: toy\n", ["toy.yaml: source"]),
        ("name: Toy Shop\nsource: {file: raw.csv}\n", ["toy.yaml: name"]),
        ("name: [toy\nsource: {file: raw.csv}\n", ["toy.yaml"]),
        ("name: toy\nname: two\nsource: {file: raw.csv}\n", ["toy.yaml", "name"]),
        ("", ["toy.yaml"]),
        ("- name\n", ["toy.yaml"]),
        ("name: !!python/object/apply:os.system [exit]\n", ["toy.yaml"]),
        ("name: toy\nsource: {file: ''}\n", ["toy.yaml: source.file: must end in a file name, got ''"]),
        ("name: toy\nsource: {file: .}\n", ["toy.yaml: source.file: must end in a file name, got '.'"]),
        ("name: toy\nsource: {file: ..}\n", ["toy.yaml: source.file: must end in a file name, got '..'"]),
        ("name: toy\nsource: {files: {all: {file: ''}}}\n", ["toy.yaml: source.files.all.file: must end in a file name, got ''"]),
        ("name: toy\nsource: {files: {all: {file: a/..}}}\n", ["toy.yaml: source.files.all.file: must end in a file name"]),
        ('name: toy\nsource: {file: "a\\0b"}\n', ["toy.yaml: source.file: must end in a file name"]),
        (f"name: toy\nsource: {{file: {'x' * 300}.csv}}\n", ["xxx.csv"]),
        (f"name: {'x' * 300}\nsource: {{file: raw.csv}}\n", ["toy.yaml: name"]),
        ("name: toy\nsource: {file: raw.csv}\nprepare: [{k_core: true}]\n", ["toy.yaml: prepare.0.k_core: expected a whole number, got True"]),
        ("name: toy\nsource: {file: raw.csv}\nexpect: {raw: {users: '9'}}\n", ["toy.yaml: expect.raw.users: expected a whole number, got '9'"]),
        ("name: toy\nsource: {file: none.csv}\n", ["none.csv: no such file (dataset toy)"]),
        ("name: toy\nsource: {files: {all: {url: http://x.org/raw.csv}}}\n", ["toy.yaml: source.files.all", "https://"]),
        ("name: toy\nsource: {files: {all: {url: https://x.invalid/raw.csv}}}\n", ["raw.csv is not in the cache", "offline"]),
        ("name: toy\nsource: {file: raw.csv}\nread: {separator: ''}\n", ["toy.yaml: read.separator"]),
        ("name: toy\nsource: {file: raw.csv}\nprepare: [{k_core: 5, min_value: 2}]\n", ["toy.yaml: prepare.0: one step per line"]),
        (b"name: t\xffy\n", ["toy.yaml"]),
        ("name: toy\x00\n", ["toy.yaml"]),
    ],
)  # fmt: skip
def test_a_bad_card(text, message, capsys):
    Path("toy.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    is_refused(["run", "toy.yaml", "ease", "lam=1"], message, capsys)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ["bad.yaml"]),
        ("name: [", ["bad.yaml"]),
        ("name: bad\ndatasets: [synthetic]\narms: []\nsearch: {choose: {metric: ndcg@20, on: valid}}\n", ["bad.yaml: give arms or methods"]),
        ("name: bad\ndatasets: [none]\narms: [{method: random}]\n", ["unknown dataset 'none'"]),
        ("name: bad\ndatasets: [synthetic]\narms: [{method: rndm}]\n", ["bad.yaml: arms[", "'rndm'; did you mean random?"]),
        ("name: bad\ndatasets: [synthetic]\narms: [{method: ease, params: {lam: {gird: [1]}}}]\n", ["bad.yaml: arms[", "gird"]),
        ("name: bad\ndatasets: [synthetic]\narms: [{method: ease, params: {lam: -1}}]\n", ["bad.yaml: arms[", "lam must be > 0"]),
        ("name: bad\ndatasets: [synthetic]\narms: [{method: ease, params: {lam: '80'}}]\n", ["bad.yaml: arms[0].params: lam: expected a number, got '80'"]),
        ("name: bad\ndatasets: [synthetic]\narms: [{method: ease, params: {lam: {grid: [1, true]}}}]\n", ["bad.yaml: arms[0].params: lam: expected a number, got True"]),
        ("name: bad\ndatasets: [synthetic]\narms: [{method: random, published: {gowalla: {ndcg@20: '0.1'}}}]\n", ["arms.0.published.gowalla.ndcg@20: expected a number, got '0.1'"]),
        ("name: bad\ndatasets: [synthetic]\narms: [{method: random}]\nsearch: {choose: {metric: ndcg@20, on: test}}\n", ["search.choose.on"]),
    ],
)  # fmt: skip
def test_a_bad_experiment(text, message, capsys):
    Path("bad.yaml").write_text(text, encoding="utf-8")
    is_refused(["sweep", "bad.yaml"], message, capsys)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("RANKBENCH_MIROR", "x", ["unknown variable RANKBENCH_MIROR; did you mean RANKBENCH_MIRROR?"]),
    ],
)
def test_a_bad_variable(name, value, message, monkeypatch, capsys):
    monkeypatch.setenv(name, value)
    is_refused(["run", "synthetic", "random", *SMALL], message, capsys)


@pytest.mark.parametrize("name", ["RANKBENCH_DATA", "RANKBENCH_RESULTS"])
def test_a_folder_that_cannot_be_made(name, monkeypatch, capsys):
    Path("file").write_text("")
    monkeypatch.setenv(name, "file/below")
    is_refused(["run", "synthetic", "random", *SMALL, "--no-track"], ["file/below"], capsys, code=5)


LONG, LONG_FOLDER = "x" * 300, "folder/" * 700


@pytest.mark.parametrize("name", ["RANKBENCH_DATA", "RANKBENCH_RESULTS", "RANKBENCH_HOME", "RANKBENCH_MIRROR"])
@pytest.mark.parametrize("value", [LONG_FOLDER, "~no-such-user/x"])
def test_a_folder_that_no_file_system_takes(name, value, monkeypatch, capsys):
    monkeypatch.setenv(name, value)
    is_refused(["run", "synthetic", "random", *SMALL, "--no-track"], [f"{name}={value[:20]}"], capsys)


@pytest.mark.parametrize("place", [LONG, LONG_FOLDER, "file/below", "dangling/below", "dangling", "folder", "gone/" + LONG])
@pytest.mark.parametrize(
    ("words", "suffix"),
    [
        (["data", "describe", "synthetic", "--plot"], ".png"),
        (["recommend", "no-model", "--all", "--out"], ".csv"),
        (["similar", "no-model", "--item", "1", "--out"], ".parquet"),
        (["fit", "synthetic", "random", "--out"], ""),
        (["study", "metric-inconsistency", "trials=100000000", "--out"], ""),
        (["report", "--out"], ""),
        (["report", "--all", "--out"], ""),
        ([*EASE, "--spill"], ""),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)  # fmt: skip
def test_an_output_that_cannot_be_written_is_refused_before_the_work(place, words, suffix, capsys):
    Path("file").write_text("")
    Path("dangling" + suffix).symlink_to("nowhere/at/all")
    Path("dangling").symlink_to("nowhere/at/all") if suffix else None
    Path("folder" + suffix).mkdir()
    (Path("folder" + suffix) / "inside").write_text("")
    if place == "dangling" and suffix:
        pytest.skip("a file may replace a link")
    if place == "folder" and "fit" not in words and not suffix:
        pytest.skip("files are added to a folder that is there")
    before = {path for path in Path.cwd().rglob("*")}
    assert _main([*words, place + suffix]) in (2, 5)
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.startswith("error: ") and printed.err.count("\n") == 1
    assert place.partition("/")[0][:20] in printed.err and len(printed.err) < 2500
    assert {path for path in Path.cwd().rglob("*")} == before


@pytest.mark.parametrize(
    "words",
    [
        ["run", LONG, "ease"],
        ["run", LONG_FOLDER, "ease"],
        ["run", "synthetic", LONG],
        ["run", "synthetic", "ease", f"lam={LONG}"],
        ["run", "synthetic", "ease", f"data.{LONG}=1"],
        ["sweep", f"{LONG_FOLDER}x.yaml"],
        ["sweep", "stop", LONG_FOLDER],
        ["report", LONG_FOLDER],
        ["compare", LONG, LONG_FOLDER],
        ["recommend", LONG_FOLDER, "--all"],
        ["similar", "no-model", "--items", f"{LONG}.csv"],
        ["data", "describe", LONG_FOLDER],
        ["study", LONG],
        [LONG],
    ],
    ids=lambda words: " ".join(words)[:40],
)  # fmt: skip
def test_a_name_too_long_is_one_line(words, capsys):
    assert _main(words) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.startswith("error: ") and printed.err.count("\n") == 1
    assert len(printed.err) < 2500


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "toy.yaml", "ease", "lam=1"], f"raw.csv:{N + 2}: user is 'nan'"),
        (["run", "synthetic", "easy"], "unknown method 'easy'; did you mean ease?"),
    ],
)
def test_in_a_process_of_its_own(words, message):
    write("raw.csv", TEXT + "nan,1,5,0\n", {})
    done = subprocess.run([sys.executable, "-m", "rankbench", *words], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1 and message in done.stderr


def test_a_matrix_too_large_for_memory_is_refused_before_the_work(capsys):
    everything = " ".join(map(str, range(400_000)))
    card = write("raw.txt", "".join(f"{user} {everything}\n" for user in range(4)), {"read": USER_LINES})
    assert _main(["data", "fetch", card]) == 0
    for method in ("ease", "edlae-low-rank"):
        message = ["the item-item matrix of ", " GB of memory, ", " GB are free"]
        is_refused(["run", card, method, "lam=1", "--no-track"], message, capsys, code=5)
