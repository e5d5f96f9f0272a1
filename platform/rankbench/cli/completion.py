"""rankbench completion: completion of commands, datasets, methods and parameters in a shell."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankbench.cli.console import err
from rankbench.cli.report import FORMATS
from rankbench.core.params import Choice, Fixed

if TYPE_CHECKING:
    from rankbench.fitting.method import Method

EXAMPLES = """Examples:
  source <(rankbench completion bash)                                    in this shell; in ~/.bashrc, in every one
  rankbench completion zsh > ~/.zfunc/_rankbench                         with ~/.zfunc in fpath, before compinit
  rankbench completion fish > ~/.config/fish/completions/rankbench.fish
"""

SHELLS = ("bash", "zsh", "fish")
_NO_SPACE = '    [[ "${COMPREPLY[*]}" == *= ]] && compopt -o nospace\n'  # a value follows `tau=` at once
# What a parameter of a command is completed with: the name of a kind in rankbench/completion.py, or the words themselves.
_KINDS = {
    "dataset": "dataset", "datasets": "dataset", "method": "method", "params": "params", "experiment": "experiment",
    "changes": "changes", "runs": "run", "baseline": "run", "metric": "metrics", "metrics": "metrics",
    "shell": "|".join(SHELLS), "dtype": "float32|float64", "device": "cpu|cuda", "format": "|".join(FORMATS),
}  # fmt: skip
_OWN_KINDS = {
    ("methods", "name"): "methods",
    ("study", "name"): "study",
    ("reproduce run", "tables"): "table",
    ("reproduce status", "tables"): "table",
    ("report", "what"): "report",
    ("sweep status", "name"): "sweep",
    ("sweep stop", "name"): "sweep",
    ("sweep run", "datasets"): "datasets",
    ("sweep run", "methods"): "methods",
}


def completion(
    shell: Annotated[str | None, typer.Argument(help=", ".join(SHELLS))] = None,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Write the index of names again, without those of plugins, and print nothing.")
    ] = False,
) -> None:
    """Print the script that completes commands, datasets, methods and parameters in bash, zsh or fish."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    from rankbench import completion as answers
    from rankbench.core.errors import require
    from rankbench.core.files import write_json
    from rankbench.core.plugins import without_configured

    if not refresh:
        require(shell in SHELLS, f"completion: give a shell, one of {', '.join(SHELLS)}" + (f", not {shell}" if shell else ""))
        with err.status("collecting names"):
            write_json(answers.index_file(), index())
        script = get_completion_script(prog_name="rankbench", complete_var=answers.VARIABLE, shell=str(shell))
        # With the words in lines, as bash has them, a quoted word with a space is one word.
        print(script.replace("    return 0\n", f"{_NO_SPACE}    return 0\n") if shell == "bash" else script)
        return
    with without_configured():  # nobody has asked to run them: this process is started in the background
        write_json(answers.index_file(), index())


def index() -> dict[str, Any]:
    """Commands with their options, methods with their parameters, and names of metrics, studies and keys of experiments."""
    from rankbench import completion as answers
    from rankbench.api.reproduce import table_words
    from rankbench.core.environment import Environment
    from rankbench.evaluation.metrics import DEFAULT_METRICS
    from rankbench.experiment.methods import registered
    from rankbench.fitting.families import FAMILIES
    from rankbench.studies.spec import registered as studies
    from rankbench.sweeps.selection import families

    methods = {each.name: {"title": each.title, "params": _params(each)} for each in registered()}
    return {
        "key": answers.key(),
        "commands": _commands(),
        "methods": methods,
        "families": {name: FAMILIES.get(name, "") for name in families()},
        "metrics": [*DEFAULT_METRICS, *(f"{name}@20" for name in DEFAULT_METRICS)],
        "changes": _keys(),
        "studies": studies().names(),
        "tables": table_words(Environment.from_env()),
    }


def _commands() -> dict[str, Any]:
    from typer.main import get_command

    from rankbench.cli import app

    root: Any = get_command(app)
    result = {}
    for name, command in root.commands.items():
        result[name] = _about(name, command)
        for own_name, each in getattr(command, "commands", {}).items():
            result[f"{name} {own_name}"] = _about(f"{name} {own_name}", each)
    return result


def _about(path: str, command: Any) -> dict[str, Any]:
    options: dict[str, Any] = {"--help": {"help": "Show this message and exit.", "value": False, "kind": "", "several": False}}
    arguments = []
    for param in command.params:
        kind = _OWN_KINDS.get((path, param.name)) or _KINDS.get(param.name, "")
        if param.param_type_name == "argument":
            arguments.append(kind)
            continue
        value = not getattr(param, "is_flag", False)
        about = {"help": param.help or "", "value": value, "kind": kind, "several": bool(param.multiple)}
        options |= {name: about for name in (*param.opts, *param.secondary_opts) if name.startswith("--")}
    return {"help": (command.get_short_help_str(100)), "options": options, "arguments": arguments}


def _params(method: Method) -> dict[str, Any]:
    return {
        field.name: {"help": field.metadata.get("help", ""), "values": _choices(str(field.type), field)}
        for field in method.fields()
    }


def _choices(annotation: str, field: Any) -> list[str]:
    """Values to suggest: those that the type allows, or those that the papers tried, and the default."""
    found: list[Any] = [] if field.default is None else [field.default]
    if literal := re.search(r"Literal\[(.*?)\]", annotation):
        found += ast.literal_eval(f"({literal[1]},)")
    elif annotation == "bool":
        found += [True, False]
    elif isinstance(values := field.metadata.get("values"), Choice):
        found += values.values
    elif isinstance(values, Fixed) and " " not in str(values):  # no sentence
        found.append(values.value)
    text = [str(each).lower() if isinstance(each, bool) else str(each) for each in found]
    return list(dict.fromkeys(text))


def _keys() -> dict[str, Any]:
    """Dotted keys of an experiment file that are often changed, with the values that their types list."""
    from typing import Literal, get_args, get_origin, get_type_hints

    from rankbench.schema.experiment import ExperimentSpec

    result: dict[str, Any] = {}

    def values(annotation: Any) -> list[str]:
        if get_origin(annotation) is Literal:
            return [str(each) for each in get_args(annotation)]
        return [word for part in get_args(annotation) for word in values(part)]

    def collect(model: Any, prefix: str) -> None:
        hints = get_type_hints(model)
        for name, field in model.model_fields.items():
            if hasattr(hints[name], "model_fields"):
                collect(hints[name], f"{prefix}{name}.")
            else:
                result[prefix + name] = {"help": field.description or "", "values": values(hints[name])}

    collect(ExperimentSpec, "")
    return result
