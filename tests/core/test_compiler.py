"""Compiled loops belong to the content of all files that have some."""

import os
import sys
import time
from pathlib import Path

import pytest

import rankbench
from rankbench.core import compiler, plugins

PACKAGE = Path(rankbench.__file__).parent


@pytest.fixture
def package(tmp_path):
    for name, text in {"a.py": "import numba\nX = 1\n", "b/c.py": "import numba\n", "d.py": "Y = 1\n"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_change_of_any_file_with_loops_gives_another_digest(package):
    before = plugins.sources_digest(package, mention=b"numba")
    (package / "d.py").write_text("Y = 2\n")
    assert plugins.sources_digest(package, mention=b"numba") == before
    (package / "a.py").write_text("import numba\nX = 2\n")
    assert plugins.sources_digest(package, mention=b"numba") != before
    of_product = plugins.sources_digest(PACKAGE, mention=b"numba")
    assert Path(compiler.numba.config.CACHE_DIR).name == f"loops-{of_product[:16]}"


def test_loops_that_nobody_used_for_a_month_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(compiler.numba.config, "CACHE_DIR", "")
    for name, days in (("loops-old", 31), ("loops-new", 1), ("other", 31)):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (time.time() - days * 86400,) * 2)
    compiler.keep_in(tmp_path, "this")
    assert {path.name for path in tmp_path.iterdir()} == {"loops-new", "other", "loops-this"}
    assert str(tmp_path / "loops-this") == compiler.numba.config.CACHE_DIR


def test_a_plugin_with_loops_has_a_folder_of_its_own_for_each_content(tmp_path):
    before, folders = compiler.numba.config.CACHE_DIR, []
    for constant in (1, 2):
        (tmp_path / "mine.py").write_text(f"import numba\nFOLDER = numba.config.CACHE_DIR\nX = {constant}\n")
        with plugins.separate():
            folders.append(sys.modules[plugins.load(str(tmp_path / "mine.py")).module].FOLDER)
    assert before == compiler.numba.config.CACHE_DIR
    assert len({*folders}) == 2 and all(folder.startswith(before) for folder in folders)


def test_every_file_takes_numba_from_the_module_that_sees_to_it():
    direct = [path.name for path in PACKAGE.rglob("*.py") if "\nimport numba\n" in path.read_text(encoding="utf-8")]
    assert direct == ["compiler.py"]
