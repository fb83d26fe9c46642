"""Tables of a page: a person sorts and searches them, and nothing but that program runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from parts.test_answer_views import answer_of, page_of

from kernel_agent.notebook import sorting_program

ROWS = 30
TABLE = pd.DataFrame({
    "city": [f"City {number}" for number in range(ROWS)],
    "sold": [None if number == 7 else (number * 37) % 100 * 50.5 for number in range(ROWS)],
})  # fmt: skip


@pytest.fixture
def tab(browser: Any, tmp_path: Path) -> Any:
    """A tab with a page whose answer is the table, and what went wrong in it."""
    page = tmp_path / "run.html"
    page.write_text(page_of(answer_of(TABLE)), encoding="utf-8")
    with browser.new_context() as context:
        tab = context.new_page()
        tab.faults = []
        tab.on("console", lambda message: tab.faults.append(message.text))
        tab.on("pageerror", lambda error: tab.faults.append(str(error)))
        tab.goto(page.as_uri())
        yield tab


def column(tab: Any, number: int) -> list[str]:
    return [row.locator("td").nth(number).inner_text() for row in tab.locator("tbody tr").all()]


def test_a_click_on_a_head_sorts_by_number_and_what_is_missing_comes_last(tab: Any) -> None:
    before = column(tab, 0)
    press = tab.get_by_role("button", name="sold")
    press.click()
    *there, last = column(tab, 1)
    numbers = [float(text.replace(",", "")) for text in there]
    assert numbers == sorted(numbers)
    assert last == "—"
    press.press("Enter")
    *there, last = column(tab, 1)
    assert [float(text.replace(",", "")) for text in there] == numbers[::-1]
    assert last == "—"
    press.click()
    assert column(tab, 0) == before
    assert tab.faults == []


@pytest.mark.long
def test_a_table_whose_index_has_a_name_is_sorted_by_each_column(
    browser: Any, tmp_path: Path
) -> None:
    """Its head has two lines, of which each column has one."""
    page = tmp_path / "run.html"
    grouped = TABLE.set_index("city").to_html()
    two = pd.concat({"a": TABLE, "b": TABLE}, axis=1).iloc[:, [0, 3]].to_html()
    program = sorting_program()
    page.write_text(f"{grouped}{two}<script>{program};makeSortable(document)</script>")
    with browser.new_context() as context:
        tab = context.new_page()
        tab.goto(page.as_uri())
        assert tab.get_by_role("button").all_inner_texts() == ["sold", "city"]
        tab.get_by_role("button", name="sold").click()
        *there, last = column(tab, 0)[:ROWS]
        assert [float(text) for text in there] == sorted(map(float, there))
        assert last == "NaN"
        tab.get_by_role("button", name="city").click()
        first = tab.locator("tbody").first.locator("tr th").all_inner_texts()
        assert first == [f"City {number}" for number in range(ROWS)]


@pytest.mark.long
def test_names_with_numbers_are_in_the_order_of_a_person(tab: Any) -> None:
    tab.get_by_role("button", name="sold").click()
    tab.get_by_role("button", name="city").click()
    assert column(tab, 0) == [f"City {number}" for number in range(ROWS)]
    assert tab.locator("th[aria-sort]").count() == 1


@pytest.mark.long
def test_the_rows_that_have_all_words_are_left(tab: Any) -> None:
    wanted = {city for city in column(tab, 0) if "2" in city}
    tab.get_by_label("Search the table").fill("CITY 2")
    shown = tab.locator("tbody tr:visible").all_inner_texts()
    assert [text for text in shown if "2" not in text] == []
    assert {text.partition("\t")[0] for text in shown} >= wanted
    tab.get_by_label("Search the table").fill("—")
    assert tab.locator("tbody tr:visible").all_inner_texts() == ["City 7\t—"]
    tab.get_by_label("Search the table").fill("")
    assert tab.locator("tbody tr:visible").count() == ROWS


def test_of_a_table_of_which_a_part_is_shown_nothing_is_sorted(
    browser: Any, tmp_path: Path
) -> None:
    """The largest of it could be among the rest."""
    page = tmp_path / "run.html"
    whole = pd.DataFrame({"n": range(500), "of": [f"{number}" for number in range(500)]})
    page.write_text(page_of(answer_of(whole)), encoding="utf-8")
    with browser.new_context() as context:
        tab = context.new_page()
        tab.goto(page.as_uri())
        assert "500 rows, 2 columns; the first 200 shown" in tab.locator("body").inner_text()
        assert tab.get_by_role("button").count() == 0
