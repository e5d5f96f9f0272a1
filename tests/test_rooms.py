"""The picture: which room may import which, who may import what is heavy, and what starting up must not load.

Imports are read from the source, those inside functions included.
"""

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "platform" / "rankbench"

# From the lowest floor to the highest: a room imports rooms that stand above it in this list, and no others.
EDGES = {
    "core": set(),
    "data": {"core"},
    "fitting": {"core"},
    "kernels": {"core", "fitting"},
    "losses": {"core"},
    "tracking": {"core"},
    "ledger": {"core", "tracking"},
    "cluster": {"core", "fitting"},
    "evaluation": {"core", "data", "fitting"},
    "models": {"core", "fitting", "kernels"},
    "solvers": {"core", "data", "fitting"},
    "judge": {"core", "evaluation"},
    "schema": {"core", "data", "evaluation", "judge", "tracking"},
    "reports": {"core", "evaluation", "judge", "schema", "tracking"},
    "training": {"core", "fitting", "kernels", "losses", "models", "solvers"},
    "experiment": {"core", "data", "evaluation", "fitting", "solvers", "tracking", "training"},
    "contracts": {"core", "data", "evaluation", "experiment", "fitting", "losses", "models", "solvers"},
    "studies": {"core", "data", "experiment", "kernels", "losses", "reports", "training"},
    "sweeps": {
        "cluster", "core", "data", "evaluation", "experiment", "fitting", "judge", "schema", "tracking", "training",
    },
    "reproduce": {
        "cluster", "core", "data", "evaluation", "experiment", "fitting", "judge", "ledger", "reports", "schema",
        "studies", "sweeps", "tracking",
    },
    "leaderboard": {
        "cluster", "core", "data", "evaluation", "experiment", "fitting", "judge", "ledger", "models", "reports",
        "schema", "sweeps", "tracking",
    },
    "api": {
        "cluster", "core", "data", "evaluation", "experiment", "fitting", "judge", "leaderboard", "reports", "schema",
        "sweeps", "tracking",
    },
    "cli": {
        "api", "cluster", "contracts", "core", "data", "evaluation", "experiment", "fitting", "judge",
        "leaderboard", "reports", "reproduce", "schema", "studies", "sweeps", "tracking",
    },
}  # fmt: skip
HEAVY = {
    "ray": {"cluster", "sweeps"},
    "mlflow": {"tracking"},
    # A study measures the estimators of losses on PyTorch tensors, and the contracts of losses and encoders check them.
    "torch": {"kernels", "losses", "models", "training", "studies", "contracts"},
}
LATE = ("torch", "ray", "mlflow", "numba", "pandas", "matplotlib", "scipy")  # what a command imports when it needs it


def place(path):
    """The room of a file of the package."""
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


def test_the_picture_shows_every_room():
    assert {place(path) for path in FILES} - {""} == set(EDGES)


def test_no_room_imports_one_that_stands_on_its_own_floor_or_higher():
    lower = set()
    for room, used in EDGES.items():
        assert used <= lower, f"{room} imports {', '.join(sorted(used - lower))}, which stands higher in the list"
        lower.add(room)


def test_a_room_imports_only_what_the_picture_allows():
    for path in FILES:
        here = place(path)
        used = {name.split(".")[1] for name in imports(path) if name.startswith("rankbench.")} - {here}
        allowed = EDGES.get(here, set())
        assert used <= allowed, f"{here or 'rankbench'} may not import {', '.join(sorted(used - allowed))}"


def test_heavy_libraries_are_imported_in_their_room_alone():
    for path in FILES:
        used = {name.split(".")[0] for name in imports(path)}
        for library, rooms in HEAVY.items():
            assert library not in used or place(path) in rooms, f"{library} belongs to {', '.join(sorted(rooms))}"


def test_heavy_libraries_are_imported_somewhere():
    # Or the test above would pass because it reads no import at all.
    found = {(name.split(".")[0], place(path)) for path in FILES for name in imports(path)}
    assert {("ray", "cluster"), ("mlflow", "tracking"), ("torch", "training")} <= found


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


def test_the_python_interface_loads_what_is_used():
    loaded = python(f"import sys, rankbench.api; print(*[name for name in {LATE} if name in sys.modules])")
    assert loaded == ""
    # A module of the same name never takes the place of a function.
    code = "import rankbench.api.fit, rankbench.api as rb; print(all(callable(getattr(rb, name)) for name in rb.__all__))"
    assert python(code) == "True"


def test_only_gradient_steps_import_torch():
    code = """
import sys
from rankbench.experiment.methods import method, registered
solvers = [method(name).name for name in ("ease", "ials", "rg2", "popularity")]
before = "torch" in sys.modules
print(before, method("bpr").name, "torch" in sys.modules, len(registered()) > 30)
"""
    assert python(code) == "False bpr True True"


def test_every_module_can_be_imported():
    dotted = [".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in FILES]
    modules = [name.removesuffix(".__init__") for name in dotted if not name.endswith("__main__")]
    assert python(f"import importlib\nfor name in {modules}: importlib.import_module(name)\nprint('all')") == "all"
