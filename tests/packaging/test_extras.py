"""Without PyTorch, Ray, Optuna and MLflow: what works, and the one line that names the extra for what does not.

The packages are hidden from a fresh process (without_extras.py); test_wheel.py repeats it where they are not installed.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HIDDEN = "torch,ray,optuna,mlflow,sqlalchemy,alembic,uvicorn"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return run(*words), which runs a command without the extras, in one results folder for this file."""
    folder = tmp_path_factory.mktemp("without extras")  # with a space, as folders on macOS have
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("RANKBENCH_", "MLFLOW_", "RAY_"))}
    environment |= {"RANKBENCH_DATA": f"{folder}/data", "RANKBENCH_RESULTS": f"{folder}/results", "RANKBENCH_OFFLINE": "1"}

    def run(*words):
        command = [sys.executable, str(Path(__file__).with_name("without_extras.py")), HIDDEN, "--", *words]
        return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=300)

    return run


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        ("methods", "losses trained by gradient steps are left out; they need torch"),
        ("methods ease", "ease: "),
        ("data list", "movielens-1m"),
        ("report linear-movielens-1m", "not run"),
        ("doctor", "pip install 'rankbench[sweep]'"),
        ("--version", "rankbench "),
    ],
)
def test_what_reads_and_describes_needs_no_extra(run, words, printed):
    done = run(*words.split())
    assert done.returncode == 0, done.stderr
    assert printed in done.stdout and not done.stderr


def test_closed_forms_are_fitted_saved_and_compared_without_extras(run):
    ease = run("run", "synthetic", "ease", "lam=100")
    assert ease.returncode == 0 and "ndcg" in ease.stdout
    # The record waits for MLflow, in case it is installed later.
    assert ease.stderr.count("\n") == 1 and "2 of 2 messages wait" in ease.stderr and "rankbench[tracking]" in ease.stderr
    popularity = run("run", "synthetic", "popularity", "--no-track")
    assert popularity.stderr == ""
    runs = (done.stdout.splitlines()[-1].split()[-1] for done in (ease, popularity))
    compared = run("compare", *(Path(folder).name for folder in runs))
    assert compared.returncode == 0, compared.stderr


TORCH = "torch, which is not installed: pip install 'rankbench[train]'"
RAY = "ray and optuna, which are not installed: pip install 'rankbench[sweep]'"
MLFLOW = "mlflow, which is not installed: pip install 'rankbench[tracking]'"


@pytest.mark.parametrize(
    ("words", "needed"),
    [
        ("run synthetic bpr", TORCH),
        ("fit synthetic bpr", TORCH),
        ("methods bpr", TORCH),
        ("study", TORCH),
        ("run synthetic ease --device cuda", TORCH),
        ("sweep linear_movielens_1m", RAY),
        ("run synthetic ials --address 127.0.0.1:6379", RAY),
        ("ui", MLFLOW),
        ("tracking status", MLFLOW),
    ],
)
def test_what_needs_an_extra_names_it_in_one_line(run, words, needed):
    done = run(*words.split())
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("error: ") and done.stderr.endswith(f"{needed}\n") and done.stderr.count("\n") == 1


def test_a_near_miss_is_suggested_without_the_losses(run):
    assert "did you mean ease?" in run("run", "synthetic", "eese").stderr


def test_the_python_interface_reads_fits_and_says_what_is_missing():
    code = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
from without_extras import hide
hide(frozenset({HIDDEN.split(",")!r}))
import rankbench.api as rb
print(len(rb.methods()) > 10, len(rb.fit("synthetic", "popularity").recommend([0], k=3)))
for call in (lambda: rb.fit("synthetic", "bpr"), lambda: rb.sweep(datasets="synthetic", methods=["ease"])):
    try:
        call()
    except rb.ConfigError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300)
    first, *errors = done.stdout.splitlines()
    assert first == "True 3", done.stderr
    assert [error.rpartition(" ")[2] for error in errors] == ["'rankbench[train]'", "'rankbench[sweep]'"]
