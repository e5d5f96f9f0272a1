"""Options are declared once, and a command reads its options, calls its service and prints."""

import inspect
from dataclasses import dataclass

import pytest

from rankbench.cli import app
from rankbench.core.options import Options, option, required, takes_options

LONGEST = 60  # lines of a command, its signature included


def functions(group, name="rankbench"):
    for command in group.registered_commands:
        function = inspect.unwrap(command.callback)
        yield f"{name} {command.name or function.__name__}", function
    for each in group.registered_groups:
        yield from functions(each.typer_instance, f"{name} {each.name}")


def test_no_command_does_the_work_itself():
    lines = {name: len(inspect.getsource(function).splitlines()) for name, function in functions(app)}
    assert len(lines) > 30 and {name: n for name, n in lines.items() if n > LONGEST} == {}


@dataclass(frozen=True, kw_only=True)
class Wanted(Options):
    name: str = required("Its name.")
    size: int = option(3, "Its size.")


@takes_options
def made(first: int, *, options: Wanted, last: str = "z"):
    return first, options, last


def test_a_function_has_the_fields_of_its_options_as_parameters():
    assert [*inspect.signature(made).parameters] == ["first", "name", "size", "last"]
    assert made(1, name="a") == (1, Wanted(name="a", size=3), "z")
    assert made(1, name="a", size=4, last="y") == (1, Wanted(name="a", size=4), "y")
    for wrong in ({}, {"name": "a", "sise": 2}):
        with pytest.raises(TypeError, match=r"name|sise"):
            made(1, **wrong)
