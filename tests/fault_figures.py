"""Figures of fault tests: `python -m pytest -m fault` prints what each test measured, as one table of the rows F1 to F17.

    @pytest.mark.fault("F1")
    def test_a_node_dies(figure):
        ...
        figure("10 of 10 kills: the same bits")

`docs/reliability.md` has a row for each, and `tests/docs/test_reliability.py` compares the page with the marked tests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

ROWS = {
    "F1": "a worker node is killed",
    "F2": "a worker process is killed",
    "F3": "a node hangs, or its network is cut",
    "F4": "the driver is killed",
    "F5": "the driver's own node or the head dies",
    "F6": "memory or the object store is too small",
    "F7": "the driver of a sweep is killed, or its clock jumps",
    "F8": "nested work on 1, 2 and 4 processors",
    "F9": "MLflow is down, slow or restarted",
    "F10": "many writers of one MLflow store",
    "F11": "many builders of one cache, and kills",
    "F12": "malformed input",
    "F13": "numeric edges",
    "F14": "security",
    "F15": "a full disk",
    "F16": "SIGINT and SIGTERM",
    "F17": "a command that writes a store of results is killed",
}
_ROW, _FIGURE = "fault row", "fault figure"  # names of user properties, which pytest-xdist brings from its workers


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Keep the figure that a test marked `fault` measured, for the table at the end."""
    return lambda text: request.node.user_properties.append((_FIGURE, text))


def give_rows(items: list[pytest.Item]) -> None:
    """Give every marked test its rows as properties; a row that is not in the table is an error."""
    for item in items:
        for mark in item.iter_markers("fault"):
            for row in mark.args:
                if row not in ROWS:
                    raise pytest.UsageError(f"{item.nodeid}: fault {row!r} is none of {', '.join(ROWS)}")
                item.user_properties.append((_ROW, row))


def pytest_terminal_summary(terminalreporter) -> None:
    """Print the rows with what their tests measured, and the rows without a figure; nothing if no marked test ran."""
    lines: dict[str, list[str]] = {row: [] for row in ROWS}
    measured = set()
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(outcome, []):
            properties = list(getattr(report, "user_properties", ()))
            if outcome == "passed" and report.when != "call":
                continue
            figures = [text for name, text in properties if name == _FIGURE]
            for row in (value for name, value in properties if name == _ROW):
                if outcome == "passed" and figures:
                    measured.add(row)
                    lines[row] += figures
                elif outcome != "passed":
                    reason = report.longrepr[2].removeprefix("Skipped: ") if outcome == "skipped" else report.nodeid
                    lines[row].append(f"{outcome.upper()}: {reason}")
    if not any(lines.values()):
        return
    terminalreporter.section("faults")
    for row, texts in lines.items():
        for number, (text, times) in enumerate(Counter(texts).items()):
            text = text if times == 1 else f"{text} ({times} tests)"
            terminalreporter.write_line(f"{row if number == 0 else '':<4} {ROWS[row] if number == 0 else '':<52} {text}")
    if without := [row for row in ROWS if row not in measured]:
        terminalreporter.write_line(f"no figure in this run: {', '.join(without)}")
