"""The contents of a page with several questions, in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote

from parts.test_page import ODD, asked

from kernel_agent.notebook.page import page_html


def test_a_line_of_the_contents_leads_to_its_question(browser: Any, tmp_path: Path) -> None:
    page = tmp_path / "run.html"
    page.write_text(page_html(list(asked(*ODD))), encoding="utf-8")
    with browser.new_context(viewport={"width": 900, "height": 250}) as context:
        tab = context.new_page()
        tab.goto(page.as_uri())
        for place, question in enumerate(ODD):
            link = tab.locator("ul").first.locator("a").nth(place)
            link.click()
            assert unquote(tab.evaluate("location.hash")[1:]) == tab.evaluate(
                "document.querySelector(':target').id"
            )
            heading = tab.locator(":target")
            assert heading.inner_text() == link.inner_text() == question
            assert heading.bounding_box()["y"] < 250
