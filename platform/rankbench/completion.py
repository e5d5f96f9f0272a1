"""Answers to a shell that completes a word of the command line, fast: nothing but an index file and names of files is read.

The shell asks by environment variables, in the protocol of the scripts that typer writes. Typer itself would answer, too, but
builds all commands first, which takes a third of a second. The index has the commands, methods and parameters; it is
written by `rankbench completion`, and again in the background if the code has changed since (`cli/completion.py`).
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

VARIABLE = "_RANKBENCH_COMPLETE"  # complete_SHELL
REFRESH_AFTER = 60.0  # seconds after which an index that is being written counts as lost
BREAKS = "=:"  # characters at which bash begins a new word
PACKAGE = Path(__file__).parent

Candidate = tuple[str, str]  # a word, and what it means
Index = Mapping[str, Any]


def answer(asked: Mapping[str, str]) -> int:
    """Print the words that may follow, in the form that the shell expects. Returns the exit code. An error prints nothing,
    because its message would stand in the middle of what the user types.
    """
    shell = asked[VARIABLE].removeprefix("complete_")
    words, prefix = _words_of_bash(asked) if shell == "bash" else _words(asked.get("_TYPER_COMPLETE_ARGS", ""))
    try:
        index = read_index()
        found = candidates(index, words[:-1], words[-1]) if index else []
    except (OSError, ValueError, KeyError, TypeError):
        found = []
    if shell == "fish" and asked.get("_TYPER_COMPLETE_FISH_ACTION") == "is-args":
        return 0 if found else 1
    if text := _FORMATS.get(shell, _plain)(found, prefix):
        print(text)
    return 0


def index_file() -> Path:
    """The file of the index, in the cache folder."""
    from platformdirs import user_cache_dir

    return Path(os.environ.get("RANKBENCH_DATA") or user_cache_dir("rankbench")) / "completion.json"


def key() -> list[Any]:
    """What the index depends on: the source files and the plug-ins of the user."""
    times = [path.stat().st_mtime_ns for path in PACKAGE.rglob("*.py")]
    return [str(PACKAGE), len(times), max(times), os.environ.get("RANKBENCH_PLUGINS", "")]


def read_index() -> Index | None:
    """The index, even if it is out of date; None if there is none. If it is not current, it is written in the background."""
    path = index_file()
    try:
        index: Index | None = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        index = None
    if index is None or index.get("key") != key():
        _refresh(path)
    return index


def _refresh(path: Path) -> None:
    begun = path.with_suffix(".begun")
    if begun.exists() and time.time() - begun.stat().st_mtime < REFRESH_AFTER:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    begun.touch()
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    command = [sys.executable, "-P", "-m", "rankbench", "completion", "--refresh"]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.Popen(command, env=environment, start_new_session=True, **quiet)  # type: ignore[call-overload]


def candidates(index: Index, words: Sequence[str], incomplete: str) -> list[Candidate]:
    """The words that may stand in place of `incomplete`, after `words`, each with its meaning."""
    path, rest = _command(index, words)
    if path is None:
        return _starting(incomplete, [(name, about["help"]) for name, about in index["commands"].items() if " " not in name])
    # `sweep FILE` is short for `sweep run FILE`.
    about = index["commands"].get(f"{path} run") or index["commands"][path]
    subcommands = [(name.split()[1], each["help"]) for name, each in index["commands"].items() if name.startswith(f"{path} ")]
    positional: list[str] = []
    given: set[str] = set()
    takes_value: str | None = None
    for word in rest:
        if takes_value is not None:
            takes_value = None
        elif word.startswith("-"):
            option = about["options"].get(word)
            given.add(word)
            takes_value = option["kind"] if option and option["value"] else None
        else:
            positional.append(word)
    if takes_value is not None:
        return _values(takes_value, index, positional, incomplete)
    if incomplete.startswith("-"):
        name, sign, value = incomplete.partition("=")
        if sign:
            return [
                (f"{name}={word}", text) for word, text in _values(about["options"][name]["kind"], index, positional, value)
            ]
        left = [(name, each["help"]) for name, each in about["options"].items() if name not in given or each["several"]]
        return _starting(incomplete, left)
    found = [] if rest else _starting(incomplete, subcommands)
    kinds = about["arguments"]
    if kinds:
        found += _values(kinds[min(len(positional), len(kinds) - 1)], index, positional, incomplete)
    return found


def _command(index: Index, words: Sequence[str]) -> tuple[str | None, list[str]]:
    """The name of the command, with that of its group, and the words after it."""
    for position, word in enumerate(words):
        if word.startswith("-"):
            continue
        rest = [*words[position + 1 :]]
        if word not in index["commands"]:
            return None, []
        if rest and f"{word} {rest[0]}" in index["commands"]:
            return f"{word} {rest[0]}", rest[1:]
        if rest and f"{word} run" in index["commands"]:
            return f"{word} run", rest
        return word, rest
    return None, []


def _values(kind: str, index: Index, positional: Sequence[str], incomplete: str) -> list[Candidate]:
    if "|" in kind:
        return _starting(incomplete, [(word, "") for word in kind.split("|")])
    find = _KINDS.get(kind)
    return find(index, positional, incomplete) if find else []


def _datasets(index: Index, positional: Sequence[str], incomplete: str) -> list[Candidate]:
    return _starting(incomplete, [(name, "") for name in _names("datasets")])


def _methods(index: Index, positional: Sequence[str], incomplete: str) -> list[Candidate]:
    return _starting(incomplete, [(name, each["title"]) for name, each in index["methods"].items()])


def _selected_datasets(index: Index, positional: Sequence[str], incomplete: str) -> list[Candidate]:
    return _in_list(incomplete, [("all", "every dataset"), *((name, "") for name in _names("datasets"))])


def _selected_methods(index: Index, positional: Sequence[str], incomplete: str) -> list[Candidate]:
    families = [(f"family:{name}", text) for name, text in index["families"].items()]
    members = [(name, each["title"]) for name, each in index["methods"].items()]
    return _in_list(incomplete, [("all", "every method"), *families, *members])


def _params(index: Index, positional: Sequence[str], incomplete: str) -> list[Candidate]:
    """Parameters of the method, the second word, that are not given yet; after `name=`, its values."""
    method = index["methods"].get(positional[1]) if len(positional) > 1 else None
    given = {word.partition("=")[0] for word in positional[2:]}
    return _assignments(method["params"] if method else {}, given, incomplete)


def _experiments(index: Index, positional: Sequence[str], incomplete: str) -> list[Candidate]:
    return _starting(incomplete, [(name, "") for name in _names("experiments")])


def _changes(index: Index, positional: Sequence[str], incomplete: str) -> list[Candidate]:
    return _assignments(index["changes"], {word.partition("=")[0] for word in positional[1:]}, incomplete)


def _sweeps(index: Index, positional: Sequence[str], incomplete: str) -> list[Candidate]:
    return _starting(incomplete, [(path.parent.name, "") for path in _results().glob("sweeps/*/sweep.json")])


def _reported(index: Index, positional: Sequence[str], incomplete: str) -> list[Candidate]:
    return _sweeps(index, positional, incomplete) + _experiments(index, positional, incomplete)


def _runs(index: Index, positional: Sequence[str], incomplete: str) -> list[Candidate]:
    paths = [*_results().glob("runs/[!.]*/record.json"), *_results().glob("sweeps/*/records/[!.]*/record.json")]
    return _starting(incomplete, [(path.parent.name, "") for path in paths])


def _metrics(index: Index, positional: Sequence[str], incomplete: str) -> list[Candidate]:
    return _in_list(incomplete, [(name, "") for name in index["metrics"]])


def _studies(index: Index, positional: Sequence[str], incomplete: str) -> list[Candidate]:
    return _starting(incomplete, [(name, "") for name in index["studies"]])


def _tables(index: Index, positional: Sequence[str], incomplete: str) -> list[Candidate]:
    return _starting(incomplete, [(name, "") for name in index.get("tables", []) if name not in positional])


_KINDS: dict[str, Callable[[Index, Sequence[str], str], list[Candidate]]] = {
    "dataset": _datasets,
    "method": _methods,
    "datasets": _selected_datasets,
    "methods": _selected_methods,
    "params": _params,
    "experiment": _experiments,
    "changes": _changes,
    "sweep": _sweeps,
    "report": _reported,
    "run": _runs,
    "metrics": _metrics,
    "study": _studies,
    "table": _tables,
}


def _assignments(params: Mapping[str, Any], given: set[str], incomplete: str) -> list[Candidate]:
    name, sign, value = incomplete.partition("=")
    if not sign:
        return _starting(incomplete, [(f"{each}=", about["help"]) for each, about in params.items() if each not in given])
    values = params.get(name, {}).get("values", [])
    return [(f"{name}={word}", text) for word, text in _starting(value, [(each, "") for each in values])]


def _in_list(incomplete: str, words: Iterable[Candidate]) -> list[Candidate]:
    """Completions of the last word of a comma-separated list; a word to leave out begins with `!`."""
    head, comma, last = incomplete.rpartition(",")
    head += comma
    if last.startswith("!"):
        head, last = f"{head}!", last[1:]
    return [(head + word, text) for word, text in _starting(last, words)]


def _starting(incomplete: str, words: Iterable[Candidate]) -> list[Candidate]:
    return sorted({word: text for word, text in words if word.startswith(incomplete)}.items())


def _names(kind: str) -> list[str]:
    """Names of the files of `kind`, "datasets" or "experiments", in the same folders as `Environment.catalogues`."""
    home = os.environ.get("RANKBENCH_HOME")
    parents = [*([Path(home).expanduser()] if home else []), Path.cwd(), PACKAGE.parents[1], PACKAGE / "catalogue"]
    return [path.stem for parent in parents for path in (parent / kind).glob("*.yaml")]


def _results() -> Path:
    return Path(os.environ.get("RANKBENCH_RESULTS") or "results").expanduser()


def _words_of_bash(asked: Mapping[str, str]) -> tuple[list[str], str]:
    """The words after the program, the last one incomplete, and the part of it that bash regards as an earlier word."""
    position = int(asked["COMP_CWORD"])
    raw = [*asked["COMP_WORDS"].split("\n")[: position + 1], *([""] * position)][: position + 1]
    words: list[str] = []
    begun = False  # whether the next word continues the last one
    for word in raw[1:]:
        if words and word and (word[0] in BREAKS or begun):
            words[-1] += word
            begun = word[-1] in BREAKS
        elif words and begun and not word:
            begun = False
        else:
            words.append(word)
            begun = False
    if not words:
        words = [""]
    last = max(words[-1].rfind(sign) for sign in BREAKS)
    return words, words[-1][: last + 1]


def _words(line: str) -> tuple[list[str], str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters = True, ""
    words: list[str] = []
    try:
        words.extend(lexer)
    except ValueError:  # an open quotation mark
        words.append(lexer.token)
    return [*words[1:], *([""] if line.endswith(" ") or len(words) < 2 else [])], ""


def _of_bash(found: list[Candidate], prefix: str) -> str:
    return "\n".join(word.removeprefix(prefix) for word, _ in found)


def _of_zsh(found: list[Candidate], prefix: str) -> str:
    if not found:
        return "_files"

    def quoted(text: str) -> str:
        for letter, instead in (("\\", "\\\\"), ('"', '\\"'), ("'", "''"), ("$", "\\$"), ("`", "\\`"), (":", "\\:")):
            text = text.replace(letter, instead)
        return f'"{text}"'

    each = "\n".join(f"{quoted(word)}:{quoted(text)}" if text else quoted(word) for word, text in found)
    return f"_arguments '*: :(({each}))'"


def _of_fish(found: list[Candidate], prefix: str) -> str:
    return "\n".join(f"{word}\t{' '.join(text.split())}" if text else word for word, text in found)


def _plain(found: list[Candidate], prefix: str) -> str:
    return "\n".join(word for word, _ in found)


_FORMATS: dict[str, Callable[[list[Candidate], str], str]] = {"bash": _of_bash, "zsh": _of_zsh, "fish": _of_fish}
