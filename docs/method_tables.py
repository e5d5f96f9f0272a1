"""Write the tables of the methods page from the registry: name, title, source, and parameters with their help."""

from __future__ import annotations

import dataclasses

from rankbench.experiment.methods import registered
from rankbench.fitting.method import ClosedForm, Iterative, Method
from rankbench.models.spec import registered as encoders
from rankbench.solvers.als.fit import ALSParams
from rankbench.training.autoencoders.multivae import Autoencoder
from rankbench.training.methods import Trained
from rankbench.training.params import TrainingParams

COLUMNS = "| parameter | default | range searched | meaning |\n|---|---|---|---|"
SECTIONS = {
    "Closed forms": "Invert one item-item matrix. Settings with equal matrices share the inverse.",
    "Alternating least squares": "Solve for user and item factors in turn, in blocks for threads or a Ray cluster. Each "
    "method also takes the [parameters of alternating least squares](#parameters-of-alternating-least-squares).",
    "Autoencoders": "Encode the history of a user and decode scores of all items, trained by gradient steps over users.",
    "Other solvers": "",
    "Losses trained by gradient steps": "Each loss also takes the [parameters of training](#parameters-of-training) and of its "
    "[encoder](#parameters-of-encoders).",
}

ENCODERS = (
    "`model` chooses the encoder. Each loss can be trained on each encoder that scores by a product of vectors. `neumf` scores "
    "pairs by a network, and refuses losses that need cosines, distances, vectors or the scores of all items. A loss on "
    "cosines that has a meaning for other scores is trained on it with `similarity=dot`."
)


def section_of(method: Method) -> str:
    match method:
        case Trained():
            return "Losses trained by gradient steps"
        case Autoencoder():
            return "Autoencoders"
        case ClosedForm():
            return "Closed forms"
        case Iterative(quadratic_loss=loss) if loss:
            return "Alternating least squares"
    return "Other solvers"


def markdown() -> str:
    """Return all methods, section by section, then the parameters that methods of a section share."""
    parts = []
    for name, about in SECTIONS.items():
        methods = [method for method in registered() if section_of(method) == name]
        parts += [f"## {name}", about]
        parts += [_section(method) for method in methods]
    parts += ["## Parameters of alternating least squares", _table_of(ALSParams)]
    parts += ["## Parameters of training", _table_of(TrainingParams)]
    parts += ["## Parameters of encoders", ENCODERS]
    parts += [f"### {encoder.name}\n\n{_about(encoder)}\n\n{_table_of(encoder.params)}" for encoder in encoders()]
    return "\n\n".join(part for part in parts if part)


def _section(method: Method) -> str:
    reason = f"{method.reason[0].upper()}{method.reason[1:]}." if method.reason else ""
    table, families = _table(_own(method), method.fields()), f"Families: {', '.join(method.families)}."
    return "\n\n".join(part for part in (f"### {method.name}", _about(method), reason, families, table) if part)


def _own(method: Method) -> tuple[str, ...]:
    """Return the names of the method's parameters without those of all methods of alternating least squares."""
    if not issubclass(method.params, ALSParams):
        return method.own
    shared = {field.name: field.default for field in dataclasses.fields(ALSParams)}
    return tuple(field.name for field in method.fields() if shared.get(field.name, ...) != field.default)


def _about(spec) -> str:
    return f"{_cell(spec.title)} ({_cell(spec.source)})."


def _table_of(params: type) -> str:
    return _table(tuple(field.name for field in dataclasses.fields(params)), dataclasses.fields(params))


def _table(names: tuple[str, ...], among: tuple[dataclasses.Field, ...]) -> str:
    fields = [field for field in among if field.name in names]
    if not fields:
        return "No parameters of its own."
    rows = [
        f"| `{field.name}` | {_default(field)} | {_cell(field.metadata.get('search', ''))} | "
        f"{_cell(field.metadata.get('help', ''))} |"
        for field in fields
    ]
    return "\n".join([COLUMNS, *rows])


def _default(field: dataclasses.Field) -> str:
    if field.default is dataclasses.MISSING:
        return "required"
    return "none" if field.default is None else f"`{field.default}`"


def _cell(text: str) -> str:
    """Escape text so that Markdown shows it unchanged."""
    for sign in "\\|*_<>[]`":
        text = text.replace(sign, f"\\{sign}")
    return text
