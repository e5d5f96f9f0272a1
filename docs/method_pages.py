"""Write the pages of methods: a page per source file of the package, from its docstring and from what it registers.

A formula stands once, in the docstring of the file, as TeX: `$$...$$`, followed by the name of the method in parentheses if the
file registers several. The references are those of `source`, whose authors, venue and year make the key of references.bib.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from references import keys, references

from rankbench.core.config import assignments
from rankbench.core.environment import Environment
from rankbench.experiment.job import configure
from rankbench.experiment.methods import registered
from rankbench.fitting.method import ClosedForm, Iterative, Method
from rankbench.leaderboard.board import Board
from rankbench.leaderboard.options import ShowOptions
from rankbench.leaderboard.stored import board
from rankbench.models.spec import Encoder
from rankbench.models.spec import registered as encoders
from rankbench.solvers.als.fit import ALSParams
from rankbench.training.autoencoders.multivae import Autoencoder
from rankbench.training.methods import Trained
from rankbench.training.params import TrainingParams

LEADERBOARD = Path(__file__).parents[1] / "experiments" / "leaderboard"
COLUMNS = "| parameter | default | range searched | meaning |\n|---|---|---|---|"
SECTIONS = {
    "Closed forms": "Invert one item-item matrix. Settings with equal matrices share the inverse.",
    "Alternating least squares": "Solve for user and item factors in turn, in blocks for threads or a Ray cluster. Each "
    "method also takes the [parameters of alternating least squares](#parameters-of-alternating-least-squares).",
    "Autoencoders": "Encode the history of a user and decode scores of all items, trained by gradient steps over users.",
    "Other solvers": "",
    "Losses trained by gradient steps": "Each loss also takes the [parameters of training](#parameters-of-training) and of its "
    "encoder.",
    "Encoders": "`model` chooses the encoder. Each loss can be trained on each encoder that scores by a product of vectors. "
    "`neumf` scores pairs by a network, and refuses losses that need cosines, distances, vectors or the scores of all items. A "
    "loss on cosines that has a meaning for other scores is trained on it with `similarity=dot`.",
}
SHARED = {
    "Alternating least squares": "Also takes the [parameters of alternating least squares]"
    "(../methods.md#parameters-of-alternating-least-squares).",
    "Losses trained by gradient steps": "Also takes the [parameters of training](../methods.md#parameters-of-training) and "
    "those of its [encoder](../methods.md#encoders).",
}


class Page(NamedTuple):
    """The page of a source file: its module, and the methods or encoders that it registers."""

    module: str
    entries: tuple[Method | Encoder, ...]

    @property
    def name(self) -> str:
        """For example losses-sl, of rankbench.losses.sl."""
        return "-".join(self.module.split(".")[-2:])

    @property
    def section(self) -> str:
        return section_of(self.entries[0]) if self.entries else "Losses trained by gradient steps"

    @property
    def docstring(self) -> str:
        return inspect.getdoc(sys.modules[self.module]) or ""

    @property
    def formulas(self) -> dict[str, str]:
        """The TeX of each method of the file, by its name."""
        found = re.findall(r"\$\$(.+?)\$\$(?: \(([\w-]+)\))?", self.docstring, re.DOTALL)
        alone = self.entries[0].name if len(self.entries) == 1 else ""
        return {name or alone: tex.strip() for tex, name in reversed(found)}


def section_of(method: Method | Encoder) -> str:
    match method:
        case Encoder():
            return "Encoders"
        case Trained():
            return "Losses trained by gradient steps"
        case Autoencoder():
            return "Autoencoders"
        case ClosedForm():
            return "Closed forms"
        case Iterative(quadratic_loss=loss) if loss:
            return "Alternating least squares"
    return "Other solvers"


@cache
def pages() -> tuple[Page, ...]:
    """All pages, in the order of their sections. The thresholds that several losses learn have a page of their own."""
    found: dict[str, list[Method | Encoder]] = {"rankbench.losses.quantile": []}
    for registry in (registered(), encoders()):
        for each in registry:
            found.setdefault(registry.origin(each.name), []).append(each)
    order = [*SECTIONS]
    every_page = [Page(module, tuple(entries)) for module, entries in found.items() if module in sys.modules]  # not plugins
    return tuple(sorted(every_page, key=lambda page: (order.index(page.section), page.name)))


def overview() -> str:
    """Return a table of all methods, section by section, then the parameters that methods of a section share."""
    parts = []
    for section, about in SECTIONS.items():
        rows = [
            f"| [`{each.name}`](#method-{each.name}) | {_cell(each.title)} | {_cell(each.source)} | {_place(each)} |"
            for page in pages()
            for each in page.entries
            if section_of(each) == section
        ]
        parts += [f"## {section}", about, "\n".join(["| name | what it is | source | leaderboard |\n|---|---|---|---|", *rows])]
    parts += ["## Parameters of alternating least squares", _table(dataclasses.fields(ALSParams))]
    parts += ["## Parameters of training", _table(dataclasses.fields(TrainingParams))]
    parts += ["\n".join(["```{toctree}\n:hidden:\n", *(f"methods/{page.name}" for page in pages()), "```"])]
    return "\n\n".join(part for part in parts if part)


def bibliography() -> str:
    """Return the list of all papers by their keys, each with the methods that name it."""
    named = {key: [] for key in references()}
    for each in (each for page in pages() for each in page.entries):
        for key in keys(each.source):
            named[key].append(f"[`{each.name}`](#method-{each.name})")
    return "\n\n".join(f"**{key}**: {text} {' '.join(named[key])}" for key, text in references().items())


def write(folder: Path) -> None:
    """Write a Markdown file per page, and remove those of pages that are no more: Sphinx would show them as well."""
    folder.mkdir(exist_ok=True)
    for stale in {*folder.glob("*.md")} - {folder / f"{page.name}.md" for page in pages()}:
        stale.unlink()
    for page in pages():
        (folder / f"{page.name}.md").write_text(markdown(page), encoding="utf-8")


def markdown(page: Page) -> str:
    """Return the page: its docstring, and for each method the paper, the place on the leaderboard, commands and parameters."""
    text, names = page.docstring, {each.name for each in pages()}
    title = re.split(r"\. | \(|:|, (?=[a-z])", " ".join(text.split()))[0]
    text = re.sub(r"\n(Differs from the papers?)\b", r"\n\n**\1**", text)
    text = text.replace("\npaper ", "\n\n**From the paper to the code**: ")
    text = re.sub(r"^(\*\*From (?:.+\n)*?.+\.)$", r"\1\n\n", text, flags=re.MULTILINE)  # what follows is another paragraph
    for file in re.findall(r"`(\w+)\.py`", text):
        if (other := f"{page.name.partition('-')[0]}-{file}") in names:
            text = text.replace(f"`{file}.py`", f"[`{file}.py`]({other}.md)")
    sections = (part for each in page.entries for part in _section(each, page) if part)
    return "\n\n".join([f"# {_cell(title)}", text, *sections]) + "\n"


def _section(each: Method | Encoder, page: Page) -> Iterator[str]:
    yield f"(method-{each.name})=\n## {each.name}"
    if len(page.entries) > 1:
        yield f"{_cell(each.title)}." + (f" Formula: {{eq}}`{each.name}`." if each.name in page.formulas else "")
    yield from (f"> {references()[key]}" for key in keys(each.source))
    if isinstance(each, Method) and each.reason:
        yield f"{each.reason[0].upper()}{each.reason[1:]}."
    place, source = _place(each, "../"), f"`{'/'.join(page.module.split('.')[1:])}.py`"
    yield f"Source: {_cell(each.source)}; {source}." + (f" Leaderboard: {place}." if place else "")
    yield "```\n" + "\n".join(commands(each)) + "\n```"
    yield _table(_own(each))
    yield SHARED.get(section_of(each), "")


def commands(each: Method | Encoder) -> list[str]:
    """Return commands for a method: a fit with its first parameters at their defaults, and a search in its ranges."""
    words = [each.paper_loss or "bpr", f"model={each.name}"] if isinstance(each, Encoder) else [each.name]
    own = [field for field in _own(each) if field.name in configure(words[0], assignments(words[1:])).used]
    given = [f"{field.name}={field.default}" for field in own[:2] if field.default not in (dataclasses.MISSING, None)]
    return [
        " ".join(["rankbench run movielens-100k", *words, *given]),
        " ".join(["rankbench sweep --datasets movielens-100k --methods", *words]),
    ]


@cache
def _board() -> Board | None:
    return board(ShowOptions(store=LEADERBOARD), Environment.from_env()) if LEADERBOARD.is_dir() else None


def _place(each: Method | Encoder, up: str = "") -> str:
    """Return the place on the committed leaderboard, with a link to the page of the method there; empty if it has none."""
    for standing in _board().standings if _board() else ():
        if standing.method == each.name:
            place = f'<a href="{up}leaderboard/method-{each.name}.html">{standing.place} of {len(_board().standings)}</a>'
            return f"{place}, mean rank {standing.mean_rank:.1f}, {_board().allowed} per method and dataset" if up else place
    return ""


def _own(each: Method | Encoder) -> list[dataclasses.Field]:
    """Return the parameters without those that methods of its section share."""
    fields = dataclasses.fields(each.params) if isinstance(each, Encoder) else [f for f in each.fields() if f.name in each.own]
    shared = (
        {field.name: field.default for field in dataclasses.fields(ALSParams)} if issubclass(each.params, ALSParams) else {}
    )
    return [field for field in fields if shared.get(field.name, ...) != field.default]


def _table(fields: Iterable[dataclasses.Field]) -> str:
    rows = [
        f"| `{field.name}` | {_default(field)} | {_cell(field.metadata.get('search', ''))} | "
        f"{_cell(field.metadata.get('help', ''))} |"
        for field in fields
    ]
    return "\n".join([COLUMNS, *rows]) if rows else "No parameters of its own."


def _default(field: dataclasses.Field) -> str:
    if field.default is dataclasses.MISSING:
        return "required"
    return "none" if field.default is None else f"`{field.default}`"


def _cell(text: str) -> str:
    """Escape text so that Markdown shows it unchanged."""
    for sign in "\\|*_<>[]`$":
        text = text.replace(sign, f"\\{sign}")
    return text
