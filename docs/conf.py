"""The site: Markdown and notebooks by MyST, docstrings by autodoc, and parts made from the code and the store as it is built.

`make docs` builds it with -W: a warning is an error. Read more under "Documentation" in CONTRIBUTING.md.
"""

from __future__ import annotations

import sys
from importlib.metadata import version as installed_version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import method_tables
import rooms

from rankbench.core.environment import Environment
from rankbench.leaderboard.options import BoardOptions
from rankbench.leaderboard.stored import site as leaderboard_site

project = "rankbench"
author = copyright = "The rankbench developers"
version = release = installed_version("rankbench")
html_title = f"rankbench {release}"

extensions = ["myst_nb", "sphinx.ext.autodoc"]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb"}
nb_execution_mode = "off"  # the notebooks hold their outputs; tests/docs runs them again
exclude_patterns = ["_site"]
myst_heading_anchors = 4
highlight_language = "none"  # of a block without a language: commands and their output
default_role = "code"  # a docstring writes `name`
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_maximum_signature_line_length = 100

html_theme = "furo"
html_theme_options = {"source_directory": "docs/"}
html_copy_source = False
html_show_sphinx = False

LEADERBOARD = Path(__file__).parents[1] / "experiments" / "leaderboard"
MARKER = "<!-- made from the registry of methods when the site is built -->"


def fill_in(app, docname: str, source: list[str]) -> None:
    """Put the generated part of a page where its marker stands."""
    if docname == "methods":
        assert MARKER in source[0], f"{docname}.md has no marker for the generated part"
        source[0] = source[0].replace(MARKER, method_tables.markdown())
    if docname == "leaderboard" and LEADERBOARD.is_dir():
        source[0] += '\n## The board\n\nWhat was measured so far: <a href="leaderboard/index.html">the leaderboard</a>.\n'
    if docname.count("/") > 1:  # a report below docs/results: reached from the page of results, not from the menu
        source[0] = "---\norphan: true\n---\n\n" + source[0]


def write_leaderboard(app, exception) -> None:
    """Write the site of the leaderboard beside the pages."""
    if exception is None and app.builder.format == "html" and LEADERBOARD.is_dir():
        leaderboard_site(Path(app.outdir) / "leaderboard", BoardOptions(store=LEADERBOARD), Environment.from_env())


def setup(app) -> None:
    rooms.write()
    app.connect("build-finished", write_leaderboard)
    app.connect("source-read", fill_in)
