"""Plugins: what is loaded from where, what is refused in one line, and how they reach another process."""

import hashlib
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from rankbench.core import plugins
from rankbench.core.code import code_fingerprint
from rankbench.core.errors import ConfigError
from rankbench.core.registry import Registry, added_by

THINGS = Registry("thing")
HEADER = f"from {__name__.rpartition('.')[2]}_things import THINGS\n"


@pytest.fixture(autouse=True)
def things(monkeypatch):
    """Plugins import the registry of this test by name; what they load is removed after each test."""
    module = type(sys)(HEADER.split()[1])
    module.THINGS = THINGS
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.delenv("RANKBENCH_PLUGINS", raising=False)
    with plugins.separate():
        yield
    assert not THINGS.names()


def written(folder: Path, name: str, *values: str) -> Path:
    path = folder / f"{name}.py"
    path.write_text(HEADER + "".join(f"THINGS.add({value!r}, {value.upper()!r}, __name__)\n" for value in values))
    return path


def test_a_file_registers_what_it_adds_and_is_known_by_its_hash(tmp_path, monkeypatch):
    path = written(tmp_path, "mine", "one", "two")
    plugin = plugins.load(str(path))
    assert plugins.loaded() == (plugin,) and plugin.name == "mine.py"
    assert plugin.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert added_by(plugin) == [("thing", "one"), ("thing", "two")] and THINGS.get("one") == "ONE"
    assert plugins.load(path) is plugins.load("mine.py", tmp_path) is plugin
    monkeypatch.chdir(tmp_path)
    assert plugins.load("./mine.py") is plugin


def test_a_changed_file_replaces_what_it_registered(tmp_path):
    written(tmp_path, "mine", "one", "two")
    before = plugins.load("mine.py", tmp_path)
    written(tmp_path, "mine", "two", "three")
    after = plugins.load("mine.py", tmp_path)
    assert plugins.loaded() == (after,) and after.sha256 != before.sha256
    assert THINGS.names() == ["three", "two"]


def test_a_module_is_loaded_by_its_name(tmp_path, monkeypatch):
    written(tmp_path, "my_things", "one")
    monkeypatch.syspath_prepend(tmp_path)
    plugin = plugins.load("my_things")
    assert (plugin.name, plugin.module, plugin.origin) == ("my_things",) * 3 and THINGS.names() == ["one"]
    assert plugins.load("my_things") is plugin
    written(tmp_path, "my_things", "two")
    with pytest.raises(ConfigError, match=r"^my_things: has changed since it was loaded; start Python again"):
        plugins.load("my_things")
    sys.modules.pop("my_things")


def test_a_module_of_a_package_is_known_by_all_files_of_it_and_is_the_same_on_each_machine(tmp_path, monkeypatch):
    (package := tmp_path / "my_lab").mkdir()
    for name in ("__init__", "common"):
        (package / f"{name}.py").touch()
    (package / "losses.py").write_text("import my_lab.common\n")
    monkeypatch.syspath_prepend(tmp_path)
    first = plugins.load("my_lab.losses")
    shipped = plugins.Shipment((first,))
    plugins.unload(first)
    (package / "common.py").write_text("SCALE = 2\n")
    with pytest.raises(ConfigError, match=r"my_lab\.losses: another version is installed on this machine"):
        pickle.loads(pickle.dumps(shipped))
    assert plugins.load("my_lab.losses").sha256 != first.sha256
    for name in ("my_lab", "my_lab.common", "my_lab.losses"):
        sys.modules.pop(name)


def test_an_entry_point_of_an_installed_package_is_loaded_when_a_registry_is_read(tmp_path, monkeypatch):
    """An installed distribution is a folder NAME.dist-info on the path of modules."""
    written(tmp_path, "installed_things", "one")
    about = tmp_path / "some_lab-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: some-lab\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[rankbench.plugins]\nthings = installed_things\n")
    monkeypatch.syspath_prepend(tmp_path)
    plugins._configured.clear()
    assert THINGS.filled_from("rankbench.core").names() == ["one"]
    sys.modules.pop("installed_things")


def test_the_variable_names_files_and_modules(tmp_path, monkeypatch):
    first, second = written(tmp_path, "first", "one"), written(tmp_path, "second", "two")
    monkeypatch.setenv("RANKBENCH_PLUGINS", os.pathsep.join([str(first), "", str(second)]))
    plugins._configured.clear()
    plugins.load_configured()
    assert THINGS.names() == ["one", "two"]
    monkeypatch.setenv("RANKBENCH_PLUGINS", str(tmp_path / "no.py"))
    plugins._configured.clear()
    for _ in range(2):  # the second try does not pass in silence
        with pytest.raises(ConfigError, match=r"^RANKBENCH_PLUGINS: .*no\.py: no such plugin file$"):
            plugins.load_configured()
    plugins._configured.append(True)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x = 1\ny = 1 / 0\n", "bad.py:2: ZeroDivisionError: division by zero"),
        ("def f():\n    return 1 / 0\n\n\nf()\n", "bad.py:2: ZeroDivisionError: division by zero"),
        ("x = (\n", "bad.py:1: SyntaxError: '(' was never closed"),
        ("import no_such_helper\n", "bad.py:1: ModuleNotFoundError: No module named 'no_such_helper'; a plugin is one file"),
        ("import sys\nsys.exit(3)\n", "bad.py:2: SystemExit: 3"),
        ("\x00", "bad.py:"),
        (HEADER + "THINGS.add('one', 1, __name__)\nraise ValueError('no')\n", "bad.py:3: ValueError: no"),
    ],
)
def test_a_file_that_fails_is_one_line_with_its_line(text, problem, tmp_path):
    (tmp_path / "bad.py").write_text(text)
    with pytest.raises(ConfigError) as refused:
        plugins.load("bad.py", tmp_path)
    assert f"{tmp_path}/{problem}" in str(refused.value) and "\n" not in str(refused.value)
    assert (
        not THINGS.names()
        and not plugins.loaded()
        and not [name for name in sys.modules if name.startswith("rankbench_plugin_bad")]
    )


@pytest.mark.parametrize(
    ("word", "problem"),
    [
        ("no.py", "--plugin: no.py: no such plugin file"),
        ("./no", "--plugin: ./no: no such plugin file"),
        ("no_such_module", "--plugin: no_such_module: no such module; the path of a file ends in .py"),
        ("no.such.module", "--plugin: no.such.module: no such module"),
        ("", "--plugin: a plugin is the path of a file or the name of a module, got ''"),
        ("./folder", "--plugin: ./folder: no such plugin file (it is a folder)"),
        ("latin.py", "--plugin: latin.py: cannot be read as Python"),
        ("math", "--plugin: math: a plugin is Python source"),
    ],
)
def test_what_is_not_there_is_one_line(word, problem, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "latin.py").write_bytes(b"# \xe9\n")
    with pytest.raises(ConfigError) as refused:
        plugins.load(word, tmp_path, "--plugin")
    assert str(refused.value).startswith(problem)


def test_a_package_that_fails_before_its_module_is_found_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "broken_things").mkdir()
    (tmp_path / "broken_things" / "__init__.py").write_text("raise RuntimeError('no\\nlicence')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"^--plugin: broken_things\.losses: RuntimeError: no$"):
        plugins.load("broken_things.losses", source="--plugin")


def test_a_name_that_is_taken_is_refused_with_both_origins(tmp_path):
    first, second = written(tmp_path, "first", "one"), written(tmp_path, "second", "new", "one")
    plugins.load(first)
    with pytest.raises(ConfigError) as refused:
        plugins.load(second)
    assert str(refused.value).startswith(
        f"{second}:3: thing 'one' is registered twice, by {first} and by {second}; choose another"
    )
    assert THINGS.names() == ["one"]


def test_plugins_are_part_of_the_fingerprint_of_the_code(tmp_path):
    alone = code_fingerprint()
    written(tmp_path, "mine", "one")
    plugins.load("mine.py", tmp_path)
    first = code_fingerprint()
    written(tmp_path, "mine", "two")
    plugins.load("mine.py", tmp_path)
    assert len({alone, first, code_fingerprint()}) == 3
    plugins.unload(plugins.loaded()[0])
    assert code_fingerprint() == alone


OTHER = """
import pickle, sys
from rankbench.core import plugins
shipment, value = pickle.load(sys.stdin.buffer)
print(value.tau, type(value).__module__ == shipment.plugins[0].module, len(plugins.loaded()))
again = pickle.loads(pickle.dumps((plugins.Shipment.of_this_process(), value)))[1]
print(again == value, plugins.load_configured())
"""


def test_a_shipment_brings_the_code_to_a_process_without_the_file(tmp_path):
    """Values of a plugin's classes are pickled by reference, after the text of the plugin."""
    path = tmp_path / "mine.py"
    path.write_text("from dataclasses import dataclass\n@dataclass(frozen=True)\nclass Mine:\n    tau: float\n")
    plugin = plugins.load(path)
    path.unlink()
    message = pickle.dumps((plugins.Shipment.of_this_process(), sys.modules[plugin.module].Mine(0.5)))
    # What is configured on the other machine is not loaded beside the shipment.
    environment = os.environ | {"RANKBENCH_PLUGINS": str(path)}
    done = subprocess.run(
        [sys.executable, "-c", OTHER], input=message, capture_output=True, env=environment, timeout=60, check=True
    )
    assert done.stdout.decode().split() == ["0.5", "True", "1", "True", "None"]
