"""The page in Markdown and MLflow's note: whatever a file says is read as text by what renders them, and as it was written."""

from html.parser import HTMLParser

import pytest
from markdown_it import MarkdownIt
from stored import typed

from rankbench.core.markdown import without_tags
from rankbench.reports.markdown import markdown
from rankbench.reports.page import Best, Code, Grid, Items, Link, Page, Picture, Second, Section, Text
from rankbench.reports.report import note, sweep_table, write_report

VILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "</td><svg/onload=alert(1)>",
    "<!-- x",
    "<?x",
    "<a href='javascript:1'>",
)
OURS = {
    "h1",
    "h2",
    "h3",
    "p",
    "strong",
    "u",
    "ul",
    "li",
    "code",
    "pre",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "a",
    "img",
}


class Rendered(HTMLParser):
    """The tags with their attributes, and the text, of what a renderer that leaves raw HTML alone makes of Markdown."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(MarkdownIt("commonmark", {"html": True}).enable("table").render(text))
        self.close()
        assert "<!--" not in self.rawdata

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text += data

    def handle_comment(self, data):
        raise AssertionError(data)

    handle_decl = handle_pi = unknown_decl = handle_comment

    @property
    def foreign(self):
        return [
            (tag, about) for tag, about in self.tags
            if tag not in OURS or {*about} - {"href", "src", "alt", "class"} or about.get("src", "a.png") != "a.png"
        ]  # fmt: skip


@pytest.mark.parametrize("vile", VILE)
@pytest.mark.parametrize(
    "around", ["{}", "x `a` {} `b`", "```{}`", "\\`{}`", "`a\n{}\nb`", "``a`{}`", "    {}", "a | {} | b", "\\{}"]
)
def test_a_tag_is_inert_in_every_place_of_a_page(vile, around):
    text = around.format(vile)
    body = [[Best(text), Second(text), Link(text, text), text]]
    blocks = (Text(text), Items((text,)), Grid([text] * 4, body, text), Code(f"# {text}\n```\n{text}"))
    page = Rendered(markdown(Page(text, (text,), (Section(text, blocks),), (), (text, text))))
    assert page.foreign == []
    assert page.text.count(vile) > 8


def test_a_caption_is_inert(tmp_path):
    (tmp_path / "a.png").write_bytes(b"")
    page = Rendered(markdown(Page("t", (), (Section("s", (Picture(tmp_path / "a.png", VILE[1]),)),))))
    assert page.foreign == [] and [about["alt"] for tag, about in page.tags if tag == "img"] == [VILE[1]]


@pytest.mark.parametrize(
    "text", ["a < b & c > d", "x<1, y <= 2", "R&D; p & q", "&lt;b&gt;", "a <b> c", "`a<b>` and `&lt;`", "\\<b>"]
)
def test_ordinary_text_keeps_its_look(text):
    assert Rendered(without_tags(text)).text.strip() == text.replace("`", "")


@pytest.mark.parametrize("vile", VILE[:2])
def test_what_an_experiment_says_is_inert_in_its_report_and_in_the_note(vile, make_run, make_sweep, tmp_path):
    runs = [make_run("final", arm, 0.1 + 0.1 * len(arm), data={"differences": [vile]}) for arm in ("A", vile)]
    runs.append(make_run("search", "A", 0.1, status="failed", error=vile))
    others = [{"name": "other" + vile, "why": vile, "published": {"x": {"ndcg@20": 0.9}}}]
    about, *rest = make_sweep(runs, {"A": {"x": {"ndcg@20": 0.2}}, vile: {}}, not_run=others)
    about["experiment"] |= {"question": vile, "published": {"paper": vile, "table": vile, "recall": "open"}}
    about["notes"] = [vile]
    arguments = typed(about, *rest)
    write_report(tmp_path, *arguments)
    page = Rendered((tmp_path / "report.md").read_text(encoding="utf-8").replace(".png", "").replace("](", "](a.png#"))
    assert [each for each in page.foreign if not each[1].get("src", "").startswith("a.png#")] == []
    assert page.text.count(vile) > 8
    shown = Rendered(note(about["experiment"]["question"], sweep_table(*arguments)))
    assert shown.foreign == [] and shown.text.count(vile) > 2
