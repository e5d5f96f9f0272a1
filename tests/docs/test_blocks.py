"""The program accepts what the pages tell a reader to type: commands, Python, cards and experiments."""

import os
import shlex
from functools import cache

import pytest
import typer
from pages import PAGES, ROOT, WRITTEN, Block, blocks, name, saved_files, spans

from rankbench import cli
from rankbench.core import plugins
from rankbench.core.config import assignments
from rankbench.core.environment import Environment
from rankbench.core.errors import ConfigError
from rankbench.data.cards import card_names, load_card
from rankbench.experiment.job import configure
from rankbench.experiment.methods import load_plugin
from rankbench.schema.reading import experiment_of_words, load_experiment
from rankbench.sweeps.selection import by_name

SHELL = ("", "sh", "bash", "shell", "console", "text")
INVENTED = ("my-shop",)  # a card that pages show how to write


@pytest.fixture(autouse=True)
def plugin_files(tmp_path, monkeypatch):
    """The files of the page on extending lie in the working folder, and what they register is forgotten after each test."""
    for file, text in saved_files(ROOT / "docs" / "extending.md").items():
        (tmp_path / file).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with plugins.separate():
        yield


def commands_of(path):
    """(words after rankbench, whether they may leave arguments out) of every command in blocks and code spans."""
    for block in blocks(path, *SHELL):
        for line in block.text.splitlines():
            text = line.strip().removeprefix("$ ").removeprefix(".venv/bin/")
            if text.split()[:1] == ["rankbench"]:
                yield shlex.split(text, comments=True)[1:], False
    for span in spans(path):
        if span.startswith("rankbench ") and not span.split()[1].isupper():  # COMMAND stands for each of them
            yield shlex.split(span)[1:], True


@cache
def every_command():
    return typer.main.get_command(cli.app)


def parse(words):
    """The names and arguments of a command, by the parser of the command line; nothing is run."""
    command, context, names = every_command(), None, []
    while True:
        context = command.make_context(names[-1] if names else "rankbench", list(words), parent=context)
        if not hasattr(command, "resolve_command"):
            return names, context.params
        left = [*context._protected_args, *context.args]
        chosen, command, words = command.resolve_command(context, left)
        names.append(chosen)


def check(words, brief=False):
    """Raise for a command that the program would refuse. `brief`: arguments may be left out, as they are in running text."""
    try:
        names, given = parse(words)
    except Exception as error:
        kind = type(error).__name__
        if kind == "Exit" or (brief and kind in ("MissingParameter", "NoArgsIsHelpError")):  # --help; a command's name alone
            return
        raise
    words = given.get("params") or given.get("changes") or []
    values = assignments([word for word in words if "=" in word and not word.startswith(("[", "PATH", "data."))])
    if names[0] in ("run", "fit") and is_name(given["method"]):
        configure(given["method"], values)
    if names[0] in ("run", "fit") and is_name(given["dataset"]):
        assert given["dataset"] in card_names(Environment.from_env()), f"no card {given['dataset']}"
    if names == ["sweep", "run"]:
        file = given["experiment"]
        if file is not None and "=" not in str(file):
            if file.parent.name:
                load_experiment(ROOT / file, values)
        elif given["datasets"] and (given["methods"] or not brief):
            datasets, methods = (",".join(given[name]).split(",") for name in ("datasets", "methods"))
            datasets = ["synthetic" if name in INVENTED else name for name in datasets if not name.isupper()]  # PATTERN
            if datasets:
                by_name(experiment_of_words(datasets, methods, values, "here"), Environment.from_env(), "here")


def is_name(text):
    """Whether a word names a dataset or a method, and is no placeholder, path or invention of a page."""
    return bool(text) and text.islower() and "/" not in text and text not in INVENTED


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_commands_are_taken_by_the_command_line(path):
    for words, brief in commands_of(path):
        try:
            check(words, brief)
        except Exception as error:
            pytest.fail(f"{name(path)}: rankbench {shlex.join(words)}: {type(error).__name__}: {error}")


@pytest.mark.parametrize(
    "words",
    [
        "run synthetic ease lamda=1",
        "run synthetic eease",
        "run synthetic",
        "run synthetc ease",
        "run synthetic ease --treads 2",
        "sweep experiments/no_such_file.yaml",
        "sweep experiments/demo.yaml serch.trials=3",
        "data fetsh synthetic",
        "study --address x",
    ],
)
def test_a_command_that_the_program_would_refuse_is_found(words):
    with pytest.raises((cli.ClickException, ConfigError, AssertionError)):
        check(words.split())


def test_commands_are_found_at_all():
    used = {words[0] for path in WRITTEN for words, _ in commands_of(path)}
    assert {"run", "sweep", "report", "fit", "recommend", "data", "doctor", "tracking", "methods"} <= used


PYTHON = [(path, block) for path in WRITTEN for block in blocks(path, "python", "py")]
EVERY_PYTHON = pytest.mark.parametrize(("path", "block"), PYTHON, ids=[f"{name(path)}:{block.line}" for path, block in PYTHON])


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """One cache and one folder of results for all examples: the built-in data are prepared once."""
    folder = tmp_path_factory.mktemp("examples")
    return {"RANKBENCH_DATA": str(folder / "data"), "RANKBENCH_RESULTS": str(folder / "results")}


@EVERY_PYTHON
def test_python_compiles_and_runs_where_it_is_on_built_in_data(path, block: Block, folders, tmp_path, monkeypatch, at_once):
    program = compile(block.text, f"{name(path)}:{block.line}", "exec")
    if '"synthetic"' not in block.text:
        return
    for variable in [each for each in os.environ if each.startswith("RANKBENCH_")]:
        monkeypatch.delenv(variable)
    for variable, value in folders.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.chdir(tmp_path)
    exec(program, {})


def test_python_examples_are_run_at_all():
    assert sum('"synthetic"' in block.text for _, block in PYTHON) >= 3


YAML = [(path, block) for path in WRITTEN for block in blocks(path, "yaml", "yml")]
EVERY_YAML = pytest.mark.parametrize(("path", "block"), YAML, ids=[f"{name(path)}:{block.line}" for path, block in YAML])


@EVERY_YAML
def test_cards_and_experiments_are_taken_by_their_schema(path, block: Block, environment, tmp_path):
    file = tmp_path / "example.yaml"
    file.write_text(block.text, encoding="utf-8")
    if "arms:" in block.text or "methods:" in block.text:
        spec = by_name(load_experiment(file, {}, load_plugin), environment, "example.yaml")
        for arm in spec.arms:
            fixed = {key: value for key, value in arm.params.items() if not isinstance(value, dict)}
            configure(arm.method, fixed)
            known = set(configure(arm.method, {}).flat)
            assert set(arm.params) | {key for values in arm.chosen.values() for key in values} <= known
        assert all(each in card_names(environment) for each in spec.datasets if isinstance(each, str))
    else:
        load_card(str(file), environment)


def test_a_wrong_card_or_experiment_is_found(environment, tmp_path):
    for text in ("name: a\nsource: {file: a.csv}\nsplitt: {}\n", "name: a\ndatasets: [b]\narms: [{method: ease, parms: {}}]\n"):
        file = tmp_path / "wrong.yaml"
        file.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError):
            load_experiment(file, {}) if "arms" in text else load_card(str(file), environment)
