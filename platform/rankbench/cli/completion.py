"""rankbench completion: completion of commands, datasets, methods and parameters in a shell.

Typer answers the shell; `candidates.py` has the words of arguments and options.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from typing import Annotated

import typer

from rankbench.cli.candidates import one_of
from rankbench.core.errors import require

EXAMPLES = """Examples:
  source <(rankbench completion bash)                                    in this shell; in ~/.bashrc, in every one
  rankbench completion zsh > ~/.zfunc/_rankbench                         with ~/.zfunc in fpath, before compinit
  rankbench completion fish > ~/.config/fish/completions/rankbench.fish
"""

VARIABLE = "_RANKBENCH_COMPLETE"  # complete_SHELL, set by the script
SHELLS = ("bash", "zsh", "fish")
BREAKS = "=:"  # characters at which bash begins a new word
_NO_SPACE = '    [[ "${COMPREPLY[*]}" == *= ]] && compopt -o nospace\n'  # a value follows `tau=` at once


def completion(
    shell: Annotated[str | None, typer.Argument(help=", ".join(SHELLS), autocompletion=one_of(*SHELLS))] = None,
) -> None:
    """Print the script that completes commands, datasets, methods and parameters in bash, zsh or fish."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    require(shell in SHELLS, f"completion: give a shell, one of {', '.join(SHELLS)}" + (f", not {shell}" if shell else ""))
    script = get_completion_script(prog_name="rankbench", complete_var=VARIABLE, shell=str(shell))
    print(script.replace("    return 0\n", f"{_NO_SPACE}    return 0\n") if shell == "bash" else script)


def answer(app: Callable[..., object]) -> int:
    """Print the words that may follow, as the shell expects them.

    Messages are not shown, because they would stand in the middle of what the user types.
    """
    begun = _join_words_of_bash() if os.environ[VARIABLE] == "complete_bash" else ""
    found, code = io.StringIO(), 0
    with redirect_stdout(found), redirect_stderr(io.StringIO()), suppress(Exception):
        try:
            app(prog_name="rankbench")
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
    for line in found.getvalue().splitlines():
        print(line.removeprefix(begun))
    return code


def _join_words_of_bash() -> str:
    """Join what bash regards as several words, such as `tau`, `=` and `0.1`, in the variables that typer reads.

    Returns the part of the last word that bash regards as earlier words.
    """
    position = int(os.environ["COMP_CWORD"])
    raw = [*os.environ["COMP_WORDS"].split("\n")[: position + 1], *([""] * position)][: position + 1]
    words = raw[:1]
    begun = False  # whether the next word continues the last one
    for word in raw[1:]:
        if len(words) > 1 and (begun or (word and word[0] in BREAKS)):
            words[-1] += word
        else:
            words.append(word)
        begun = word != "" and word[-1] in BREAKS
    os.environ |= {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    return words[-1][: max(words[-1].rfind(sign) for sign in BREAKS) + 1] if len(words) > 1 else ""
