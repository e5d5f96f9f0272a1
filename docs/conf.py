"""The site: Markdown and notebooks by MyST, docstrings by autodoc, and parts made from the code and the store as it is built.

`make docs` builds it with -W: a warning is an error. Read more under "Documentation" in CONTRIBUTING.md.
"""

from __future__ import annotations

import sys
from importlib.metadata import distribution
from importlib.metadata import version as installed_version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import method_pages
import rooms
from sphinx.util.fileutil import copy_asset

from rankbench.core.environment import Environment
from rankbench.leaderboard.options import BoardOptions
from rankbench.leaderboard.stored import site as leaderboard_site

project = "rankbench"
author = copyright = "The rankbench developers"
version = release = installed_version("rankbench")
html_title = f"rankbench {release}"

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.mathjax"]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb"}
nb_execution_mode = "off"  # the notebooks hold their outputs; tests/docs runs them again
exclude_patterns = ["_site"]
myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath"]
highlight_language = "none"  # of a block without a language: commands and their output
default_role = "code"  # a docstring writes `name`
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"no-value": True}
python_maximum_signature_line_length = 100

html_theme = "furo"
html_theme_options = {"source_directory": "docs/"}
html_copy_source = False
html_show_sphinx = False

# Formulas are drawn by the MathJax of a package, whose files the site serves itself: it needs no network.
MATHJAX = Path(str(distribution("sphinx-mathjax-offline").locate_file("sphinx-mathjax-offline/static/mathjax")))
mathjax_path = "mathjax/tex-chtml.js"
html_static_path = ["_static"]
html_css_files = ["formulas.css"]

GENERATED = {"methods": method_pages.overview, "references": method_pages.bibliography}
MARKER = "<!-- made when the site is built -->"


def fill_in(app, docname: str, source: list[str]) -> None:
    """Put the generated part of a page where its marker stands."""
    if docname in GENERATED:
        assert MARKER in source[0], f"{docname}.md has no marker for the generated part"
        source[0] = source[0].replace(MARKER, GENERATED[docname]())
    if docname == "leaderboard" and method_pages.LEADERBOARD.is_dir():
        source[0] += '\n## The board\n\nWhat was measured so far: <a href="leaderboard/index.html">the leaderboard</a>.\n'
    if docname.count("/") > 1:  # a report below docs/results: reached from the page of results, not from the menu
        source[0] = "---\norphan: true\n---\n\n" + source[0]


def write_beside(app, exception) -> None:
    """Write the site of the leaderboard and MathJax beside the pages."""
    if exception is not None or app.builder.format != "html":
        return
    to = Path(app.outdir)
    if method_pages.LEADERBOARD.is_dir():
        leaderboard_site(to / "leaderboard", BoardOptions(store=method_pages.LEADERBOARD), Environment.from_env())
    for part in ("tex-chtml.js", "output/chtml/fonts", "a11y/assistive-mml.js"):
        copy_asset(
            MATHJAX / part, (to / "_static" / "mathjax" / part).parent if "." in part else to / "_static" / "mathjax" / part
        )


def setup(app) -> None:
    rooms.write()
    method_pages.write(Path(__file__).parent / "methods")
    app.connect("build-finished", write_beside)
    app.connect("source-read", fill_in)
