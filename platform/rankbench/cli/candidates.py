"""Words that may stand in an argument or an option, for the completion of a shell: each with what it means.

Typer calls these functions and leaves out what does not begin as the incomplete word does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

import typer

from rankbench.core.environment import Environment

Candidates = list[tuple[str, str]]
Values = Mapping[str, tuple[str, Sequence[str]]]  # what each name means, and values that it may have


def one_of(*words: str) -> Callable[[], list[str]]:
    return lambda: [*words]


dtypes, devices = one_of("float32", "float64"), one_of("cpu", "cuda")


def datasets() -> list[str]:
    from rankbench.data.cards import card_names

    return [*card_names(Environment.from_env())]


def methods() -> Candidates:
    from rankbench.experiment.method_facts import method_facts

    return [(each.name, each.title) for each in method_facts().values()]


def selected_datasets(incomplete: str) -> Candidates:
    return _in_list(incomplete, [("all", "every dataset"), *((name, "") for name in datasets())])


def selected_methods(incomplete: str) -> Candidates:
    from rankbench.experiment.method_facts import families_of, method_facts
    from rankbench.fitting.families import FAMILIES

    by_family = [(f"family:{name}", FAMILIES.get(name, "")) for name in families_of(method_facts().values())]
    return _in_list(incomplete, [("all", "every method"), *by_family, *methods()])


def params(ctx: typer.Context, incomplete: str) -> Candidates:
    """Parameters of the command's method that are not given yet; after `name=`, its values."""
    from rankbench.experiment.method_facts import method_facts

    values = {each.name: (each.help, each.values) for each in method_facts()[ctx.params["method"]].params}
    return _assignments(values, ctx.params.get("params"), incomplete)


def experiments() -> list[str]:
    from rankbench.schema.find import experiment_files

    return [path.stem for path in experiment_files(Environment.from_env())]


def changes(ctx: typer.Context, incomplete: str) -> Candidates:
    """Keys of an experiment file that are not given yet; after `key=`, the values that its type lists."""
    from rankbench.core.config import keys_of
    from rankbench.schema.experiment import ExperimentSpec

    values = {key: (field.description or "", _listed(field.annotation)) for key, field in keys_of(ExperimentSpec)}
    return _assignments(values, ctx.params.get("changes"), incomplete)


def sweeps() -> list[str]:
    return [path.parent.name for path in Environment.from_env().results.glob("sweeps/*/sweep.json")]


def sweeps_and_experiments() -> list[str]:
    return sweeps() + experiments()


def runs() -> list[str]:
    return [path.parent.name for path in Environment.from_env().record_files()]


def metrics(incomplete: str) -> Candidates:
    from rankbench.evaluation.metrics import DEFAULT_METRICS

    return _in_list(incomplete, [(name, "") for name in (*DEFAULT_METRICS, *(f"{name}@20" for name in DEFAULT_METRICS))])


def studies() -> list[str]:
    from rankbench.studies.spec import registered

    return [*registered().names()]


def tables(ctx: typer.Context) -> list[str]:
    from rankbench.reproduce.agenda import table_words

    return [name for name in table_words(Environment.from_env()) if name not in (ctx.params.get("tables") or ())]


def _in_list(incomplete: str, words: Iterable[tuple[str, str]]) -> Candidates:
    """Complete the last word of a comma-separated list; a word to leave out begins with `!`."""
    head = re.match(r"(.*,)?!?", incomplete)[0]  # type: ignore[index]  # matches any text
    return [(head + word, text) for word, text in words]


def _assignments(values: Values, given: Iterable[str] | None, incomplete: str) -> Candidates:
    name, sign, _ = incomplete.partition("=")
    if sign:
        return [(f"{name}={word}", "") for word in values[name][1]]
    before = {word.partition("=")[0] for word in given or ()}
    return [(f"{each}=", text) for each, (text, _) in values.items() if each not in before]


def _listed(annotation: Any) -> list[str]:
    if get_origin(annotation) is Literal:
        return [str(each) for each in get_args(annotation)]
    return [word for part in get_args(annotation) for word in _listed(part)]
