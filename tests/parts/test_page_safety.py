"""A summary with hostile text in every field: a browser shows it and does nothing else."""

from __future__ import annotations

from typing import Any

import html5lib
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.hostile import TEXTS, below_a_cell, hostile_records, hostile_run

from kernel_agent.notebook.page import summary_html
from kernel_agent.safe.text import plain

TAGS = {"html", "head", "body", "div", "p", "br", "span", "strong", "small", "h3", "h4", "ul", "li",
        "details", "summary", "pre", "code", "img", "a", "table", "thead", "tbody", "tr", "th",
        "td", "blockquote", "del", "em", "ol"}  # fmt: skip
ATTRIBUTES = {"style", "class", "open", "src", "alt", "href", "border", "colspan", "rowspan"}


def elements(source: str) -> list[Any]:
    tree = html5lib.parse(source, namespaceHTMLElements=False)
    return [e for e in tree.iter() if isinstance(e.tag, str)]


def skeleton(source: str) -> list[Any]:
    """Return the elements with their attributes, but for those that only colour or part text."""
    return [(e.tag, sorted(e.attrib.items())) for e in elements(source) if e.tag != "span"]


PRINTED = st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp"))


@settings(deadline=None, max_examples=examples(60))
@given(st.text(PRINTED, max_size=40) | st.sampled_from([t for t in TEXTS if len(t) < 90]))
def test_the_structure_does_not_depend_on_what_is_written(text: str) -> None:
    """But for Markdown in answers and thoughts, of which another test says what it may become."""
    text = " ".join(plain(text).split())
    source = summary_html(hostile_run(f"x{text}x", kind="int", thought="It is so"))
    empty = summary_html(hostile_run("xx", kind="int", thought="It is so"))
    assert skeleton(source) == skeleton(empty)
    assert f"x{text}x" in "".join(elements(source)[0].itertext())


@settings(deadline=None, max_examples=examples(60))
@given(st.text() | st.sampled_from(TEXTS))
def test_any_text_anywhere_is_only_text(text: str) -> None:
    for element in elements(summary_html(hostile_run(text, kind="int"))):
        assert element.tag in TAGS
        assert set(element.attrib) <= ATTRIBUTES
        style = element.attrib.get("style", "")
        assert "url" not in style
        assert len(style) < 300
        assert "href" not in element.attrib


# JupyterLab 4.6, @jupyterlab/apputils, Sanitizer: what matters here of its lists of tags and
# attributes. Its list of styles has every property that the summary uses.
LAB_TAGS = {"a", "blockquote", "br", "code", "del", "details", "div", "em", "h2", "h3", "h4",
            "img", "li", "ol", "p", "pre", "small", "span", "strong", "summary",
            "table", "tbody", "td", "th", "thead", "tr", "ul"}  # fmt: skip
LAB_ATTRIBUTES = {"*": {"class", "style"}, "a": {"href"}, "details": {"open"},
                  "img": {"src", "alt", "width"}, "table": {"border"}, "td": {"colspan", "rowspan"},
                  "th": {"colspan", "rowspan"}}  # fmt: skip
# What GitHub leaves of a cell's HTML: no style, no class.
GITHUB_ATTRIBUTES = {"a": {"href"}, "details": {"open"}, "img": {"src", "alt"},
                     "td": {"colspan", "rowspan"}, "th": {"colspan", "rowspan"}}  # fmt: skip


def test_the_sanitisers_of_viewers_leave_what_is_to_be_read() -> None:
    import nh3

    source = summary_html(hostile_run("How many?"), notebook="run.ipynb")
    lab = nh3.clean(source, tags=LAB_TAGS, attributes=LAB_ATTRIBUTES, link_rel=None)
    assert lab == source
    github = nh3.clean(source, tags=LAB_TAGS, attributes=GITHUB_ATTRIBUTES, link_rel=None)
    assert [e.tag for e in elements(github)] == [e.tag for e in elements(source)]
    assert "".join(elements(github)[0].itertext()) == "".join(elements(source)[0].itertext())


def test_nbconvert_carries_the_fragment_over_unchanged() -> None:
    fragment = summary_html(hostile_records(), max_chars=5_000_000)
    given = elements(fragment)[3]
    (kept,) = (
        e
        for e in elements(below_a_cell(fragment))
        if e.attrib.get("class") == "tex2jax_ignore mathjax_ignore"
    )
    assert [(e.tag, e.attrib) for e in kept.iter()] == [(e.tag, e.attrib) for e in given.iter()]
    assert "".join(kept.itertext()) == "".join(given.itertext())
