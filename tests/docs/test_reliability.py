"""The table of docs/reliability.md and the tests marked `fault` name each other, row by row."""

import ast
import re
import subprocess
import sys
from collections import defaultdict

from pages import ROOT

from ..fault_figures import ROWS

PAGE = ROOT / "docs" / "reliability.md"


def marked() -> dict[str, set[str]]:
    """Row → the tests marked with it, as file::name below tests/."""
    found = defaultdict(set)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if "mark.fault" not in text or path.name == "test_reliability.py":
            continue
        for node in ast.walk(ast.parse(text)):
            for mark in getattr(node, "decorator_list", []):
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.fault":
                    name = f"{path.relative_to(ROOT / 'tests').as_posix()}::{node.name}"
                    assert "figure" in {argument.arg for argument in node.args.args}, f"{name} gives no figure"
                    for row in mark.args:
                        found[row.value].add(name)
    return found


def named() -> dict[str, set[str]]:
    """Row → the tests that the page names in it."""
    found = defaultdict(set)
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if match := re.match(r"\| (F\d+) \|", line):
            found[match[1]] |= set(re.findall(r"`([\w/]+\.py::\w+)`", line))
    return found


def test_every_row_has_a_test():
    assert [*ROWS] == [f"F{number}" for number in range(1, 18)] == sorted(marked(), key=lambda row: int(row[1:]))


def test_the_page_names_the_tests_of_every_row():
    assert named() == marked()


def test_a_run_prints_the_figures_and_the_rows_without_one():
    words = ["-q", "-p", "no:cacheprovider", "-m", "fault", "tests/cluster/test_session.py", "-k", "authentication"]
    done = subprocess.run([sys.executable, "-m", "pytest", *words], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
    assert re.search(r"^F14 +security +RAY_AUTH_MODE=disabled: refused$", done.stdout, re.MULTILINE), done.stdout
    without = ", ".join(row for row in ROWS if row != "F14")
    assert f"no figure in this run: {without}" in done.stdout
