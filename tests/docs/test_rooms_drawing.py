"""The drawing of the rooms: read from the imports, without shortcuts, and as it is committed."""

import re

import pytest
import rooms
from pages import ROOT


@pytest.fixture
def package(tmp_path):
    """A package of four rooms and two shared modules, whose imports are known."""
    root = tmp_path / "demo"
    files = {
        "__init__.py": "from demo.low import nothing",
        "__main__.py": "import demo.cli.main",
        "errors.py": "import os",
        "words.py": "from demo.errors import os",
        "low/__init__.py": "",
        "low/base.py": "from demo import words",
        "mid/__init__.py": "def late():\n    import demo.low.base",
        "join.py": "from demo import mid\nfrom demo.low import base",
        "cli/__init__.py": "from demo import join, low",
        "cli/main.py": "import demolition.parts\nfrom demo.cli import join",
    }
    for file, text in files.items():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(text, encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def real():
    """The rooms and shared modules of the product."""
    return rooms.read_imports(rooms.PACKAGE)


def test_rooms_and_shared_modules_are_read_from_the_imports(package):
    graph, shared = rooms.read_imports(package)
    assert graph == {"cli": {"join", "low"}, "join": {"low", "mid"}, "low": set(), "mid": {"low"}}
    assert shared == ["errors", "words"]
    assert rooms.floors_of(graph) == {"low": 0, "mid": 1, "join": 2, "cli": 3}
    assert rooms.without_shortcuts(graph) == {"cli": {"join"}, "join": {"mid"}, "low": set(), "mid": {"low"}}


def test_a_circle_of_rooms_is_an_error_that_names_it():
    with pytest.raises(ValueError, match=r"a → b → a|b → a → b"):
        rooms.floors_of({"a": {"b"}, "b": {"a"}, "c": {"a"}})


def test_every_arrow_leads_down_and_no_two_boxes_touch(real):
    graph, shared = real
    drawing = rooms.draw(graph, shared)
    boxes = [tuple(map(float, each)) for each in re.findall(r'<rect x="([-\d.]+)" y="(\d+)" width="104" height="30"', drawing)]
    assert len(boxes) == len(graph)
    for i, (x, y) in enumerate(boxes):
        assert all(abs(x - other_x) > 104 or abs(y - other_y) > 30 for other_x, other_y in boxes[:i])
    for path in re.findall(r'<path d="M([^"]*)" fill="none"', drawing):
        ends = [float(part.split()[-1]) for part in path.split(" C")]
        assert ends == sorted(ends)


def test_the_drawing_shows_the_imports_of_the_code(real):
    committed = rooms.DRAWING.read_text(encoding="utf-8")
    assert committed == rooms.draw(*real), "run `python docs/rooms.py` and commit the drawing"


def test_the_page_of_the_architecture_says_what_each_room_does(real):
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))))
    assert listed == set(real[0])
