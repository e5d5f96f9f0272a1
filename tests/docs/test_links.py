"""Every link, picture, anchor and source file that the pages name exists; the README is short and says how to install."""

import re
from urllib.parse import unquote

import pytest
from pages import PAGES, ROOT, WRITTEN, anchors, blocks, links, name, pictures, spans

PACKAGE = ROOT / "platform" / "rankbench"
INVENTED = ("tests/losses/test_NAME.py",)  # for a reader to write
EVERY_PAGE = pytest.mark.parametrize("path", PAGES, ids=name)


@EVERY_PAGE
def test_relative_links_lead_to_a_file_and_a_heading(path):
    for target in links(path):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        file, _, anchor = unquote(target).partition("#")
        linked = (path.parent / file).resolve() if file else path
        assert linked.exists(), f"{name(path)}: {target}: there is no such file"
        assert linked.is_relative_to(ROOT), f"{name(path)}: {target} leads out of the repository"
        assert not anchor or anchor in anchors(linked), f"{name(path)}: {target}: no such heading in {name(linked)}"


def test_links_and_anchors_are_found_at_all():
    readme = links(ROOT / "README.md")
    assert {"docs/quickstart.md", "docs/images/mlflow-curves.png"} <= set(readme)
    assert "tiles-on-a-cluster" in anchors(ROOT / "docs" / "results" / "scale.md")
    assert "010---2026-11-21" in anchors(ROOT / "CHANGELOG.md")


def source_file(text):
    """The file that a page names by a path from the repository or from the package."""
    return next((file for file in (ROOT / text, PACKAGE / text) if file.is_file()), None)


@pytest.mark.parametrize("path", WRITTEN, ids=name)
def test_source_files_and_the_names_in_them_exist(path):
    files = [span for span in spans(path) if re.fullmatch(r"[\w.-]+(/[\w.-]+)+\.(py|yaml)", span) and span not in INVENTED]
    assert not [file for file in files if not source_file(file)]
    text = path.read_text(encoding="utf-8")
    for names, file in re.findall(r"`([\w.]+)` in\s+`([\w./]+\.py)`", text):
        code = source_file(file).read_text(encoding="utf-8")
        assert all(re.search(rf"(?:def|class) {each}\b", code) for each in names.split(".")), f"{names} is not in {file}"


def test_the_pages_name_source_files():
    assert len([span for span in spans(ROOT / "docs" / "architecture.md") if source_file(span)]) > 30


def test_every_kept_picture_is_shown_on_a_page():
    shown = {(path.parent / target).resolve() for path in PAGES for target in links(path)}
    studies = ROOT / "docs" / "results" / "studies"  # a study's table.md shows no picture; plot.png lies beside it
    assert not [name(path) for path in pictures() if path not in shown and not path.is_relative_to(studies)]


def test_results_stay_below_three_megabytes():
    assert sum(path.stat().st_size for path in (ROOT / "docs" / "results").rglob("*") if path.is_file()) < 3_000_000


def test_the_readme_is_short_and_installs_what_the_makefile_installs():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) <= 700
    commands = "".join(block.text for block in blocks(ROOT / "README.md", ""))
    install = next(line for line in commands.splitlines() if "pip install" in line).partition("install ")[2]
    assert install in (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "make test" in commands and "make test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
