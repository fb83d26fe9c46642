"""The templates of the page: whatever they are given is text, unless a piece made it."""

from __future__ import annotations

from typing import Any

import html5lib
import pytest
from jinja2 import UndefinedError

from kernel_agent.notebook.matter import Entry
from kernel_agent.notebook.pieces import join, piece, templates

HOSTILE = (
    """<script>x()</script><img src=x onerror=x()> "' onload='x()' {{ ink }} $a$ \\(b\\) \u202e"""
)
# What is no text: the rest of a piece's arguments gets the hostile one.
GIVEN: dict[str, Any] = {
    "pieces": [("", HOSTILE), ("green", HOSTILE)],
    "lines": [(HOSTILE, HOSTILE)],
    "paragraphs": [[HOSTILE, HOSTILE], [HOSTILE]],
    "task": [[HOSTILE]],
    "message": [[HOSTILE]],
    "parts": [HOSTILE],
    "runs": [HOSTILE],
    "texts": [HOSTILE],
    "colour": "green",
    "heads": [(HOSTILE, "left")],
    "rows": [[(HOSTILE, "right", 2)]],
    "level": 3,
    "style": "opacity:0.8",
    "entries": [Entry(number=1, title=HOSTILE, place=HOSTILE, ended=HOSTILE)],
}
ATTRIBUTES = {"id", "style", "open", "href", "src", "alt", "width", "class"}
MACROS = {
    name: macro.arguments
    for name, macro in vars(templates().get_template("summary.html").module).items()
    if hasattr(macro, "arguments")
}


@pytest.mark.parametrize("name", sorted(MACROS))
def test_no_piece_lets_markup_through_that_it_did_not_make(name: str) -> None:
    data = {argument: GIVEN.get(argument, HOSTILE) for argument in MACROS[name]}
    made = piece(name, **data)
    tree = html5lib.parse(f"<main>{made}</main>", namespaceHTMLElements=False)
    (main,) = tree.iter("main")
    for element in main.iter():
        assert element.tag not in {"script", "img"} or element.get("alt") == HOSTILE
        assert set(element.attrib) <= ATTRIBUTES
        assert "\u202e" not in (element.text or "")
        if element.tag != "span" and element.tag != "img":
            assert "$" not in (element.text or ""), "a viewer would look for a formula"


def test_a_piece_stays_as_it_was_made_within_another() -> None:
    inner = piece("note", text="a < b")
    assert join([inner, inner]) == inner + inner
    assert inner in piece("answer", inner=inner)


def test_data_that_a_piece_needs_cannot_be_forgotten() -> None:
    with pytest.raises((UndefinedError, TypeError)):
        piece("agent_line", name="1-look")
