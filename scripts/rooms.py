"""Draw the rooms of the house and who imports whom, into docs/rooms.svg.

Layers come from ``docs/design.md``, what a room is for from its docstring, arrows from the imports
of today. An arrow that others lead to anyway is left out. A test compares the file with a fresh
drawing, so it cannot go stale.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from html import escape
from pathlib import Path
from textwrap import wrap

ROOT = Path(__file__).resolve().parents[1]
HOUSE = ROOT / "kernel_agent"
PICTURE = ROOT / "docs" / "rooms.svg"

WIDTH, ROW, BOX, HIGH = 1060, 104, 190, 62  # pixels
LINE = 30  # characters of a line in a box


def layers() -> list[list[str]]:
    """Return the rooms of each layer, from top to bottom, as the design document lists them."""
    text = (ROOT / "docs" / "design.md").read_text()
    block = re.search(r"^## Layers$.*?^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert block, "docs/design.md has no list of layers"
    return [line.split() for line in block[1].splitlines()]


def modules(room: str) -> list[Path]:
    """Return the modules of a room; one that is still to come has none."""
    if room == "extension":
        return sorted((ROOT / "extension").rglob("*.py"))
    alone = HOUSE / f"{room}.py"
    return [alone] if alone.is_file() else sorted((HOUSE / room).rglob("*.py"))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def from_imports(path: Path) -> tuple[ast.ImportFrom, ...]:
    """Return what a module imports from another, wherever in it."""
    return tuple(node for node in ast.walk(tree(path)) if isinstance(node, ast.ImportFrom))


def imported(path: Path) -> Iterator[str]:
    """Yield the rooms that a module imports from."""
    for node in from_imports(path):
        if node.module and not node.level:
            first, *below = node.module.split(".")
            if first == "kernel_agent":
                yield from below[:1] or (alias.name for alias in node.names)
            elif first == "kernel_agent_extension":
                yield "extension"


def arrows(rooms: list[str]) -> dict[str, set[str]]:
    """Return for each room those that it imports from."""
    return {
        room: {to for path in modules(room) for to in imported(path)} & set(rooms) - {room}
        for room in rooms
    }


def shortest(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """Leave out each arrow to a room that is reached over another one."""

    def reached(room: str) -> set[str]:
        return graph[room].union(*(reached(to) for to in graph[room]))

    return {
        room: {to for to in below if not any(to in reached(via) for via in below - {to})}
        for room, below in graph.items()
    }


def purpose(room: str) -> str:
    """Return the first sentence of a room's docstring, as far as a colon or a full stop."""
    first = next(path for path in modules(room) if path.name in {"__init__.py", f"{room}.py"})
    said = (ast.get_docstring(tree(first)) or "").split("\n\n")[0]
    said = re.sub(r":\w+:`~?[\w.]*?(\w+)`", r"\1", said.replace("\n", " ")).replace("``", "")
    return re.split(r"[.:;](?: |$)", said)[0]


def draw() -> str:
    """Return the picture as SVG."""
    built = [[room for room in layer if modules(room)] for layer in layers()]
    places = {
        room: (WIDTH * (2 * column + 1) / (2 * len(layer)), ROW * row + 8)
        for row, layer in enumerate(built)
        for column, room in enumerate(layer)
    }
    graph = shortest(arrows(list(places)))
    parts = [*_lines(graph, places), *(_box(room, *place) for room, place in places.items())]
    return _page(parts, ROW * len(built))


def _lines(graph: dict[str, set[str]], places: dict[str, tuple[float, float]]) -> Iterator[str]:
    for room, below in graph.items():
        x, y = places[room]
        for to in sorted(below):
            end, bottom = places[to]
            bend = (y + HIGH + bottom) / 2
            yield (
                f'<path d="M{x:.0f} {y + HIGH:.0f} C{x:.0f} {bend:.0f} {end:.0f} {bend:.0f} '
                f'{end:.0f} {bottom - 5:.0f}" marker-end="url(#head)"/>'
            )


def _box(room: str, x: float, y: float) -> str:
    words = "".join(
        f'<text x="{x:.0f}" y="{y + 34 + 13 * number:.0f}" class="what">{escape(line)}</text>'
        for number, line in enumerate(wrap(purpose(room), LINE, max_lines=2, placeholder=" …"))
    )
    left = x - BOX / 2
    return (
        f'<rect x="{left:.0f}" y="{y:.0f}" width="{BOX}" height="{HIGH}" rx="8"/>'
        f'<text x="{x:.0f}" y="{y + 18:.0f}" class="room">{room}</text>{words}'
    )


def _page(parts: list[str], height: int) -> str:
    style = (
        "svg{background:#fff}text{font-family:system-ui,sans-serif;text-anchor:middle;fill:#1b2733}"
        ".room{font-size:14px;font-weight:600}.what{font-size:10.5px;fill:#52616f}"
        "rect{fill:#f2f6fa;stroke:#9db2c6}path{fill:none;stroke:#9db2c6;stroke-width:1.2}"
    )
    head = (
        '<marker id="head" viewBox="0 0 6 6" refX="3" refY="3" markerWidth="5" markerHeight="5" '
        'orient="auto"><path d="M0 0 6 3 0 6Z" style="fill:#9db2c6;stroke:none"/></marker>'
    )
    lines = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="The rooms of kernel_agent, top to bottom, and which imports from which">\n'
        f"<style>{style}</style>\n<defs>{head}</defs>\n{lines}\n</svg>\n"
    )


if __name__ == "__main__":
    PICTURE.write_text(draw())
