"""The contents of a page with several questions, in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from parts.test_page import ODD, asked

from kernel_agent.notebook.page import page_html


@pytest.mark.parametrize("place", range(len(ODD)))
def test_a_line_of_the_contents_leads_to_its_question(
    browser: Any, tmp_path: Path, place: int
) -> None:
    page = tmp_path / "run.html"
    page.write_text(page_html(list(asked(*ODD))), encoding="utf-8")
    with browser.new_context(viewport={"width": 900, "height": 250}) as context:
        tab = context.new_page()
        tab.goto(page.as_uri())
        link = tab.locator("ul").first.locator("a").nth(place)
        link.click()
        assert unquote(tab.evaluate("location.hash")[1:]) == tab.evaluate(
            "document.querySelector(':target').id"
        )
        heading = tab.locator(":target")
        assert heading.inner_text() == link.inner_text() == ODD[place]
        assert heading.bounding_box()["y"] < 250
