"""Versions: of the package, which is the first section of the changelog, and of the packages that it needs."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import distribution, version
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def pinned(name):
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    return {
        canonicalize_name(line.partition("==")[0]): line.partition("==")[2] for line in lines if "==" in line and line[0] != "#"
    }


NEWEST, OLDEST = pinned("constraints.txt"), pinned("constraints-oldest.txt")
REQUIRED = [Requirement(text) for text in PROJECT["dependencies"]]
OPTIONAL = [Requirement(text) for extra in ("train", "sweep", "tracking") for text in PROJECT["optional-dependencies"][extra]]
TOOLS = [Requirement(text) for extra in ("postgres", "test") for text in PROJECT["optional-dependencies"][extra]]


def required(names):
    """The names of installed packages that these need, and so on."""
    found = set[str]()
    while names:
        name, *names = names
        if (key := canonicalize_name(name)) not in found:
            found.add(key)
            needed = map(Requirement, distribution(name).requires or ())
            names += [each.name for each in needed if each.marker is None or each.marker.evaluate({"extra": ""})]
    return found


def test_whatever_the_install_brings_is_pinned():
    assert required([each.name for each in (*REQUIRED, *OPTIONAL, *TOOLS)]) - {"rankbench"} <= NEWEST.keys()


def test_the_version_is_the_first_section_of_the_changelog_and_the_citation_names_the_newest_release():
    source = PYPROJECT["tool"]["hatch"]["version"]
    assert source["path"] == "CHANGELOG.md" and "version" in PROJECT["dynamic"]
    read = Version(re.search(source["pattern"], CHANGELOG)["version"])
    sections = re.findall(r"^## \[(.+?)\] - (unreleased|\d{4}-\d\d-\d\d)$", CHANGELOG, re.MULTILINE)
    versions = [Version(version) for version, _ in sections]
    assert read == versions[0] and versions == sorted(versions, reverse=True)
    assert [date == "unreleased" for _, date in sections] == [each.is_devrelease for each in versions]
    assert not any(each.is_devrelease for each in versions[1:])
    newest, date = next(section for section in sections if section[1] != "unreleased")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (newest, date) == (str(citation["version"]), str(citation["date-released"]))


def test_a_package_index_shows_the_readme_with_the_address_of_the_repository():
    (source,) = [url for name, url in PROJECT["urls"].items() if name == "Source"]
    hook = PYPROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    text = (ROOT / hook["fragments"][0]["path"]).read_text(encoding="utf-8")
    for each in hook["substitutions"]:
        text = re.sub(each["pattern"], each["replacement"], text)
    links = re.findall(r"\]\(([^)]+)\)", text)
    contents = source.replace("https://github.com", "https://raw.githubusercontent.com")
    assert links and all(each.startswith((f"{source}/blob/main/", f"{contents}/main/", "https://")) for each in links)
    shown = [each.removeprefix(f"{contents}/main/") for each in re.findall(r"!\[[^]]*\]\(([^)]+)\)", text)]
    assert shown and all((ROOT / each).is_file() for each in shown)


def test_the_version_names_the_commit_of_a_checkout():
    done = subprocess.run(
        [sys.executable, "-m", "rankbench", "--version"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    assert re.match(rf"rankbench {re.escape(version('rankbench'))}", done.stdout)
    assert not commit or f"(checkout {commit[:12]}" in done.stdout


@pytest.mark.parametrize("requirement", REQUIRED + OPTIONAL + TOOLS, ids=str)
def test_ci_tests_versions_within_the_bounds(requirement):
    if requirement.name == PROJECT["name"]:
        return
    assert requirement.specifier.contains(NEWEST[canonicalize_name(requirement.name)])
    if canonicalize_name(requirement.name) != "torch":  # the Makefile says which
        assert requirement.specifier.contains(OLDEST[canonicalize_name(requirement.name)])


@pytest.mark.parametrize("requirement", REQUIRED + OPTIONAL, ids=str)
def test_a_lower_bound_is_a_version_that_the_tests_pass_on(requirement):
    if not requirement.specifier:  # whatever the other packages bring
        return
    (bound,) = (each for each in requirement.specifier if each.operator == ">=")
    # Only of MLflow so much is used that it does not promise that its next major version is excluded.
    assert {each.operator for each in requirement.specifier} == ({">=", "<"} if requirement.name == "mlflow" else {">="})
    if requirement.name == "torch":
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
        tested = re.search(r"make test-oldest TORCH=(\S+)", workflow)[1]
        assert f"TORCH={tested}" in makefile
    else:
        tested = OLDEST[canonicalize_name(requirement.name)]
    parts = Version(bound.version).release
    assert Version(tested).release[: len(parts)] == parts and not any(Version(tested).release[len(parts) :])


def test_the_oldest_python_is_the_one_that_workflows_use():
    assert PROJECT["requires-python"] == ">=3.11"
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        for job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values():
            for step in job["steps"]:
                assert "setup-python" not in step.get("uses", "") or step["with"]["python-version"] == "3.11"
