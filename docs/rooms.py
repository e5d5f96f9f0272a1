"""Draw which room of the package imports which, from the imports in its source.

`python docs/rooms.py` writes docs/images/rooms.svg. The build of the site writes it too, and a test fails if the committed
drawing is out of date. A room is a folder of the package, or a module beside them that imports a folder. All other modules
beside the folders share one box at the bottom. An arrow is left out if a longer path of arrows implies it. Rooms that import
each other are an error, because they cannot be ordered.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from html import escape
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "platform" / "rankbench"
DRAWING = ROOT / "docs" / "images" / "rooms.svg"

Graph = dict[str, set[str]]

BOX_WIDTH, BOX_HEIGHT, GAP, FLOOR_HEIGHT, MARGIN = 104, 30, 22, 72, 24
SWEEPS = 24  # passes that move every node towards its neighbours


def read_imports(package: Path) -> tuple[Graph, list[str]]:
    """Return which room imports which, and the names of the shared modules, which import no room."""
    graph: Graph = {}
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).parts[0].removesuffix(".py")
        if name != "__init__":
            room = "cli" if name == "__main__" else name
            graph.setdefault(room, set()).update(_imported(path, package.name) - {room})
    folders = {path.parent.name for path in package.glob("*/*.py")}
    rooms = set(folders)
    while grown := {name for name, used in graph.items() if name not in rooms and used & rooms}:
        rooms |= grown
    return {room: graph[room] & rooms for room in sorted(rooms & set(graph))}, sorted(set(graph) - rooms)


def _imported(path: Path, package: str) -> set[str]:
    """Return the rooms and modules of the package that a file imports, wherever in the file."""
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == package:
            names += [f"{package}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.append(node.module)
    return {name.split(".")[1] for name in names if name.startswith(f"{package}.")}


def floors_of(graph: Mapping[str, set[str]]) -> dict[str, int]:
    """Return the floor of each room: one above the highest room that it imports. Raises ValueError that names a circle."""
    floors: dict[str, int] = {}

    def visit(room: str, path: tuple[str, ...]) -> int:
        if room in path:
            raise ValueError(f"rooms import each other in a circle: {' → '.join((*path[path.index(room) :], room))}")
        if room not in floors:
            floors[room] = 1 + max((visit(used, (*path, room)) for used in sorted(graph[room])), default=-1)
        return floors[room]

    for room in sorted(graph):
        visit(room, ())
    return floors


def without_shortcuts(graph: Mapping[str, set[str]]) -> Graph:
    """Return the graph without the arrows that longer paths imply (its transitive reduction)."""

    def reached(room: str) -> set[str]:
        return graph[room].union(*(reached(used) for used in graph[room]))

    return {room: used - set().union(*(reached(each) for each in used)) for room, used in graph.items()}


def draw(graph: Mapping[str, set[str]], shared: list[str]) -> str:
    """Return an SVG: the highest room on top, arrows from each room down to its imports, the shared modules at the bottom."""
    floors = floors_of(graph)
    arrows = without_shortcuts(graph)
    # An arrow over several floors has a bend on each of them, so that it passes beside the boxes.
    paths = [
        [room, *(f"{room} {used} {floor}" for floor in range(floors[room] - 1, floors[used], -1)), used]
        for room in sorted(arrows)
        for used in sorted(arrows[room])
    ]
    height = max(floors.values())
    levels: list[list[str]] = [[] for _ in range(height + 1)]
    for room in sorted(graph):
        levels[floors[room]].append(room)
    for path in paths:
        for bend in path[1:-1]:
            levels[int(bend.rsplit(" ", 1)[1])].append(bend)
    x = _positions(levels, paths, graph)
    left = min(x[name] - _width(name, graph) / 2 for name in x)
    x = {name: value - left + MARGIN for name, value in x.items()}
    width = max(x[name] + _width(name, graph) / 2 for name in x) + MARGIN
    y = {name: MARGIN + (height - level) * FLOOR_HEIGHT for level, names in enumerate(levels) for name in names}
    bottom = MARGIN + (height + 1) * FLOOR_HEIGHT - 14
    total = bottom + (62 if shared else 0)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {total}" width="{width:.0f}" height="{total}" '
        'font-family="system-ui, sans-serif" font-size="13" role="img" aria-label="Which room imports which">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#6b7a90"/></marker></defs>',
        f'<rect width="{width:.0f}" height="{total}" fill="#ffffff"/>',
    ]
    for path in paths:
        points = [(x[path[0]], y[path[0]] + BOX_HEIGHT)]
        points += [(x[bend], y[bend] + BOX_HEIGHT / 2) for bend in path[1:-1]]
        points.append((x[path[-1]], y[path[-1]] - 2.0))
        line = f"M{points[0][0]:.0f} {points[0][1]:.0f}"
        for (x0, y0), (x1, y1) in pairwise(points):
            middle = (y0 + y1) / 2
            line += f" C{x0:.0f} {middle:.0f} {x1:.0f} {middle:.0f} {x1:.0f} {y1:.0f}"
        parts.append(f'<path d="{line}" fill="none" stroke="#6b7a90" stroke-width="1.3" marker-end="url(#tip)"/>')
    for room in sorted(graph):
        box = f'x="{x[room] - BOX_WIDTH / 2:.0f}" y="{y[room]}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}"'
        parts.append(f'<rect {box} rx="6" fill="#e9f0fb" stroke="#3d6bb3"/>')
        parts.append(_text(x[room], y[room] + 20, room, "#14325c"))
    if shared:
        size = f'width="{width - 2 * MARGIN:.0f}" height="46"'
        parts.append(f'<rect x="{MARGIN}" y="{bottom}" {size} rx="6" fill="#f3f3f0" stroke="#8a8a80"/>')
        parts.append(_text(width / 2, bottom + 18, "modules that every room may use", "#555550"))
        parts.append(_text(width / 2, bottom + 36, "  ".join(shared), "#33332e"))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _text(x: float, y: float, text: str, colour: str) -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="middle" fill="{colour}">{escape(text)}</text>'


def _width(name: str, graph: Mapping[str, set[str]]) -> float:
    return BOX_WIDTH if name in graph else 12


def _positions(levels: list[list[str]], paths: list[list[str]], graph: Mapping[str, set[str]]) -> dict[str, float]:
    """Horizontal positions of boxes and bends: near the mean of their neighbours, and without overlap on a floor."""
    neighbours: dict[str, list[str]] = {name: [] for names in levels for name in names}
    for path in paths:
        for upper, lower in pairwise(path):
            neighbours[upper].append(lower)
            neighbours[lower].append(upper)
    x: dict[str, float] = {}
    for names in levels:
        x.update(_side_by_side(names, [float(i) for i in range(len(names))], graph))
    for turn in range(SWEEPS):
        for names in levels if turn % 2 else reversed(levels):
            wanted = [sum(x[other] for other in neighbours[n]) / len(neighbours[n]) if neighbours[n] else x[n] for n in names]
            order = sorted(range(len(names)), key=lambda i: (round(wanted[i], 3), names[i]))
            names[:] = [names[i] for i in order]
            x.update(_side_by_side(names, [wanted[i] for i in order], graph))
    return x


def _side_by_side(names: list[str], wanted: list[float], graph: Mapping[str, set[str]]) -> dict[str, float]:
    """Positions near `wanted` (ascending) at which boxes do not touch, shifted together to the mean of `wanted`."""
    x: list[float] = []
    for i, name in enumerate(names):
        least = x[-1] + (_width(names[i - 1], graph) + _width(name, graph)) / 2 + GAP if x else -1e9
        x.append(max(wanted[i], least))
    shift = sum(w - p for w, p in zip(wanted, x, strict=True)) / len(x) if x else 0.0
    return {name: round(p + shift, 1) for name, p in zip(names, x, strict=True)}


def write(target: Path = DRAWING) -> None:
    """Write the drawing if the file differs from it."""
    drawing = draw(*read_imports(PACKAGE))
    if not target.is_file() or target.read_text(encoding="utf-8") != drawing:
        target.write_text(drawing, encoding="utf-8")


if __name__ == "__main__":
    write()
    print(DRAWING)
