"""Pages as HTML and as Markdown: whole in one file, with nothing from elsewhere, and with every name read as text."""

import re
from html.parser import HTMLParser

import pytest
from markdown_it import MarkdownIt

from rankbench.core.markdown import without_tags
from rankbench.reports.figure import Figure, Marks, Panel
from rankbench.reports.html import html
from rankbench.reports.markdown import markdown
from rankbench.reports.page import Best, Code, Grid, Items, Link, Page, Second, Section, State, Text
from rankbench.reports.report import note, sweep_table, write_report
from rankbench.reports.site import Site

VILE = (
    '<script>alert("1")</script>&\'`x`',
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "</td><svg/onload=alert(1)>",
    "<!-- x",
    "<?x",
    "<a href='javascript:1'>",
)
OURS = {
    *["h1", "h2", "h3", "p", "strong", "u", "ul", "li", "code", "pre", "table", "thead", "tbody", "tr", "th", "td", "a", "img"]
}
FIGURE = Figure("drawn", "A caption", [Panel("x", marks=[Marks([1, 2], [1, 2], arm="A", tips=["one", "two"])])])


class Reader(HTMLParser):
    """Tags with their attributes, the text of cells by row, all text, and what was not closed."""

    VOID = {"meta", "img"}

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.rows, self.text, self.wrong = [], [], [], "", []
        self.feed(text)
        self.close()
        assert "<!--" not in self.rawdata

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        if self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data):
        self.text += data
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data

    def handle_comment(self, data):
        raise AssertionError(data)

    handle_pi = unknown_decl = handle_comment

    @property
    def foreign(self):
        """The tags that no page in Markdown has, and those with attributes or a source of their own."""
        return [
            (tag, about) for tag, about in self.tags
            if tag not in OURS or {*about} - {"href", "src", "alt", "class"} or not about.get("src", "a.png").endswith(".png")
        ]  # fmt: skip


def rendered(text):
    """What a renderer that leaves raw HTML alone makes of Markdown."""
    return Reader(MarkdownIt("commonmark", {"html": True}).enable("table").render(text))


@pytest.fixture
def sweep(make_run, make_sweep):
    """sweep(vile) → a sweep in which every text is `vile`."""

    def make(vile):
        runs = [
            make_run(stage, arm, 0.1 + 0.1 * len(arm), params={"lam": lam}, data={"differences": [vile]})
            for stage, arm, lam in (("search", "A", 1), ("search", "A", 2), ("final", "A", 1), ("final", vile, 3))
        ]
        runs.append(make_run("search", "A", 0.1, status="failed", error=vile))
        others = [{"name": "other" + vile, "why": vile, "published": {"x": {"ndcg@20": 0.9}}}]
        paper = {"question": vile, "published": {"paper": vile, "table": vile, "recall": "open"}}
        published = {"A": {"x": {"ndcg@20": 0.2}}, vile: {}, "never": {}}
        return make_sweep(runs, published, not_run=others, experiment=paper, about={"notes": [vile]})

    return make


@pytest.fixture
def report(sweep, tmp_path):
    files = write_report(tmp_path, sweep(VILE[0]))
    return (tmp_path / "report.html").read_text(encoding="utf-8"), files


def test_names_from_files_are_text_and_never_markup(report):
    text, _ = report
    page = Reader(text)
    assert page.wrong == [] and page.open == []
    assert [tag for tag, _ in page.tags].count("script") == 1
    assert "alert" not in text[text.rindex("<script>") :]
    assert VILE[0] in [cells[0] for cells in page.rows]
    assert all(not name.startswith("on") for _, attributes in page.tags for name in attributes)


def test_nothing_is_asked_of_a_network(report):
    text, _ = report
    page = Reader(text)
    assert not {"link", "iframe", "object", "embed", "base", "img", "style:import"} & {tag for tag, _ in page.tags}
    addresses = [
        value for _, attributes in page.tags for name, value in attributes.items() if name in ("src", "href", "xlink:href")
    ]
    assert addresses and all(address.startswith("#") for address in addresses)
    outside = re.sub(r'xmlns(:\w+)?="[^"]*"', "", text).split("<script>")[0]
    assert not re.search(r"https?:|//[a-z]|url\((?!#)|@import", outside)
    policy = next(attributes["content"] for tag, attributes in page.tags if attributes.get("http-equiv"))
    assert policy.startswith("default-src 'none'")


def test_the_first_table_has_a_line_a_row_and_marks_the_best(report):
    text, files = report
    first = Reader(text.split("<table>")[1].split("</table>")[0])
    header, *lines = first.rows
    assert header[:2] == ["model", "ndcg@20"]
    assert [line[1] for line in lines] == ["0.2000", f"{0.1 + 0.1 * len(VILE[0]):.4f}", "not run", "not run"]
    assert [tag for tag, _ in first.tags if tag in "bu"] == ["u", "b"]
    assert [attributes.get("class") for tag, attributes in first.tags if tag == "tr"] == [None, None, None, "quiet", "quiet"]
    # Each figure is drawn in the page, and a picture beside report.md.
    assert text.count("<figure>") == sum(path.suffix == ".png" for path in files) == 3


def test_every_kind_of_block_and_cell_has_its_markup():
    body = [
        [Best("2"), Second("1"), Link("a", "a/report"), State("not distinguishable at 0.05")],
        ["< 0.001", "not run", "b", ""],
        ["3", "4", "5", "z"],
    ]
    grid = Grid(["w", "x", "y", "z"], body, "caption", frozenset({1}), total=True)
    blocks = (Text("plain `code`"), Items(("one", "two")), Code("{}"), FIGURE, grid)
    text = html(Page("t", ("lead",), (Section("s", blocks),), (("fact", "1 of 2"),)))
    page = Reader(text)
    assert page.wrong == [] and page.open == []
    for part in (
        "<b>2</b>", "<u>1</u>", '<a href="a/report.html">a</a>',
        '<span class="state not-distinguishable">not distinguishable at 0.05</span>',
        "plain <code>code</code>", "<li>two</li>", "<dt>fact</dt><dd>1 of 2</dd>", "<h3>caption</h3>", "&lt; 0.001",
        "<title>two</title>", "<figcaption>A caption</figcaption>",
    ):  # fmt: skip
        assert part in text, part
    assert text.index("<tfoot>") > text.index("&lt; 0.001")
    numeric = [attributes.get("class") for tag, attributes in page.tags if tag == "th" and attributes["scope"] == "col"]
    assert numeric == ["number", "number", None, None]


@pytest.mark.parametrize("vile", VILE[1:])
@pytest.mark.parametrize(
    "around", ["{}", "x `a` {} `b`", "```{}`", "\\`{}`", "`a\n{}\nb`", "``a`{}`", "    {}", "a | {} | b", "\\{}"]
)
def test_a_tag_is_inert_in_every_place_of_a_page_in_markdown(vile, around):
    text = around.format(vile)
    body = [[Best(text), Second(text), Link(text, text), text]]
    blocks = (Text(text), Items((text,)), Grid([text] * 4, body, text), Code(f"# {text}\n```\n{text}"))
    page = rendered(markdown(Page(text, (text,), (Section(text, blocks),), (), (text, text))))
    assert page.foreign == []
    assert page.text.count(vile) > 8


@pytest.mark.parametrize(
    "text", ["a < b & c > d", "x<1, y <= 2", "R&D; p & q", "&lt;b&gt;", "a <b> c", "`a<b>` and `&lt;`", "\\<b>"]
)
def test_ordinary_text_keeps_its_look(text):
    assert rendered(without_tags(text)).text.strip() == text.replace("`", "")


@pytest.mark.parametrize("vile", VILE[1:3])
def test_what_an_experiment_says_is_inert_in_its_report_and_in_the_note_of_mlflow(vile, sweep, tmp_path):
    stored = sweep(vile)
    write_report(tmp_path, stored)
    page = rendered((tmp_path / "report.md").read_text(encoding="utf-8"))
    assert page.foreign == [] and page.text.count(vile) > 8
    shown = rendered(note(stored.about.experiment.question, sweep_table(stored)))
    assert shown.foreign == [] and shown.text.count(vile) > 2


def test_pages_of_a_site_are_written_in_its_forms_with_pictures_beside_markdown(tmp_path):
    page = Page("Title", (), (Section("", (Grid(["to"], [[Link("b", "example-b")]]), FIGURE)),))
    site = Site(tmp_path, ("html", "md"))
    site.write("example-a", page)
    assert [path.name for path in site.files] == ["example-a.html", "example-a.md", "drawn.png"]
    assert '<a href="example-b.html">b</a>' in site.files[0].read_text()
    assert "![A caption](drawn.png)" in site.files[1].read_text()
    site.write("again", page, pictures=False)
    assert [path.name for path in site.files[3:]] == ["again.html", "again.md"]
