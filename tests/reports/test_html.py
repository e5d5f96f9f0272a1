"""The page: whole in one file, with nothing from elsewhere, and with every name escaped."""

import re
from html.parser import HTMLParser

import pytest
from stored import typed

from rankbench.reports.html import html
from rankbench.reports.page import Best, Code, Grid, Items, Link, Page, Picture, Second, Section, State, Text
from rankbench.reports.report import write_report

VILE = '<script>alert("1")</script>&\'`x`'


class Reader(HTMLParser):
    """Tags with their attributes, the text of cells by row, and what was not closed."""

    VOID = {"meta", "img"}

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.rows, self.texts, self.wrong = [], [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        if self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data):
        self.texts.append(data)
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data


@pytest.fixture
def sweep(make_run, make_sweep):
    runs = [make_run(stage, arm, 0.1 + 0.1 * len(arm), params={"lam": lam}, data={"differences": [VILE]})
            for stage, arm, lam in (("search", "A", 1), ("search", "A", 2), ("final", "A", 1), ("final", VILE, 3))]  # fmt: skip
    others = [{"name": "other" + VILE, "why": VILE, "published": {"x": {"ndcg@20": 0.9}}}]
    about, *rest = make_sweep(runs, {"A": {"x": {"ndcg@20": 0.2}}, VILE: {}, "never": {}}, not_run=others)
    about["experiment"] |= {"question": VILE, "published": {"paper": VILE, "table": VILE, "recall": "open"}}
    return about, *rest


def test_names_from_files_are_text_and_never_markup(sweep, tmp_path):
    write_report(tmp_path, *typed(*sweep))
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    page = Reader(text)
    assert page.wrong == [] and page.open == []
    # Scripts are Bokeh, the page's own, and the data of charts, which no name can end; what the names say is there to be read.
    scripts = [attributes.get("type") for tag, attributes in page.tags if tag == "script"]
    assert scripts.count(None) == 2 and {*scripts} == {None, "application/json"}
    assert all("<" not in data for data in re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', text))
    assert "alert" not in text[text.rindex("<script>") :]
    assert VILE in [cells[0] for cells in page.rows]
    assert all(not name.startswith("on") for _, attributes in page.tags for name in attributes)


def test_nothing_is_asked_of_a_network(sweep, tmp_path):
    write_report(tmp_path, *typed(*sweep))
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    page = Reader(text)
    assert not {"link", "iframe", "object", "embed", "base"} & {tag for tag, _ in page.tags}
    addresses = [
        value for _, attributes in page.tags for name, value in attributes.items() if name in ("src", "href", "srcset")
    ]
    assert addresses and all(address.startswith(("data:image/png;base64,", "#s")) for address in addresses)
    assert not re.search(r"https?:|//[a-z]|url\(|@import", re.sub(r"base64,[^\"]*", "", text).split("<script>")[0])
    policy = next(attributes["content"] for tag, attributes in page.tags if attributes.get("http-equiv"))
    assert policy.startswith("default-src 'none'")


def test_the_first_table_has_a_line_a_row_and_marks_the_best(sweep, tmp_path):
    files = write_report(tmp_path, *typed(*sweep))
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    first = Reader(text.split("<table>")[1].split("</table>")[0])
    header, *lines = first.rows
    assert header[:2] == ["model", "ndcg@20"]
    assert [line[1] for line in lines] == ["0.2000", f"{0.1 + 0.1 * len(VILE):.4f}", "not run", "not run"]
    assert [tag for tag, _ in first.tags if tag in "bu"] == ["u", "b"]
    assert [attributes.get("class") for tag, attributes in first.tags if tag == "tr"] == [None, None, None, "quiet", "quiet"]
    pictures = [attributes for tag, attributes in Reader(text).tags if tag == "img"]
    assert len(pictures) == sum(path.suffix == ".png" for path in files) == 3


def test_every_kind_of_block_and_cell_has_its_markup(tmp_path):
    body = [
        [Best("2"), Second("1"), Link("a", "a/report"), State("not run")],
        ["< 0.001", "not run", "b", ""],
        ["3", "4", "5", "z"],
    ]
    blocks = (
        Text("plain `code`"), Items(("one", "two")), Code("{}"), Picture(tmp_path / "missing.png", "c"),
        Grid(["w", "x", "y", "z"], body, "caption", frozenset({1}), total=True),
    )  # fmt: skip
    text = html(Page("t", ("lead",), (Section("s", blocks),), (("fact", "1 of 2"),)))
    page = Reader(text)
    assert page.wrong == [] and page.open == []
    for part in (
        "<b>2</b>", "<u>1</u>", '<a href="a/report.html">a</a>', '<span class="state not-run">not run</span>',
        "plain <code>code</code>", "<li>two</li>", "<dt>fact</dt><dd>1 of 2</dd>", "<h3>caption</h3>", "&lt; 0.001",
    ):  # fmt: skip
        assert part in text, part
    assert "<img" not in text and text.index("<tfoot>") > text.index("&lt; 0.001")
    numeric = [attributes.get("class") for tag, attributes in page.tags if tag == "th" and attributes["scope"] == "col"]
    assert numeric == ["number", "number", None, None]
