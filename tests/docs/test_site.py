"""The site is built without a warning, and its generated pages hold what the code has."""

import subprocess
import sys

import pytest
from pages import ROOT

import rankbench.api
from rankbench.experiment.methods import registered


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("sphinx", reason='the tools of the site are not installed: pip install -c constraints.txt -e ".[docs]"')
    folder = tmp_path_factory.mktemp("site")
    words = ["-m", "sphinx", "-W", "--keep-going", "-q", "-E", "-b", "html", "-d", str(folder / "doctrees"), "docs"]
    done = subprocess.run([sys.executable, *words, str(folder / "html")], cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return folder / "html"


def test_the_page_of_methods_has_every_method_and_its_parameters(site):
    page = (site / "methods.html").read_text(encoding="utf-8")
    for method in registered():
        assert f'<section id="{method.name}">' in page, method.name
    assert page.count("conjugate-gradient steps per row") == 1, "parameters of all ALS methods are listed once"
    for text in ("dropout probability, in [0, 1)", "10 to 1000, log scale", 'id="parameters-of-training"', 'id="lightgcn"'):
        assert text in page


def test_the_page_of_the_api_has_everything_that_the_api_gives(site):
    page = (site / "api.html").read_text(encoding="utf-8")
    for name in rankbench.api.__all__:
        assert f'id="rankbench.api.{name}"' in page or f'id="rankbench.core.errors.{name}"' in page, name
    for text in ("rankbench.api.Model.recommend_new", "rankbench.judge.compare.Comparison", "&lt;function"):
        assert (text in page) == (text != "&lt;function")


def test_the_menu_has_every_page_that_is_written(site):
    index = (site / "index.html").read_text(encoding="utf-8")
    for path in sorted((ROOT / "docs").glob("*.md")):
        assert path.stem == "index" or f'href="{path.stem}.html"' in index, path.stem


def test_the_site_contains_the_leaderboard_of_this_repository(site):
    index = (site / "leaderboard" / "index.html").read_text(encoding="utf-8")
    assert "65 methods on 11 datasets" in index
    assert 'href="leaderboard/index.html"' in (site / "leaderboard.html").read_text(encoding="utf-8")
    gowalla = (site / "leaderboard" / "dataset-gowalla.html").read_text(encoding="utf-8")
    assert "= best" in gowalla or "worse" in gowalla.split("Repeat")[0], "verdicts come from the store, without values of users"
