"""Bad input, by the command line: exit code 2 (5: storage), one line that names what is wrong, and nothing left behind."""

# ruff: noqa: E501  a case a line

import gzip
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rankbench.cli import _main

PAIRS = [(user, item) for user in range(8) for item in range(9) if (user + item) % 3]
TEXT = "user,item,rating,time\n" + "".join(f"{user},{item},5,{item}\n" for user, item in PAIRS)
JSON = "".join(f'{{"user": {user}, "item": {item}}}\n' for user, item in PAIRS)
N = len(PAIRS)


def gz(content: str | bytes, times: int = 1) -> bytes:
    """`times` over: what is packed one after the other is unpacked so."""
    return times * gzip.compress(content.encode() if isinstance(content, str) else content)


JSON_LINES, PARQUET, USER_LINES = ({"format": name} for name in ("json-lines", "parquet", "user-lines"))
# name → the raw file's name and content, what the card says beside it, and words of the one line. What else may be wrong with a
# file, `tests/data/readers` says.
FILES = {
    "empty file": ("raw.csv", "", {}, ["raw.csv", "no interactions"]),
    "missing column": ("raw.csv", TEXT, {"read": {"user": "usr"}}, ["raw.csv", "no column 'usr'; did you mean user?"]),
    "nan id": ("raw.csv", TEXT + "nan,1,5,0\n", {}, [f"raw.csv:{N + 2}: user is 'nan'"]),
    "nul": ("raw.csv", TEXT + "1\0,1,5,0\n", {}, [f"raw.csv:{N + 2}: user is '1\\x00'"]),
    "a gigabyte of zeros": ("raw.csv.gz", gz(bytes(16 << 20), 64), {}, ["raw.csv.gz:1: the line is longer than 8 MB"]),
    "a gigabyte of lines": ("raw.csv.gz", gz(TEXT) + gz(16 * 2**20 * "\n", 64), {}, ["raw.csv.gz", "unpacks to more than"]),
    "cut gzip": ("raw.csv.gz", gz(TEXT)[:-20], {}, ["raw.csv.gz: damaged"]),
    "json, code": ("raw.json", "{'user': exit(9), 'item': 1}", {"read": JSON_LINES}, ["raw.json:1: expected one object per line"]),
    "no parquet": ("raw.parquet", TEXT, {"read": PARQUET}, ["raw.parquet: not a Parquet file"]),
    "wrong checksum": ("raw.csv", TEXT, {"sha256": "0" * 64}, ["raw.csv: sha256 is ", "the card toy says 000"]),
    "a core that nobody is in": ("raw.csv", TEXT, {"prepare": [{"k_core": 99}]}, ["prepare.0: k_core: 99 leaves no interaction"]),
    "value of no column": ("raw.csv", TEXT, {"prepare": [{"min_value": 4}]}, ["prepare.0: min_value needs a value column"]),
    "no test": ("raw.csv", "user,item\n1,1\n2,2\n", {}, ["toy: ", "part is empty"]),
}  # fmt: skip


@pytest.fixture(autouse=True)
def everywhere(home):
    """Every command works in this folder, writes under it, and none reaches the network."""


def write(name: str, content: str | bytes, says: dict) -> str:
    """The raw file and its card, toy.yaml."""
    Path(name).write_bytes(content.encode() if isinstance(content, str) else content)
    of_file = {key: value for key, value in says.items() if key in ("member", "sha256")}
    of_card = {key: value for key, value in says.items() if key not in of_file}
    card = {"name": "toy", "source": {"files": {"all": {"file": name} | of_file}}} | of_card
    Path("toy.yaml").write_text(yaml.safe_dump(card), encoding="utf-8")
    return "toy.yaml"


def is_refused(words: list[str], message: list[str], capsys, codes: tuple[int, ...] = (2,)) -> None:
    """The whole contract."""
    before = left(Path.cwd())
    capsys.readouterr()
    assert _main(words) in codes
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ") and printed.err.count("\n") == 1 and printed.err.rstrip("\n").isprintable()
    assert "Traceback" not in printed.err and len(printed.err) < 2500
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
        ("raw.csv", TEXT, {"read": {"value": "rating", "time": "time"}}),
        ("raw.csv.gz", gz(TEXT), {}),
        ("raw.json", JSON, {"read": JSON_LINES}),
    ):
        assert _main(["data", "describe", write(name, content, says), "--json"]) == 0
        assert f'"interactions": {N}' in capsys.readouterr().out


SMALL = ["data.source.generator.users=80", "data.source.generator.items=40", "data.source.generator.interactions_per_user=10"]
EASE = ["run", "synthetic", "ease", "lam=1", "--no-track"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "synthetic", "easy"], ["unknown method 'easy'; did you mean ease?"]),
        (["run", "synthetic", "ease", "lamb=1"], ["ease: unknown parameter 'lamb'; did you mean lam?"]),
        (["run", "synthetic", "edlae", "p=1.5", "lam=1"], ["edlae: p must lie in [0, 1), got 1.5"]),
        (["run", "synthetic", "ease", "lam='80'"], ["ease: lam: expected a number, got '80'"]),
        ([*EASE, "--cutoffs", "5000", *SMALL], ["5000", "40 items of synthetic"]),
        ([*EASE, "--metrics", "recall,ndcg@5", *SMALL], ["error: the default of --cutoffs: 50 is more than the 40 items of synthetic; give smaller cutoffs"]),
        ([*EASE, "--metrics", "recall,ndcg@100", *SMALL], ["error: --metrics: 100 is more than the 40 items of synthetic"]),
        (["evaluate", "synthetic", "none.csv", "--no-track", "--metrics", "ndcg", *SMALL], ["error: the default of --cutoffs: 50 is more"]),
        (["evaluate", "synthetic", "none.csv", "--no-track", *SMALL], ["error: none.csv: no such file"]),
        ([*EASE, "--cutoffs", ""], ["--cutoffs: expected whole numbers such as 10,20, got ''"]),
        (["leaderboard", "show", "--datasets", ""], ["--datasets: expected names separated by commas, such as a,b, got ''"]),
        (["leaderboard", "--methods", "ease,,ials"], ["--methods: expected names separated by commas, such as a,b, got 'ease,,ials'"]),
        (["reproduce", "--rows", " ;"], ["--rows: expected at least one name, got ' ;'"]),
        ([*EASE, "--cutoffs", "0"], ["--cutoffs: k must be at least 1, got 0"]),
        ([*EASE, "--metrics", "recal"], ["unknown metric 'recal'; did you mean recall?"]),
        ([*EASE, "--threads", "0"], ["--threads"]),
        ([*EASE, "--seed", "-1"], ["--seed"]),
        ([*EASE, "data.split.test=true"], ["split.test: must be < 1, got True"]),
        ([*EASE, "data.split.protocol=random"], ["split.protocol: unknown 'random'"]),
        ([*EASE, "data.source.generator.seed=-1"], ["source.generator.seed: must be ≥ 0, got -1"]),
        ([*EASE, "data.source.generator.users=50000000", "data.source.generator.items=50000000"], ["50,000,000 users x 50,000,000 items"]),
        (["sweep", "demo", "final.seeds=['1']"], ["final.seeds.0: expected a whole number, got '1'"]),
        (["sweep", "demo", "resources.cpus='1'"], ["resources.cpus: expected auto or a whole number of at least 1, got '1'"]),
        (["sweep", "demo", "serch.trials=3"], ["serch: unknown key; did you mean search?"]),
        (["sweep", "demo", "--address", "not an address", "--dry-run"], ["address"]),
        (["run", "movielens-1", "ease"], ["unknown dataset 'movielens-1'; did you mean movielens-1m?"]),
        (["run", "./none.yaml", "ease"], ["none.yaml: no such dataset card"]),
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
        ("name: toy\nsource: {file: raw.csv}\nread: {usr: a}\n", ["toy.yaml: read.usr: unknown key; did you mean user?"]),
        ("name: Toy Shop\nsource: {file: raw.csv}\n", ["toy.yaml: name"]),
        ("name: [toy\nsource: {file: raw.csv}\n", ["toy.yaml"]),
        ("name: !!python/object/apply:os.system [exit]\n", ["toy.yaml"]),
        ("name: toy\nsource: {file: ..}\n", ["toy.yaml: source.file: must end in a file name, got '..'"]),
        ("name: toy\nsource: {files: {all: {file: a/..}}}\n", ["toy.yaml: source.files.all.file: must end in a file name"]),
        ('name: toy\nsource: {file: "a\\0b"}\n', ["toy.yaml: source.file: must end in a file name"]),
        (f"name: toy\nsource: {{file: {'x' * 300}.csv}}\n", ["xxx.csv"]),
        ("name: toy\nsource: {file: raw.csv}\nprepare: [{k_core: true}]\n", ["toy.yaml: prepare.0.k_core: expected a whole number, got True"]),
        ("name: toy\nsource: {file: none.csv}\n", ["none.csv: no such file (dataset toy)"]),
        ("name: toy\nsource: {files: {all: {url: https://x.invalid/raw.csv}}}\n", ["raw.csv is not in the cache", "offline"]),
    ],
)  # fmt: skip
def test_a_bad_card(text, message, capsys):
    Path("toy.yaml").write_text(text)
    is_refused(["run", "toy.yaml", "ease", "lam=1"], message, capsys)


@pytest.mark.parametrize("name", ["RANKBENCH_DATA", "RANKBENCH_RESULTS"])
def test_a_folder_that_cannot_be_made(name, monkeypatch, capsys):
    Path("file").write_text("")
    monkeypatch.setenv(name, "file/below")
    is_refused(["run", "synthetic", "random", *SMALL, "--no-track"], ["file/below"], capsys, codes=(5,))


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
    is_refused([*words, place + suffix], [place.partition("/")[0][:20]], capsys, codes=(2, 5))
    assert {path for path in Path.cwd().rglob("*")} == before


@pytest.mark.parametrize(
    "words",
    [
        ["run", LONG_FOLDER, "ease"],
        ["run", "synthetic", LONG],
        ["run", "synthetic", "ease", f"data.{LONG}=1"],
        ["sweep", f"{LONG_FOLDER}x.yaml"],
        ["sweep", "stop", LONG_FOLDER],
        ["report", LONG_FOLDER],
        ["compare", LONG, LONG_FOLDER],
        ["recommend", LONG_FOLDER, "--all"],
        ["similar", "no-model", "--items", f"{LONG}.csv"],
        ["study", LONG],
        [LONG],
    ],
    ids=lambda words: " ".join(words)[:40],
)
def test_a_name_too_long_is_one_line(words, capsys):
    is_refused(words, [], capsys)


def test_in_a_process_of_its_own():
    write("raw.csv", TEXT + "nan,1,5,0\n", {})
    words = ["-m", "rankbench", "run", "toy.yaml", "ease", "lam=1"]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1 and "user is 'nan'" in done.stderr


def test_a_matrix_too_large_for_memory_is_refused_before_the_work(capsys):
    everything = " ".join(map(str, range(400_000)))
    card = write("raw.txt", "".join(f"{user} {everything}\n" for user in range(4)), {"read": USER_LINES})
    assert _main(["data", "fetch", card]) == 0
    for method in ("ease", "edlae-low-rank"):
        message = ["the item-item matrix of ", " GB of memory, ", " GB are free"]
        is_refused(["run", card, method, "lam=1", "--no-track"], message, capsys, codes=(5,))
