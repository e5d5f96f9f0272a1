"""The site is built without a warning, and its generated pages hold what the code has."""

import html
import json
import re
import shutil
import subprocess
import sys
from importlib.metadata import distribution

import method_pages
import pytest
from pages import ROOT

import rankbench.api
from rankbench.losses.others import Others
from rankbench.losses.spec import LossState, Scores

# Reads formulas as JSON, and prints those that MathJax does not understand. A browser would show them in red.
PARSE = """
const tex = {packages: {"[-]": ["noundefined", "noerrors"]}, formatError: (jax, error) => { throw error; }};
require(process.argv[1] + "/node-main.js").init({loader: {load: ["input/tex"]}, tex}).then((MathJax) => {
  for (const formula of JSON.parse(require("fs").readFileSync(0))) {
    try { MathJax.tex2mml(formula); } catch (error) { console.log(`${formula}: ${error.message}`); }
  }
});
"""


def read(path):
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("sphinx", reason='the tools of the site are not installed: pip install -c constraints.txt -e ".[docs]"')
    folder = tmp_path_factory.mktemp("site")
    words = ["-m", "sphinx", "-W", "--keep-going", "-q", "-E", "-b", "html", "-d", str(folder / "doctrees"), "docs"]
    done = subprocess.run([sys.executable, *words, str(folder / "html")], cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return folder / "html"


def test_the_page_of_a_method_has_its_formula_paper_parameters_and_place(site):
    overview = read(site / "methods.html")
    for page in method_pages.pages():
        text = read(site / "methods" / f"{page.name}.html")
        assert text.count('class="math notranslate nohighlight"') >= len(page.entries)
        for method in page.entries:
            anchor = f"method-{method.name}"
            assert f'id="{anchor}"' in text and f'href="methods/{page.name}.html#{anchor}"' in overview
    assert overview.count("conjugate-gradient steps per row") == 1, "parameters of all ALS methods are listed once"
    assert "10 to 1000, log scale" in read(site / "methods" / "linear-ease.html")
    talos = read(site / "methods" / "losses-talos.html")
    assert 'href="https://doi.org/10.1145/3774904.3792602"' in talos and 'href="losses-quantile.html"' in talos
    place, n_methods, mean_rank = re.search(r">(\d+) of (\d+)</a>, mean rank ([\d.]+),", talos).groups()
    standings = (ROOT / "docs" / "results" / "leaderboard.md").read_text()
    shown_place, shown_rank = re.search(r"^\| talos +\| (\d+) +\| ([\d.]+) ", standings, re.MULTILINE).groups()
    assert (place, n_methods, mean_rank) == (shown_place, "73", f"{float(shown_rank):.1f}")


def test_every_formula_is_understood_by_the_mathjax_of_the_site(site):
    """By the input of the same package, which a browser has: node reports each formula with what is wrong in it."""
    node = shutil.which("node") or pytest.skip("node is not installed")
    mathjax = str(distribution("sphinx-mathjax-offline").locate_file("sphinx-mathjax-offline/static/mathjax"))
    pages = [read(path) for path in (*site.glob("*.html"), *site.glob("methods/*.html"))]
    formulas = [tex for page in pages for tex in re.findall(r"\\[\[(](.+?)\\[\])]</(?:div|span)>", page, re.DOTALL)]
    assert len(formulas) > 100
    broken = [r"\frac{1}{", r"\nonsense"]
    done = subprocess.run(
        [node, "-e", PARSE, mathjax],
        input=json.dumps([*map(html.unescape, formulas), *broken]),
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == broken


def test_the_site_needs_no_network(site):
    text = read(site / "methods" / "losses-sl.html")
    loaded = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="([^"]+)"', text)
    assert "../_static/mathjax/tex-chtml.js" in loaded and not [each for each in loaded if "//" in each]
    assert (site / "_static" / "mathjax" / "tex-chtml.js").is_file()
    assert len([*(site / "_static" / "mathjax").rglob("*.woff")]) > 10


def test_the_page_of_the_api_has_everything_that_the_api_gives(site):
    page = read(site / "api.html")
    for name in rankbench.api.__all__:
        assert f'id="rankbench.api.{name}"' in page or f'id="rankbench.core.errors.{name}"' in page, name
    for text in ("rankbench.api.Model.recommend_new", "rankbench.judge.compare.Comparison", "&lt;function"):
        assert (text in page) == (text != "&lt;function")
    for part in (Scores, Others, LossState):
        for name in [each for each in (*vars(part), *part.__annotations__) if each[0].islower() and each != "training"]:
            assert f'id="{part.__module__}.{part.__name__}.{name}"' in page, name


def test_the_menu_has_every_page_that_is_written(site):
    index = read(site / "index.html")
    for path in sorted((ROOT / "docs").glob("*.md")):
        assert path.stem == "index" or f'href="{path.stem}.html"' in index, path.stem


def test_the_site_contains_the_leaderboard_of_this_repository(site):
    index = read(site / "leaderboard" / "index.html")
    assert "73 methods on 31 datasets" in index
    assert 'href="leaderboard/index.html"' in read(site / "leaderboard.html")
    lastfm = read(site / "leaderboard" / "dataset-lastfm.html")
    # The page explains the words once; all others are verdicts.
    assert lastfm.count("= best") > 1, "verdicts come from the store, without values of users"
