"""The sdist and the wheel, installed in fresh virtual environments outside the checkout. Needs a package registry.

python -m pytest -m slow tests/packaging
"""

import re
import subprocess
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest
from venvs import ROOT, Venv, clean_environment, contents, tracked_files

from ..pictures import size_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3000)]


def test_the_wheel_holds_the_catalogue_and_types_and_no_tests(built, wheel):
    files = contents(wheel)
    for kind in ("datasets", "experiments"):
        source = built[0] / kind
        expected = {str(path.relative_to(source)): path.read_bytes() for path in source.rglob("*") if path.is_file()}
        folder = f"rankbench/catalogue/{kind}/"
        assert expected and {name.removeprefix(folder): files[name] for name in files if name.startswith(folder)} == expected
    assert files["rankbench/py.typed"] == b"" and "rankbench/reports/page.html" in files
    tops = {name.split("/")[0] for name in files}
    assert len(tops) == 2 and all(top == "rankbench" or re.fullmatch(r"rankbench-[\w.]+\.dist-info", top) for top in tops)
    assert not [name for name in files if Path(name).name.startswith(("test_", "conftest")) or name.endswith(".pyc")]
    about = message_from_bytes(next(text for name, text in files.items() if name.endswith("/METADATA")))
    assert {"train", "sweep", "tracking", "all"} <= set(about.get_all("Provides-Extra"))
    base = {re.split(r"[^\w-]", text)[0] for text in about.get_all("Requires-Dist") if "extra ==" not in text}
    assert "pandas" in base and not base & {"torch", "ray", "mlflow", "optuna"}


def test_the_results_in_the_wheel_take_less_than_three_megabytes(wheel):
    with zipfile.ZipFile(wheel) as archive:
        assert 0 < sum(each.compress_size for each in archive.infolist() if each.filename.endswith(".jsonl")) < 3_000_000


def test_the_sdist_builds_the_same_wheel_as_the_tree_and_has_the_tests(built, wheel, tmp_path):
    tree, tools = built
    tools.run("python", "-m", "build", "--wheel", "--outdir", tmp_path, tree)  # the one in dist/ was built from the sdist
    (other,) = tmp_path.glob("*.whl")
    assert contents(other) == contents(wheel)
    (sdist,) = (tree / "dist").glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"tests/test_rooms.py", "constraints.txt", "constraints-oldest.txt", "Makefile", "CHANGELOG.md"} <= names
    assert sdist.stat().st_size < 5_000_000  # 1.8 MB of them are measured results


def test_the_copied_files_of_the_image_make_the_same_wheel(built, wheel, tmp_path):
    _, tools = built
    whole = tracked_files(tmp_path / "whole")
    context = tmp_path / "context"
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        if line.startswith("!") and "/" not in line:
            target = context / line[1:]
            target.parent.mkdir(parents=True, exist_ok=True)
            (whole / line[1:]).rename(target)
    # The command of the Dockerfile, without the packages that it brings.
    tools.run(
        "python", "-m", "pip", "wheel", "--quiet", "--no-deps", "-c", context / "constraints.txt", "-w", tmp_path, context
    )
    (other,) = tmp_path.glob("*.whl")
    assert contents(other) == contents(wheel)


def test_the_base_install_reads_and_fits_closed_forms_in_another_folder(wheel, tmp_path):
    venv = Venv(tmp_path)
    venv.install(wheel)
    listed = venv.run("python", "-m", "pip", "list", "--format", "freeze").stdout.lower()
    assert not re.search(r"^(torch|ray|mlflow.*|optuna|nvidia.*)==", listed, re.MULTILINE)
    shown = venv.run("rankbench", "--version").stdout  # no checkout here
    assert re.fullmatch(rf"rankbench {re.escape(wheel.name.split('-')[1])}( \(code [0-9a-f]{{16}}\))?\n", shown)
    assert "movielens-1m" in venv.run("rankbench", "data", "list").stdout
    assert "not run" in venv.run("rankbench", "report", "linear-movielens-1m").stdout
    done = venv.run("rankbench", "run", "synthetic", "ease", "lam=100")
    assert "ndcg" in done.stdout and (venv.work / "results" / "runs").is_dir()
    assert venv.run("python", "-c", "import rankbench.api as rb; print(len(rb.methods()) > 10)").stdout == "True\n"
    done = venv.run("rankbench", "run", "synthetic", "bpr", check=False)
    assert done.returncode == 2 and done.stderr.endswith("pip install 'rankbench[train]'\n") and done.stderr.count("\n") == 1


@pytest.fixture(scope="module")
def everything(wheel, tmp_path_factory):
    """A clean environment with the wheel and all its extras."""
    venv = Venv(tmp_path_factory.mktemp("everything"))
    venv.install(f"{wheel}[all]")
    venv.run("python", "-m", "pip", "check")
    return venv


def test_a_script_goes_from_a_frame_to_a_table_of_five_losses_with_the_wheel_alone(everything):
    example = ROOT / "examples" / "compare_losses.py"
    script = everything.work / example.name
    script.write_text(example.read_text(encoding="utf-8"), encoding="utf-8")
    done = everything.run("python", script)
    rows = [line.split() for line in done.stdout.splitlines() if re.match(r"\d", line)]
    assert {row[1] for row in rows} == {"bpr", "bce", "softmax", "sl", "ccl"}, done.stdout
    for _, _, mean, low, high, *_ in rows:
        assert 0 < float(low) < float(mean) < float(high) < 1
    picture = everything.work / "five-losses.png"
    assert min(size_of(picture)) > 200


def test_the_demo_runs_from_another_folder(everything):
    done = everything.run("rankbench", "sweep", "demo", "--arms", "ease", "--arms", "popularity")
    assert "ease" in done.stdout and list((everything.work / "results" / "sweeps").glob("*/report/report.html"))


def test_types_are_read_from_the_wheel(everything):
    everything.install("mypy")
    (everything.work / "typed.py").write_text(
        'import rankbench.api as rb\nrb.fit("synthetic", "ease", seed="0")\n', encoding="utf-8"
    )
    done = subprocess.run(
        [everything.folder / "venv" / "bin" / "mypy", "--follow-imports", "silent", "--ignore-missing-imports", "typed.py"],
        cwd=everything.work,
        env=clean_environment(everything.folder),
        capture_output=True,
        text=True,
        check=False,
    )
    assert 'Argument "seed" to "fit" has incompatible type "str"' in done.stdout, done.stdout + done.stderr
