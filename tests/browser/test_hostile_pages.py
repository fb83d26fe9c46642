"""Pages with hostile text in every field: a browser shows it and does nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import nbformat
import pandas as pd
import pytest
from support.hostile import HOST, HTML, exported_page, summary_pages

from browser.jupyter import Server, open_notebook
from kernel_agent.notebook.markdown import code_block, inline, markdown, quote_text, verbatim
from kernel_agent.notebook.outputs import displayable

# What nbconvert's own template loads: MathJax and RequireJS.
NBCONVERTS = "cdnjs.cloudflare.com"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    return {"exported": exported_page(folder), **summary_pages(folder)}


@pytest.fixture
def tab(browser: Any) -> Any:
    """A tab of its own that may read files only, and notes what it asks for and what opens."""
    with browser.new_context() as context:
        tab = context.new_page()
        tab.asked, tab.opened_dialogs = [], []

        def answer(route: Any) -> None:
            tab.asked.append(route.request.url)
            if urlsplit(route.request.url).scheme == "file":
                route.continue_()
            else:
                route.abort()

        def dismiss(dialog: Any) -> None:
            tab.opened_dialogs.append(dialog.message)
            dialog.dismiss()

        context.route("**/*", answer)
        tab.on("dialog", dismiss)
        yield tab


def unfold(tab: Any, page: Path) -> None:
    tab.goto(page.as_uri(), wait_until="load")
    tab.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    tab.wait_for_timeout(500)


@pytest.mark.parametrize("name", ["page", "fragment", "notebook"])
def test_a_browser_shows_it_and_asks_nobody(tab: Any, pages: dict[str, Path], name: str) -> None:
    """No request, no dialog, no frame, no navigation, and every fold is opened."""
    address = pages[name].as_uri()
    unfold(tab, pages[name])
    theirs = [
        url
        for url in tab.asked
        if url != address
        and not (name == "notebook" and urlsplit(url).netloc == NBCONVERTS)
        and urlsplit(url).scheme != "data"
    ]
    assert (theirs, tab.opened_dialogs, len(tab.frames), tab.url) == ([], [], 1, address)
    assert tab.evaluate("document.body.innerText.includes('onerror')")  # as text
    assert tab.evaluate("document.querySelectorAll('mjx-container, .MathJax').length") == 0


def test_a_browser_shows_it_without_a_dialog_and_without_a_request(
    tab: Any, pages: dict[str, Path]
) -> None:
    unfold(tab, pages["exported"])
    assert tab.asked  # the page itself
    theirs = [url for url in tab.asked if urlsplit(url).netloc not in ("", NBCONVERTS)]
    assert (theirs, tab.opened_dialogs, len(tab.frames)) == ([], [], 1)


def test_the_test_of_the_browser_can_fail(tab: Any, tmp_path: Path) -> None:
    """The same payloads, unguarded, do act: a test that nothing can fail proves nothing."""
    page = tmp_path / "bad.html"
    page.write_text("".join(HTML[2:7]) + HTML[3])
    unfold(tab, page)
    assert tab.opened_dialogs
    assert any(HOST in url for url in tab.asked)


FORMULAS = rf"$\href{{http://{HOST}/}}{{x}}$ \(y\) \[z\] $$w$$ \begin{{align}}v\end{{align}}"


def test_no_table_and_no_text_is_a_formula(server: Server, browser: Any) -> None:
    """In a notebook that is opened and not run, where what entities have become is looked at, too.

    The controls are HTML that is no table of a run, and Markdown that the exporter did not write.
    """
    texts = ["$x^2$", rf"$\href{{http://{HOST}/}}{{x}}$", r"\(y_1\)", "$5 and $6"]
    shown = displayable({"data": {"text/html": pd.DataFrame({"$a$": texts}).to_html()}})
    control = {"data": {"text/html": "<p>$x^2$</p>"}}
    written = [
        f"# {verbatim(FORMULAS)}",
        *map(markdown, (FORMULAS, f"# {FORMULAS}", f"`{FORMULAS}`", f"```\n{FORMULAS}\n```")),
        quote_text(FORMULAS),
        f"| {inline(FORMULAS)} |\n|---|\n| {inline(FORMULAS)} |",
        code_block(FORMULAS),
    ]
    name = server.write("formulas.ipynb", "1")
    book = nbformat.read(server.folder / name, as_version=4)
    book.cells[0].outputs = [
        nbformat.v4.new_output("display_data", **one) for one in (shown, control)
    ]
    book.cells += map(nbformat.v4.new_markdown_cell, [*written, "CONTROL $x^2$"])
    nbformat.write(book, server.folder / name)
    tab = open_notebook(browser, server, name)
    tab.wait("() => document.querySelector('.jp-OutputArea p mjx-container')")
    tab.wait("() => document.querySelector('.jp-MarkdownCell mjx-container')")
    assert "$5 and $6" in tab.output(0)
    assert tab.page.locator("table mjx-container, table a").count() == 0
    assert tab.page.locator(".jp-MarkdownCell mjx-container").count() == 1
    assert tab.page.locator(f"a[href^='http'][href*='{HOST}']").count() == 0
    texts_shown = tab.page.locator(".jp-MarkdownCell").all_inner_texts()
    assert sum(text.count("$$w$$") for text in texts_shown) == len(written) + 1
    tab.page.context.close()
    server.end_kernel(name)  # others count them
