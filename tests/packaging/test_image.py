"""The image and the workflows name files, extras and commands that exist. (kuberay.yaml: tests/test_kuberay_yaml.py)"""

import re
import subprocess
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
FOLDER = "/opt/rankbench"


def copied():
    """Path in the repository → path in the image."""
    for words in re.findall(r"^COPY --chown=ray (.+)$", DOCKERFILE, re.MULTILINE):
        *sources, target = words.split()
        for source in sources:
            yield source, target + source if target.endswith("/") else target


def test_every_copied_path_exists_and_is_not_ignored():
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    kept = {line[1:] for line in ignored if line.startswith("!") and "/" not in line}
    assert "*" in ignored
    assert {source for source, _ in copied()} == kept
    for source, target in copied():
        assert (ROOT / source).exists() and target == f"{FOLDER}/{source}"


def test_the_image_is_not_roots_and_installs_extras_that_exist_from_the_constraints():
    (install,) = re.findall(r"^RUN pip install .*$", DOCKERFILE, re.MULTILINE)
    assert f"-c {FOLDER}/constraints.txt" in install
    extras = re.search(rf"{FOLDER}\[(.+)\]", install)[1].split(",")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "all" in extras and set(extras) <= set(project["optional-dependencies"])
    assert re.findall(r"^USER (.+)$", DOCKERFILE, re.MULTILINE) == ["ray"]


def test_the_copied_files_are_all_that_a_build_reads():
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    hatch = build["tool"]["hatch"]
    read = {each["path"] for each in hatch["metadata"]["hooks"]["fancy-pypi-readme"]["fragments"]}
    read |= {*build["project"]["license-files"], hatch["version"]["path"]}
    wheel = hatch["build"]["targets"]["wheel"]
    read |= {Path(folder).parts[0] for folder in wheel["only-include"]}
    assert read | {"pyproject.toml", "constraints.txt"} == {source for source, _ in copied()}


def test_workflows_run_targets_that_exist():
    targets = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    commands = [
        step["run"]
        for path in (ROOT / ".github" / "workflows").glob("*.yml")
        for job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values()
        for step in job["steps"]
        if "run" in step
    ]
    made = [command.split()[1] for command in commands if command.startswith("make ")]
    assert {"test", "test-cluster", "test-oldest", "dist"} <= set(made) <= targets


def test_make_knows_its_targets():
    for target in ("test", "test-cluster", "test-oldest", "dist", "docs"):
        done = subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
