"""The sdist and the wheel, built once from a tree without .git, as `python -m build` does."""

import pytest
from venvs import Venv, tracked_files


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """The folder of the tree, with the sdist and the wheel made from it in dist/, and the environment that built them."""
    folder = tmp_path_factory.mktemp("build")
    tree = tracked_files(folder / "tree")
    tools = Venv(folder / "tools")
    tools.install("build")
    tools.run("python", "-m", "build", tree)
    return tree, tools


@pytest.fixture(scope="session")
def wheel(built):
    (path,) = (built[0] / "dist").glob("*.whl")
    return path
