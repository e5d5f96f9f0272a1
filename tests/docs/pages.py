"""The parts of the project's pages: links, headings, fenced blocks and code spans."""

import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[2]
GENERATED = {"_site", "methods"}  # folders that the build of the site writes
PAGES = sorted(
    [*ROOT.glob("*.md"), *(path for path in (ROOT / "docs").rglob("*.md") if not GENERATED & {*path.parts})],
    key=lambda path: path.relative_to(ROOT).as_posix(),
)
WRITTEN = [path for path in PAGES if path.name not in ("report.md", "table.md")]  # the others are outputs of a command


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and the line it begins on."""

    language: str
    text: str
    line: int


def pictures() -> list[Path]:
    """All pictures under docs/ except those of a built site."""
    paths = [path for kind in ("png", "svg") for path in (ROOT / "docs").rglob(f"*.{kind}")]
    return [path for path in paths if "_site" not in path.parts]


@cache
def tokens(path: Path) -> list:
    return MarkdownIt("commonmark").enable("table").parse(path.read_text(encoding="utf-8"))


def inline(path: Path) -> list:
    return [child for token in tokens(path) for child in token.children or []]


def links(path: Path) -> list[str]:
    """Targets of links and pictures."""
    targets = [token.attrGet("href") or token.attrGet("src") for token in inline(path)]
    return [target for target in targets if target]


def anchors(path: Path) -> set[str]:
    """Anchors of the headings, as code hosts and the site make them."""
    seen: Counter[str] = Counter()
    result = set()
    for heading, content in pairwise(tokens(path)):
        if heading.type == "heading_open":
            text = "".join(child.content for child in content.children)
            slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            result.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
            seen[slug] += 1
    return result


def blocks(path: Path, *languages: str) -> list[Block]:
    fences = [token for token in tokens(path) if token.type == "fence"]
    every_block = [Block((token.info.split() or [""])[0], token.content, token.map[0] + 1) for token in fences]
    return [block for block in every_block if block.language in languages]


def spans(path: Path) -> list[str]:
    """Code spans within the text."""
    return [token.content for token in inline(path) if token.type == "code_inline"]


def saved_files(path: Path) -> dict[str, str]:
    """The files that a page tells its reader to save: name → the block that follows."""
    text = path.read_text(encoding="utf-8")
    return dict(re.findall(r"[Ss]ave (?:this|it) as `([\w.]+)`.*?```\w+\n(.*?)```", text, flags=re.DOTALL))
