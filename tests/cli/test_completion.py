"""Completion as the shells ask for it: by environment variables, through the scripts that the command prints."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rankbench import completion
from rankbench.cli import _main
from rankbench.core import plugins
from rankbench.data.cards import card_names
from rankbench.experiment.methods import registered

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A cache folder with an index."""
    folder = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RANKBENCH_DATA", str(folder))
        assert _main(["completion", "--refresh"]) == 0
    return folder


@pytest.fixture(autouse=True)
def home(data, tmp_path, monkeypatch):
    monkeypatch.setenv("RANKBENCH_DATA", str(data))
    monkeypatch.setenv("RANKBENCH_RESULTS", str(tmp_path / "results"))
    for name in ("RANKBENCH_HOME", "RANKBENCH_MIRROR", "RANKBENCH_PLUGINS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ask(*words, shell="bash", **more):
    """What a new process answers; `words` are those of the line, split as bash splits them."""
    asked = {completion.VARIABLE: f"complete_{shell}", "COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    asked |= {"_TYPER_COMPLETE_ARGS": " ".join(words)} | more
    done = subprocess.run(
        [sys.executable, "-m", "rankbench"], env=os.environ | asked, capture_output=True, text=True, timeout=60
    )
    assert done.stderr == ""
    return done.stdout.splitlines() if shell == "bash" else (done.returncode, done.stdout)


def test_commands_and_their_subcommands():
    assert {"run", "sweep", "methods", "completion"} <= set(ask("rankbench", ""))
    assert ask("rankbench", "da") == ["data"]
    assert ask("rankbench", "data", "de") == ["describe"]
    assert {"status", "stop"} <= set(ask("rankbench", "sweep", "st"))
    assert ask("rankbench", "unknown", "x") == []


def test_datasets_methods_and_parameters(environment):
    assert ask("rankbench", "run", "") == sorted(card_names(environment))
    assert ask("rankbench", "run", "gowalla", "") == registered().names()
    own = [f"{field.name}=" for field in registered().get("psl").fields()]
    assert ask("rankbench", "run", "gowalla", "psl", "") == sorted(own)
    assert "tau=" not in ask("rankbench", "run", "gowalla", "psl", "tau", "=", "0.1", "")
    assert ask("rankbench", "run", "--seed", "3", "gowalla", "ps") == ["psl"]  # the value of an option is no argument


def test_values_of_a_parameter_begin_where_bash_begins_a_word():
    line = ("rankbench", "run", "gowalla", "psl", "surrogate", "=")
    assert ask(*line) == ask(*line, "") == ["atan", "relu", "tanh"]
    assert ask(*line, "t") == ["tanh"]
    assert ask("rankbench", "run", "gowalla", "bpr", "shared_negatives", "=", "") == ["false", "true"]
    assert ask("rankbench", "run", "gowalla", "bpr", "model", "=", "") == [
        "dgcf",
        "gat",
        "lightgcn",
        "mf",
        "neumf",
        "ngcf",
        "pinsage",
        "sgl",
        "simplex",
        "xsimgcl",
        "youtubenet",
    ]


def test_options_and_their_values():
    assert ask("rankbench", "run", "gowalla", "ease", "--dev") == ["--device"]
    assert ask("rankbench", "run", "gowalla", "ease", "--device", "") == ["cpu", "cuda"]
    assert ask("rankbench", "run", "gowalla", "ease", "--dtype", "=", "float3") == ["float32"]
    assert "--seed" not in ask("rankbench", "run", "gowalla", "ease", "--seed", "1", "--")
    assert "--methods" in ask("rankbench", "sweep", "--met")


def test_selections_of_a_sweep():
    assert ask("rankbench", "sweep", "--methods", "family", ":", "sof") == ["softmax"]
    assert ask("rankbench", "sweep", "--methods", "ease,ial") == ["ease,ials"]
    assert ask("rankbench", "sweep", "--datasets", "all,!netf") == ["all,!netflix"]
    assert ask("rankbench", "sweep", "demo", "search.by", "=", "") == ["bohb", "random", "tpe"]


def test_tables_of_papers():
    assert {"talos", "talos/3.1", "talos/F.1"} <= set(ask("rankbench", "reproduce", "tal"))
    assert ask("rankbench", "reproduce", "status", "deql/2") == ["deql/2"]


def test_experiments_sweeps_and_runs(home):
    assert ask("rankbench", "sweep", "dem") == ["demo"]
    for path in ("sweeps/demo-12ab34cd-1/sweep.json", "runs/run-gowalla-ease-1/record.json"):
        (home / "results" / path).parent.mkdir(parents=True)
        (home / "results" / path).write_text("{}", encoding="utf-8")
    assert ask("rankbench", "sweep", "status", "") == ["demo-12ab34cd-1"]
    assert {"demo", "demo-12ab34cd-1"} == set(ask("rankbench", "report", "demo"))
    assert ask("rankbench", "compare", "run-") == ["run-gowalla-ease-1"]


def test_zsh_and_fish():
    code, text = ask("rankbench", "run", "gowalla", "eas", shell="zsh")
    assert code == 0 and text.startswith("""_arguments '*: :(("ease":"EASE\\: linear""")
    assert ask("rankbench", "recommend", "", shell="zsh") == (0, "_files\n")
    code, text = ask("rankbench", "run", "gowalla", "eas", shell="fish", _TYPER_COMPLETE_FISH_ACTION="get-args")
    assert text == f"ease\t{registered().get('ease').title}\n"
    for word, expected in (("eas", 0), ("nothing", 1)):
        line = ("rankbench", "run", "gowalla", word)
        assert ask(*line, shell="fish", _TYPER_COMPLETE_FISH_ACTION="is-args")[0] == expected
    assert "surrogate=tanh" in ask("rankbench", "run", "gowalla", "psl", "surrogate=t", shell="fish")[1]


@pytest.mark.parametrize("line", ["rankbench run 'gow", 'rankbench run gowalla "', "rankbench", ""])
def test_a_line_that_is_not_finished_is_no_error(line):
    assert ask(*line.split(" "), shell="zsh")[0] == 0


def test_an_answer_imports_no_command_and_nothing_heavy():
    code = (
        "import sys, os; from rankbench import completion\n"
        "completion.answer(os.environ)\n"
        "print([name for name in ('typer', 'rich', 'torch', 'ray', 'pydantic', 'rankbench.cli') if name in sys.modules])"
    )
    asked = {completion.VARIABLE: "complete_bash", "COMP_WORDS": "rankbench\nrun\ngowa", "COMP_CWORD": "2"}
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | asked, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == "gowalla" and done.stdout.splitlines()[-1] == "[]"


def test_an_index_is_written_in_the_background(tmp_path, monkeypatch):
    monkeypatch.setenv("RANKBENCH_DATA", str(tmp_path / "new"))
    assert ask("rankbench", "ru") == []
    path, end = tmp_path / "new" / "completion.json", time.monotonic() + 120
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.2)
    assert ask("rankbench", "ru") == ["run"]


def test_no_plugin_is_run_for_a_key_that_was_pressed(home, monkeypatch):
    (home / "mine.py").write_text("from pathlib import Path\nPath('ran').touch()\n")
    monkeypatch.setenv("RANKBENCH_PLUGINS", str(home / "mine.py"))
    monkeypatch.setenv("RANKBENCH_DATA", str(home / "new"))
    monkeypatch.setattr(plugins, "_configured", [])
    refreshed: list[list[str]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: refreshed.append(command[command.index("rankbench") + 1 :]))
    assert completion.read_index() is None and len(refreshed) == 1
    assert _main(refreshed[0]) == 0 and completion.read_index()
    assert not (home / "ran").exists() and plugins._configured == []


def test_an_index_of_other_code_is_used_until_it_is_renewed(tmp_path, monkeypatch, data):
    index = json.loads((data / "completion.json").read_text(encoding="utf-8"))
    (tmp_path / "completion.json").write_text(json.dumps(index | {"key": ["other"]}), encoding="utf-8")
    (tmp_path / "completion.begun").touch()  # another process is writing it
    monkeypatch.setenv("RANKBENCH_DATA", str(tmp_path))
    assert ask("rankbench", "ru") == ["run"]
    (tmp_path / "completion.json").write_text("{", encoding="utf-8")
    assert ask("rankbench", "ru") == []


def test_the_script_of_bash_completes_a_line(tmp_path, capsys):
    """Bash itself splits the line and calls the function of the script."""
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
    try rankbench run gowalla ""
    """
    environment = os.environ | {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    done = subprocess.run([shutil.which("bash"), "-c", lines], env=environment, capture_output=True, text=True, timeout=60)
    first, second, third = done.stdout.strip().split("\n", 2)
    assert (first, second) == ("movielens-20m", "relu") and "ease" in third.split()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_names_the_command_and_its_variable(shell, capsys):
    assert _main(["completion", shell]) == 0
    assert "rankbench" in (text := capsys.readouterr().out) and f"{completion.VARIABLE}=complete_{shell}" in text


@pytest.mark.parametrize("words", [["completion"], ["completion", "tcsh"]])
def test_an_unknown_shell_is_one_line(words, capsys):
    assert _main(words) == 2
    error = capsys.readouterr().err
    assert "give a shell, one of bash, zsh, fish" in error and error.count("\n") == 1


def test_modules_of_the_working_folder_are_not_run(home, monkeypatch):
    (home / "typer.py").write_text("from pathlib import Path\nPath('ran').touch()\n")
    monkeypatch.setenv("RANKBENCH_DATA", str(home / "new"))
    assert completion.read_index() is None  # it is made in the background
    deadline = time.monotonic() + 60
    while not completion.index_file().is_file() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert completion.index_file().is_file() and not (home / "ran").exists()
