"""Text in Markdown: what a file says is read as it is written, and is never a tag."""

from __future__ import annotations

import re

# A span of code, in which Markdown takes nothing for a tag; else what begins a tag or a named character, with the backslashes
# before it, of which the last one would make the `&` of `&lt;` a letter.
_MARKUP = re.compile(r"(?<![\\`])(`+)(?!`).+?(?<!`)\1(?!`)|(\\*)(<(?=[A-Za-z/!?])|&(?=#?\w+;))")
_NAMED = {"<": "&lt;", "&": "&amp;"}


def without_tags(text: str) -> str:
    """Return text for a page in Markdown that shows `<b>` and `&lt;` as such; backticks stay code, and `a < b & c` as it is."""
    return _MARKUP.sub(lambda found: 2 * found[2] + _NAMED[found[3]] if found[3] else found[0], text)
