"""Completion as the shells ask for it: by environment variables, through the scripts that the command prints."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rankbench.cli import _main, app
from rankbench.cli.completion import VARIABLE, answer
from rankbench.core import plugins
from rankbench.data.cards import card_names
from rankbench.experiment.methods import registered

from .test_plugins import LOSS

ROOT = Path(__file__).parents[2]


pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def ask(monkeypatch, capsys):
    """Return the function that answers a shell; `words` are those of the line, split as bash splits them."""

    def asked(*words, shell="bash", **more):
        line = {VARIABLE: f"complete_{shell}", "COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
        for name, value in (line | {"_TYPER_COMPLETE_ARGS": " ".join(words)} | more).items():
            monkeypatch.setenv(name, value)
        code = answer(app)
        said = capsys.readouterr()
        assert said.err == ""
        return sorted(said.out.split()) if shell == "bash" else (code, said.out)

    return asked


def test_commands_and_their_subcommands(ask):
    assert {"run", "sweep", "methods", "completion"} <= set(ask("rankbench", ""))
    assert ask("rankbench", "da") == ["data"]
    assert ask("rankbench", "data", "de") == ["describe"]
    assert {"status", "stop"} <= set(ask("rankbench", "sweep", "st"))
    assert ask("rankbench", "unknown", "x") == []


def test_datasets_methods_and_parameters(ask, environment):
    assert ask("rankbench", "run", "") == sorted(card_names(environment))
    assert ask("rankbench", "run", "gowalla", "") == registered().names()
    own = [f"{field.name}=" for field in registered().get("psl").fields()]
    assert ask("rankbench", "run", "gowalla", "psl", "") == sorted(own)
    assert "tau=" not in ask("rankbench", "run", "gowalla", "psl", "tau", "=", "0.1", "")
    assert ask("rankbench", "run", "--seed", "3", "gowalla", "ps") == ["psl"]  # the value of an option is no argument


def test_values_of_a_parameter_begin_where_bash_begins_a_word(ask):
    line = ("rankbench", "run", "gowalla", "psl", "surrogate", "=")
    assert ask(*line) == ask(*line, "") == ["atan", "relu", "tanh"]
    assert ask(*line, "t") == ["tanh"]
    assert ask("rankbench", "run", "gowalla", "bpr", "shared_negatives", "=", "") == ["false", "true"]
    assert ask("rankbench", "run", "gowalla", "bpr", "model", "=", "") == sorted(registered().get("bpr").by_encoder())


def test_options_and_their_values(ask):
    assert ask("rankbench", "run", "gowalla", "ease", "--dev") == ["--device"]
    assert ask("rankbench", "run", "gowalla", "ease", "--device", "") == ["cpu", "cuda"]
    assert ask("rankbench", "run", "gowalla", "ease", "--dtype", "=", "float3") == ["float32"]
    assert "--seed" not in ask("rankbench", "run", "gowalla", "ease", "--seed", "1", "--")
    assert "--methods" in ask("rankbench", "sweep", "--met")


def test_selections_of_a_sweep(ask):
    assert ask("rankbench", "sweep", "--methods", "family", ":", "sof") == ["softmax"]
    assert ask("rankbench", "sweep", "--methods", "ease,ial") == ["ease,ials"]
    assert ask("rankbench", "sweep", "--datasets", "all,!netf") == ["all,!netflix"]
    assert ask("rankbench", "sweep", "demo", "search.by", "=", "") == ["bohb", "random", "tpe"]


def test_tables_of_papers(ask):
    assert {"talos", "talos/3.1", "talos/F.1"} <= set(ask("rankbench", "reproduce", "tal"))
    assert ask("rankbench", "reproduce", "status", "deql/2") == ["deql/2"]


def test_experiments_sweeps_and_runs(ask, home):
    assert ask("rankbench", "sweep", "dem") == ["demo"]
    for path in ("sweeps/demo-12ab34cd-1/sweep.json", "runs/run-gowalla-ease-1/record.json"):
        (home / "results" / path).parent.mkdir(parents=True)
        (home / "results" / path).write_text("{}", encoding="utf-8")
    assert ask("rankbench", "sweep", "status", "") == ["demo-12ab34cd-1"]
    assert {"demo", "demo-12ab34cd-1"} == set(ask("rankbench", "report", "demo"))
    assert ask("rankbench", "compare", "run-") == ["run-gowalla-ease-1"]


def test_zsh_and_fish(ask):
    code, text = ask("rankbench", "run", "gowalla", "eas", shell="zsh")
    assert code == 0 and text.startswith("""_arguments '*: :(("ease":"EASE""")
    assert ask("rankbench", "recommend", "", shell="zsh") == (0, "_files\n")
    code, text = ask("rankbench", "run", "gowalla", "eas", shell="fish", _TYPER_COMPLETE_FISH_ACTION="get-args")
    assert text == f"ease\t{registered().get('ease').title}\n"
    for word, expected in (("eas", 0), ("nothing", 1)):
        line = ("rankbench", "run", "gowalla", word)
        assert ask(*line, shell="fish", _TYPER_COMPLETE_FISH_ACTION="is-args")[0] == expected
    line = ("rankbench", "run", "gowalla", "psl", "surrogate=t")
    assert "surrogate=tanh" in ask(*line, shell="fish", _TYPER_COMPLETE_FISH_ACTION="get-args")[1]


@pytest.mark.parametrize(
    "line", ["rankbench run 'gow", 'rankbench run gowalla "', "rankbench", "", "rankbench run gowalla nothing x"]
)
def test_a_line_that_is_not_finished_is_no_error(ask, line):
    assert ask(*line.split(" "), shell="zsh")[0] == 0


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_names_the_command_and_its_variable(shell, capsys):
    assert _main(["completion", shell]) == 0
    assert "rankbench" in (text := capsys.readouterr().out) and f"{VARIABLE}=complete_{shell}" in text


@pytest.mark.parametrize("words", [["completion"], ["completion", "tcsh"]])
def test_an_unknown_shell_is_one_line(words, capsys):
    assert _main(words) == 2
    error = capsys.readouterr().err
    assert "give a shell, one of bash, zsh, fish" in error and error.count("\n") == 1


def test_a_plugin_that_the_line_or_the_environment_names(ask, home, monkeypatch):
    (home / "mine.py").write_text(LOSS + "print('this is heard by nobody')\n", encoding="utf-8")
    assert ask("rankbench", "run", "gowalla", "my-") == []
    with plugins.separate():
        assert ask("rankbench", "run", "--plugin", "mine.py", "gowalla", "my-") == ["my-hinge"]
    for file, found in (("mine.py", ["my-hinge"]), ("missing.py", [])):
        monkeypatch.setenv("RANKBENCH_PLUGINS", str(home / file))
        with plugins.separate():
            monkeypatch.setattr(plugins, "_configured", [])
            assert ask("rankbench", "run", "gowalla", "my-") == found


def test_methods_are_kept_until_the_code_changes(ask, home):
    assert ask("rankbench", "run", "gowalla", "eas") == ["ease"]
    kept = home / "data" / "methods.json"
    kept.write_text(kept.read_text(encoding="utf-8").replace('"name": "ease"', '"name": "easel"'), encoding="utf-8")
    assert ask("rankbench", "run", "gowalla", "eas") == ["easel"]
    for text in (kept.read_text(encoding="utf-8").replace('"made_by": "', '"made_by": "0'), "{", "[]"):
        kept.write_text(text, encoding="utf-8")
        assert ask("rankbench", "run", "gowalla", "eas") == ["ease"]


def test_tab_in_bash(tmp_path, capsys):
    """Bash itself splits the line and calls the function of the script, which asks a process of its own."""
    assert _main(["completion", "bash"]) == 0
    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out, encoding="utf-8")
    program = tmp_path / "bin" / "rankbench"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rankbench "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    lines = f"""source {script}
    try() {{ COMP_WORDS=("$@"); COMP_CWORD=$(($#-1)); _rankbench_completion rankbench 2>/dev/null; echo "${{COMPREPLY[*]}}"; }}
    try rankbench run movielens-20
    try rankbench run gowalla psl surrogate = re
    """
    environment = os.environ | {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    done = subprocess.run([shutil.which("bash"), "-c", lines], env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["movielens-20m", "relu"]
