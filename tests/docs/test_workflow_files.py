"""What contributors meet first: hooks that run what CI lints, and templates that a code host can read."""

import re

import yaml
from pages import ROOT


def read(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_the_hooks_lint_as_the_makefile_does_and_need_no_network():
    repos = read(ROOT / ".pre-commit-config.yaml")["repos"]
    hooks = [hook for repo in repos for hook in repo["hooks"]]
    assert {repo["repo"] for repo in repos} == {"local"} and {hook["language"] for hook in hooks} == {"system"}
    linted = re.findall(r"bin/((?:ruff|mypy).*?)(?: \.)?$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert linted == [hook["entry"].removesuffix(" --force-exclude") for hook in hooks]


def test_issue_templates_have_what_a_code_host_asks_for():
    templates = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
    forms = [read(path) for path in templates if path.name != "config.yml"]
    assert len(forms) == 3
    for form in forms:
        assert {"name", "description", "body"} <= set(form)
        assert all(field["attributes"]["label"] for field in form["body"])
    assert (ROOT / ".github" / "pull_request_template.md").is_file()


def test_the_changelog_keeps_a_changelog_and_a_release_takes_a_page_at_most():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    kinds = set(re.findall(r"^### (.+)$", text, re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    releases = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    assert len(releases) > 1 and all(len(re.findall(r"^- ", each, re.MULTILINE)) <= 30 for each in releases)
