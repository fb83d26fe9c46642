"""A summary with hostile text in every field: a browser shows it and does nothing else."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import html5lib
import nbformat
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parts.test_display import TEXTS, hostile_outputs

from kernel_agent.notebook.page import page_html, summary_html
from kernel_agent.records.action import Call, Calls, Code
from kernel_agent.records.cell import Answer, CellError, CellResult, Decision, HostCall, Observation
from kernel_agent.records.endings import ExitStatus
from kernel_agent.records.trace import (
    DataFile,
    FormatChange,
    Retry,
    RunStart,
    RunStop,
    Step,
    Visit,
)
from kernel_agent.safe.text import plain

TAGS = {"html", "head", "body", "div", "p", "br", "span", "strong", "small", "h3", "h4", "ul", "li",
        "details", "summary", "pre", "code", "img", "a", "table", "thead", "tbody", "tr", "th",
        "td"}  # fmt: skip
ATTRIBUTES = {"style", "class", "open", "src", "alt", "href", "border", "colspan", "rowspan"}


def run(text: str, outputs: Any = (), kind: str = "str", run_id: str = "r") -> list[Any]:
    """Return the records of a run with this text wherever a model or a kernel may write."""
    said = Decision(allowed=False, by="person", reason=text, edited=text)
    call = HostCall(name=text, arguments={text: text}, ok=True, result=text, number=1,
                    decision=said)  # fmt: skip
    file = DataFile(path=text, source=text, bytes=1, sha256=text, kind=text)
    visit = Visit(host=text, port=1, allowed=False, reason=text)
    result = CellResult(
        status="error", outputs=tuple(outputs), calls=(call, call),
        error=CellError(ename=text, evalue=text, traceback=(text,)),
    )  # fmt: skip
    actions = [
        Code(source=text, thought=f"a\n{text}"),
        Calls(calls=(Call(name=text, arguments={text: text}),), thought=text),
        None,
    ]
    return [
        RunStart(run_id=run_id, task=f"a\n{text}", time=text, model=text, format=text,
                 sandbox={"level": text, "statement": text}, budget={"max_steps": 3},
                 data=(file,), tools=(text,), versions={text: text}, format_reason=text),
        FormatChange(run_id=run_id, format=text, reason=text),
        *(Step(run_id=run_id, number=n, action=action, observation=Observation(text=text),
               result=result if n == 1 else None, reasoning=text, decision=said,
               retries=(Retry(content=text, feedback=text),))
          for n, action in enumerate(actions, start=1)),
        RunStop(run_id=run_id, status=ExitStatus.ANSWERED, message=text, partial=text,
                answer=Answer(text=text, kind=kind), network=(visit,)),
    ]  # fmt: skip


def elements(source: str) -> list[Any]:
    tree = html5lib.parse(source, namespaceHTMLElements=False)
    return [e for e in tree.iter() if isinstance(e.tag, str)]


def skeleton(source: str) -> list[Any]:
    """Return the elements with their attributes, but for those that only colour or part text."""
    return [(e.tag, sorted(e.attrib.items())) for e in elements(source) if e.tag != "span"]


PRINTED = st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp"))


@settings(deadline=None, max_examples=60)
@given(st.text(PRINTED, max_size=40) | st.sampled_from([t for t in TEXTS if len(t) < 90]))
def test_the_structure_does_not_depend_on_what_is_written(text: str) -> None:
    text = " ".join(plain(text).split())
    source = summary_html(run(f"x{text}x"))
    assert skeleton(source) == skeleton(summary_html(run("xx")))
    assert f"x{text}x" in "".join(elements(source)[0].itertext())


@settings(deadline=None, max_examples=60)
@given(st.text() | st.sampled_from(TEXTS))
def test_any_text_anywhere_is_only_text(text: str) -> None:
    for element in elements(summary_html(run(text, kind="int"))):
        assert element.tag in TAGS
        assert set(element.attrib) <= ATTRIBUTES
        style = element.attrib.get("style", "")
        assert "url" not in style
        assert len(style) < 300
        assert "href" not in element.attrib


def hostile_records() -> list[Any]:
    """One run a payload, with outputs of every kind."""
    outputs = hostile_outputs()
    texts = [text for text in TEXTS if len(text) < 1000]
    return [
        record
        for n, text in enumerate(texts)
        for record in run(text, outputs[n :: len(texts)], run_id=str(n))
    ]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The page, the fragment alone, and the fragment as nbconvert shows it as a cell's output."""
    from nbconvert import HTMLExporter

    records = hostile_records()
    fragment = summary_html(records, max_chars=5_000_000)
    cell = nbformat.v4.new_code_cell(
        "%agent", outputs=[nbformat.v4.new_output("display_data", {"text/html": fragment})]
    )
    folder = tmp_path_factory.mktemp("pages")
    sources = {"page": page_html(records), "fragment": f"<!DOCTYPE html><body>{fragment}"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nbconvert's own
        sources["notebook"], _ = HTMLExporter().from_notebook_node(
            nbformat.v4.new_notebook(cells=[cell])
        )
    for name, source in sources.items():
        (folder / f"{name}.html").write_text(source)
    return {name: folder / f"{name}.html" for name in sources}


@pytest.mark.parametrize("name", ["page", "fragment", "notebook"])
def test_a_browser_shows_it_and_asks_nobody(files: dict[str, Path], name: str) -> None:
    """No request, no dialog, no frame, no navigation; every fold is opened and hovered over."""
    chromium = shutil.which("chromium")
    playwright = pytest.importorskip("playwright.sync_api")
    if chromium is None:
        pytest.skip("there is no chromium here")
    asked: list[str] = []
    opened: list[str] = []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        context = browser.new_context()
        tab = context.new_page()

        def answer(route: Any) -> None:
            asked.append(route.request.url)
            if urlsplit(route.request.url).scheme == "file":
                route.continue_()
            else:
                route.abort()

        context.route("**/*", answer)
        tab.on("dialog", lambda dialog: (opened.append(dialog.message), dialog.dismiss()))
        tab.goto(files[name].as_uri(), wait_until="load")
        tab.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        tab.wait_for_timeout(500)
        frames, address = len(tab.frames), tab.url
        seen = tab.evaluate("document.body.innerText.includes('onerror')")
        mathjax = tab.evaluate("document.querySelectorAll('mjx-container, .MathJax').length")
        browser.close()
    theirs = [
        url
        for url in asked
        if url != files[name].as_uri()
        # What nbconvert's own template loads: MathJax and RequireJS.
        and not (name == "notebook" and urlsplit(url).netloc == "cdnjs.cloudflare.com")
        and urlsplit(url).scheme != "data"
    ]
    assert (theirs, opened, frames, address) == ([], [], 1, files[name].as_uri())
    assert seen  # as text
    assert mathjax == 0


# JupyterLab 4.6, @jupyterlab/apputils, Sanitizer: what matters here of its lists of tags and
# attributes. Its list of styles has every property that the summary uses.
LAB_TAGS = {"a", "br", "code", "details", "div", "em", "h2", "h3", "h4", "img", "li", "p", "pre",
            "small", "span", "strong", "summary", "table", "tbody", "td", "th", "thead", "tr",
            "ul"}  # fmt: skip
LAB_ATTRIBUTES = {"*": {"class", "style"}, "a": {"href"}, "details": {"open"},
                  "img": {"src", "alt", "width"}, "table": {"border"}, "td": {"colspan", "rowspan"},
                  "th": {"colspan", "rowspan"}}  # fmt: skip
# What GitHub leaves of a cell's HTML: no style, no class.
GITHUB_ATTRIBUTES = {"a": {"href"}, "details": {"open"}, "img": {"src", "alt"},
                     "td": {"colspan", "rowspan"}, "th": {"colspan", "rowspan"}}  # fmt: skip


def test_the_sanitisers_of_viewers_leave_what_is_to_be_read() -> None:
    import nh3

    source = summary_html(run("How many?"), notebook="run.ipynb")
    lab = nh3.clean(source, tags=LAB_TAGS, attributes=LAB_ATTRIBUTES, link_rel=None)
    assert lab == source
    github = nh3.clean(source, tags=LAB_TAGS, attributes=GITHUB_ATTRIBUTES, link_rel=None)
    assert [e.tag for e in elements(github)] == [e.tag for e in elements(source)]
    assert "".join(elements(github)[0].itertext()) == "".join(elements(source)[0].itertext())


def test_nbconvert_carries_the_fragment_over_unchanged(files: dict[str, Path]) -> None:
    given = elements(summary_html(hostile_records(), max_chars=5_000_000))[3]
    (kept,) = (
        e
        for e in elements(files["notebook"].read_text())
        if e.attrib.get("class") == "tex2jax_ignore mathjax_ignore"
    )
    assert [(e.tag, e.attrib) for e in kept.iter()] == [(e.tag, e.attrib) for e in given.iter()]
    assert "".join(kept.itertext()) == "".join(given.itertext())
