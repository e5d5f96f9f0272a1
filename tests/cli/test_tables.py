"""Tables on terminals of many widths: every number stays whole, lines fit, and piped output is complete."""

import io
import re

import pytest
from rich.console import Console
from rich.text import Text

from rankbench.cli import console
from rankbench.cli.console import print_table
from rankbench.sweeps.views.plain_console import PlainConsole

HEADER = ["dataset", "model", "ndcg@20", "95 % interval", "setting", "fit s"]
BODY = [
    ["movielens-100k-temporal", "softmax", "0.3627 ¹", "0.3463 – 0.3783", "tau=0.1 learning_rate=0.001", "12.25"],
    ["gowalla", "debiased-infonce", "0.0021", "-1.5e-05 – 0.0042", "lam=500 a=0.5 extra=17.125", "1,234.5 ÷2"],
    ["netflix", "ease", "not available: offline", "", "", ""],
]
NUMBERS = ["0.3627 ¹", "0.3463 – 0.3783", "0.0021", "-1.5e-05 – 0.0042", "12.25", "1,234.5 ÷2"]


@pytest.fixture
def printed(monkeypatch, capsys):
    """Print on a terminal of a width, or into a pipe for None; returns the lines."""

    def at(width, *arguments, **options):
        stream = io.StringIO()
        terminal = Console(file=stream, force_terminal=width is not None, color_system=None, width=width, soft_wrap=True)
        monkeypatch.setattr(console, "out", terminal)
        monkeypatch.setattr(console, "Console", lambda **given: Console(**given, file=stream, color_system=None))
        print_table(*arguments, **options)
        return stream.getvalue().splitlines()

    return at


@pytest.mark.parametrize("width", [40, 50, 60, 72, 80, 100, 120, 200])
def test_no_number_is_cut_at_any_width(printed, width):
    lines = printed(width, HEADER, BODY)
    assert max(map(len, lines)) <= width or width < 60  # a folded row is as wide as its widest value
    for number in NUMBERS:
        assert any(number in line for line in lines), (number, lines)


@pytest.mark.parametrize("width", [74, 80, 90, 100, 110])
def test_columns_are_dropped_in_order_and_named(printed, width):
    lines = printed(width, HEADER, BODY, drop=("fit s", "setting", "absent"))
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    left_out = re.findall(r"not shown in \d+ columns: (.*)", text)
    assert left_out in ([], ["fit s"], ["fit s, setting"])
    assert ("fit s" in lines[0] + lines[1]) == (left_out == [])
    assert "0.3463 – 0.3783" in text


def test_piped_output_is_complete(printed):
    lines = printed(None, HEADER, BODY, drop=("fit s", "setting"))
    assert len(lines) == 1 + len(BODY)
    for line, cells in zip(lines, [HEADER, *BODY], strict=True):
        assert all(cell in line for cell in cells)


def test_an_interval_moves_below_its_value_before_anything_is_dropped(printed):
    body = [[name, *["0.2395 [0.2270, 0.2521]"] * 3] for name in ("recall", "recall_capped")]
    lines = printed(80, ["metric", "@10", "@20", "@50"], body)
    assert lines[1].split() == ["recall", *["0.2395"] * 3]
    assert lines[2].count("[0.2270, 0.2521]") == 3 and max(map(len, lines)) <= 80
    wide = printed(120, ["metric", "@10", "@20", "@50"], body)
    assert wide[1].count("0.2395 [0.2270, 0.2521]") == 3


def test_a_row_that_does_not_fit_is_folded_with_all_its_values(printed):
    lines = printed(30, HEADER, BODY, drop=("fit s",))
    assert lines[0] == "movielens-100k-temporal  softmax"
    assert [line.split()[0] for line in lines[1:5]] == ["ndcg@20", "95", "setting", "fit"]
    assert not any(line.endswith("  ") or "not shown" in line for line in lines)


def test_control_characters_of_labels_do_not_reach_the_terminal(printed, capsys):
    evil = "E \x1b]52;c;ZWNobw==\x07 \x9b31m"
    shown = "\n".join(printed(120, ["model", "ndcg@20"], [[evil, "0.1"], [Text(evil), "0.2"]]))
    assert "\x1b" not in shown and "\x07" not in shown and "\x9b" not in shown
    assert r"E \x1b]52;c;ZWNobw==\x07 \x9b31m" in shown
    PlainConsole().print(evil, Text(evil))
    assert "\x1b" not in capsys.readouterr().out
