"""The picture: which room may import which, who may import what is heavy, and what starting up must not load.

Imports are read from the source, those inside functions included.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "platform" / "rankbench"

ROOT_MODULES = {
    "recommender", "registry", "config", "rng", "errors", "files", "settings", "threads", "memory",
    "mapping", "fitting", "checkpoint",
}  # fmt: skip
EDGES = {
    "data": set(),
    "solvers": {"data"},
    "losses": set(),
    "models": set(),
    "training": {"losses", "models", "solvers", "data"},
    "methods": {"solvers", "training"},
    "evaluation": {"data"},
    "cluster": set(),
    "tracking": set(),
    "experiment": {"data", "methods", "solvers", "evaluation", "tracking"},
    "studies": {"data", "losses", "training", "experiment"},
    "sweeps": {"experiment", "data", "losses", "evaluation", "tracking", "cluster"},
    "reports": {"evaluation", "tracking"},
    "doctor": {"data", "tracking", "cluster"},
    "model": {"data", "methods", "solvers", "evaluation"},
    "api": {"experiment", "data", "model", "evaluation"},
    "cli": {
        "data",
        "methods",
        "solvers",
        "evaluation",
        "cluster",
        "tracking",
        "experiment",
        "studies",
        "sweeps",
        "reports",
        "model",
        "api",
        "doctor",
    },
}
HEAVY = {"ray": {"cluster", "sweeps"}, "mlflow": {"tracking"}}
LATE = ("torch", "ray", "mlflow", "numba", "pandas", "matplotlib", "scipy")  # what a command imports when it needs it


def place(path):
    """The room, or root module, of a file of the package."""
    first = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return {"__main__": "cli", "__init__": ""}.get(first, first)


def imports(path):
    """Absolute dotted names that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            yield node.module
            if node.module == "rankbench":
                yield from (f"rankbench.{alias.name}" for alias in node.names)


FILES = sorted(PACKAGE.rglob("*.py"))
EVERY_FILE = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))


def test_the_picture_shows_every_room_and_root_module():
    assert {place(path) for path in FILES} - {""} == ROOT_MODULES | set(EDGES)


@EVERY_FILE
def test_a_room_imports_only_what_the_picture_allows(path):
    here = place(path)
    used = {name.split(".")[1] for name in imports(path) if name.startswith("rankbench.")} - {here}
    allowed = ROOT_MODULES | EDGES.get(here, set())
    assert used <= allowed, f"{here or 'rankbench'} may not import {', '.join(sorted(used - allowed))}"


@EVERY_FILE
def test_heavy_libraries_are_imported_in_their_room_alone(path):
    used = {name.split(".")[0] for name in imports(path)}
    for library, rooms in HEAVY.items():
        assert library not in used or place(path) in rooms, f"{library} belongs to {', '.join(sorted(rooms))}"


def test_heavy_libraries_are_imported_somewhere():
    # Or the test above would pass because it reads no import at all.
    found = {(name.split(".")[0], place(path)) for path in FILES for name in imports(path)}
    assert {("ray", "cluster"), ("mlflow", "tracking")} <= found


def python(code):
    """What a fresh interpreter prints that runs `code` at the root of the repository."""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
    return done.stdout.strip()


def test_platform_is_still_the_standard_library_at_the_root():
    assert not (PACKAGE.parent / "__init__.py").exists()
    assert python("import platform; print(platform.python_version())") == sys.version.split()[0]


def test_starting_the_command_line_loads_nothing_heavy():
    loaded = python(f"import sys, rankbench.cli; print(*[name for name in {LATE} if name in sys.modules])")
    assert loaded == ""


def test_every_module_can_be_imported():
    dotted = [".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in FILES]
    modules = [name.removesuffix(".__init__") for name in dotted if not name.endswith("__main__")]
    assert python(f"import importlib\nfor name in {modules}: importlib.import_module(name)\nprint('all')") == "all"
