"""Bad input, by the command line: exit code 2 (5: storage), one line that names what is wrong, and nothing left behind."""

# ruff: noqa: E501  a case a line

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rankbench.cli import _main

# What may be wrong with a file, the tests of data/ say.
TEXT = "user,item\n" + "".join(f"{user},{item}\n" for user in range(8) for item in range(9) if (user + item) % 3)


@pytest.fixture(autouse=True)
def everywhere(home):
    """Every command works in this folder, writes under it, and none reaches the network."""


def write(name: str, content: str, says: dict) -> str:
    """The raw file and its card, toy.yaml."""
    Path(name).write_text(content)
    Path("toy.yaml").write_text(yaml.safe_dump({"name": "toy", "source": {"file": name}} | says), encoding="utf-8")
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


SMALL = ["data.source.generator.users=80", "data.source.generator.items=40", "data.source.generator.interactions_per_user=10"]
EASE = ["run", "synthetic", "ease", "lam=1", "--no-track"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*EASE, "--cutoffs", "5000", *SMALL], ["5000", "40 items of synthetic"]),
        ([*EASE, "--metrics", "recall,ndcg@5", *SMALL], ["error: the default of --cutoffs: 50 is more than the 40 items of synthetic; give smaller cutoffs"]),
        ([*EASE, "--metrics", "recall,ndcg@100", *SMALL], ["error: --metrics: 100 is more than the 40 items of synthetic"]),
        (["evaluate", "synthetic", "none.csv", "--no-track", "--metrics", "ndcg", *SMALL], ["error: the default of --cutoffs: 50 is more"]),
        (["evaluate", "synthetic", "none.csv", "--no-track", *SMALL], ["error: none.csv: no such file"]),
        (["reproduce", "--rows", " ;"], ["--rows: expected at least one name, got ' ;'"]),
        ([*EASE, "--threads", "0"], ["--threads"]),
        ([*EASE, "--seed", "-1"], ["--seed"]),
        ([*EASE, "data.split.test=true"], ["split.test: must be < 1, got True"]),
        ([*EASE, "data.source.generator.users=50000000", "data.source.generator.items=50000000"], ["50,000,000 users x 50,000,000 items"]),
        (["sweep", "demo", "final.seeds=['1']"], ["final.seeds.0: expected a whole number, got '1'"]),
        (["sweep", "demo", "--address", "not an address", "--dry-run"], ["address"]),
        (["data", "describe", "nowhere"], ["unknown dataset 'nowhere'"]),
    ],
    ids=lambda value: " ".join(value)[:60],
)  # fmt: skip
def test_a_bad_command(words, message, capsys):
    is_refused(words, message, capsys)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: toy\nsource: {file: ..}\n", ["toy.yaml: source.file: must end in a file name, got '..'"]),
        ("name: toy\nsource: {files: {all: {file: a/..}}}\n", ["toy.yaml: source.files.all.file: must end in a file name"]),
        ('name: toy\nsource: {file: "a\\0b"}\n', ["toy.yaml: source.file: must end in a file name"]),
        (f"name: toy\nsource: {{file: {'x' * 300}.csv}}\n", ["xxx.csv"]),
        ("name: toy\nsource: {file: none.csv}\n", ["none.csv: no such file (dataset toy)"]),
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


def test_a_bad_file_in_this_process_and_in_one_of_its_own(capsys):
    words = ["run", write("raw.csv", TEXT + "nan,1\n", {}), "ease", "lam=1", "--no-track"]
    is_refused(words, [f"raw.csv:{TEXT.count(chr(10)) + 1}: user is 'nan'"], capsys)
    done = subprocess.run([sys.executable, "-m", "rankbench", *words], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1 and "user is 'nan'" in done.stderr


def test_a_matrix_too_large_for_memory_is_refused_before_the_work(capsys):
    everything = " ".join(map(str, range(400_000)))
    card = write("raw.txt", "".join(f"{user} {everything}\n" for user in range(4)), {"read": {"format": "user-lines"}})
    assert _main(["data", "fetch", card]) == 0
    for method in ("ease", "edlae-low-rank"):
        message = ["the item-item matrix of ", " GB of memory, ", " GB are free"]
        is_refused(["run", card, method, "lam=1", "--no-track"], message, capsys, codes=(5,))
