"""An answer that has rows is the same in every view: terminal, page and notebook."""

from __future__ import annotations

import base64
from decimal import Decimal
from io import BytesIO, StringIO
from typing import Any

import html5lib
import numpy as np
import pandas as pd
import pytest
from markdown_it import MarkdownIt
from PIL import Image
from rich.console import Console
from support.golden import start, step

from kernel_agent.cli.drawing import drawn
from kernel_agent.inkernel.display import describe_answer
from kernel_agent.kernel.collect import answer_of as read_answer
from kernel_agent.notebook import page_html
from kernel_agent.notebook.exporter import notebook_of
from kernel_agent.records import (
    ANSWER_MIME,
    Answer,
    Block,
    CellResult,
    Code,
    ExitStatus,
    RunStop,
    with_words,
    word_answer,
)

FRAME = pd.DataFrame(
    {"revenue": [1234567.89, np.nan, 2.5], "units": [4444, 1, 2]}, index=["North", "South", "East"]
)
SALES = pd.DataFrame({"region": list("NNSS"), "what": list("abab"), "v": [1234567.5, 2, 3, 4]})
KINDS: dict[str, Any] = {
    "a table with names": FRAME,
    "a table that was sorted": pd.DataFrame(
        {"region": list("NSE"), "sold": [9.0, 8, 7]}, [2, 0, 1]
    ),
    "a table with an index of its own": FRAME.rename_axis("region"),
    "a pivot": SALES.pivot_table(index="region", columns="what", values=["v"]),
    "a series": pd.Series([1234567.891, np.nan], index=["x", "y"]),
    "a list of dicts": [{"region": "N", "sold": 1234567.5}, {"region": "S", "sold": None}],
    "a grid": np.arange(6).reshape(2, 3) * 1234567.5,
    "a dict": {"best": "North", "revenue": 1234567.891, "n": 12},
    "a dict in a dict": {"best": {"region": "N", "months": [1, 1234]}, "worst": {"region": "S"}},
}
SIZES = {
    "a table with names": "3 rows, 2 columns",
    "a table with an index of its own": "3 rows, 2 columns",
    "a table that was sorted": "3 rows, 2 columns",
    "a pivot": "2 rows, 2 columns",
    "a list of dicts": "2 rows, 2 columns",
    "a grid": "2 rows, 3 columns",
}


def png() -> str:
    made = BytesIO()
    Image.new("RGB", (30, 20)).save(made, "PNG")
    return base64.b64encode(made.getvalue()).decode()


def answer_of(value: Any) -> Answer:
    return read_answer({"text/plain": repr(value), ANSWER_MIME: describe_answer(value)})


def stop_with(answer: Answer) -> RunStop:
    return RunStop(run_id="one", status=ExitStatus.ANSWERED, answer=answer)


def texts(rows: Any) -> list[list[str]]:
    return [[" ".join("".join(cell.itertext()).split()) for cell in row] for row in rows]


def table_in(html: str) -> list[list[str]]:
    tree = html5lib.parse(html, namespaceHTMLElements=False)
    return [row for row in texts(next(tree.iter("table")).iter("tr")) if any(row)]


def page_of(answer: Answer, *steps: Any) -> str:
    return page_html([start("one", "What?"), *steps, stop_with(answer)])


def notebook_answer(answer: Answer) -> str:
    return notebook_of([start("one", "What?"), stop_with(answer)]).cells[1].source


def terminal_of(answer: Answer, width: int = 100) -> str:
    console = Console(width=width, record=True, file=StringIO())
    block = Block(kind="answer", text=answer.text, of=stop_with(answer))
    for line in drawn(block, width):
        console.print(line)
    return console.export_text()


@pytest.mark.parametrize("kind", KINDS)
def test_all_views_draw_the_same_rows(kind: str) -> None:
    answer = answer_of(KINDS[kind])
    worded = word_answer(answer)
    heads = [worded.columns] if any(worded.columns) else []
    wanted = [[text.strip() for text in row] for row in (*heads, *worded.rows)]
    assert table_in(page_of(answer)) == wanted
    rendered = MarkdownIt().enable("table").render(notebook_answer(answer))
    assert table_in(str(rendered)) == wanted
    shown = terminal_of(answer)
    for row in wanted:
        for text in row:
            assert text in shown
    if kind in SIZES:
        assert worded.size == SIZES[kind]
        for view in (page_of(answer), notebook_answer(answer), shown):
            assert worded.size in view


def test_what_the_rows_say() -> None:
    rows = {kind: word_answer(answer_of(value)).rows for kind, value in KINDS.items()}
    assert rows["a table with names"][1] == ("South", "—", "1")
    assert rows["a table that was sorted"] == (("N", "9"), ("S", "8"), ("E", "7"))
    assert rows["a dict"] == (("best", "North"), ("revenue", "1,234,567.89"), ("n", "12"))
    assert rows["a dict in a dict"] == (
        ("best", ""), ("  region", "N"), ("  months", "1 · 1,234"),
        ("worst", ""), ("  region", "S"),
    )  # fmt: skip


def test_an_index_without_a_name_has_no_head() -> None:
    columns = {kind: word_answer(answer_of(value)).columns for kind, value in KINDS.items()}
    assert columns["a table with names"] == ("", "revenue", "units")
    assert columns["a table with an index of its own"] == ("region", "revenue", "units")
    named = pd.DataFrame({"index": [1, 2], "v": [3, 4]})
    assert word_answer(answer_of(named)).columns == ("index", "v")


def test_numbers_of_a_list_are_told_apart_from_thousands() -> None:
    assert answer_of([1234567, 1, 234]).text == "1,234,567 · 1 · 234"
    assert answer_of([1.5, 2.25]).text == "1.5, 2.25"


def test_a_decimal_keeps_its_zeros() -> None:
    given = answer_of(Decimal("1234567.50"))
    assert given.text == "1,234,567.50"
    assert with_words(given).text == given.text


@pytest.mark.parametrize("width", [40, 60, 120])
def test_a_long_value_is_wrapped_at_a_terminal_and_never_cut(width: int) -> None:
    words = [f"word{number}" for number in range(60)]
    shown = terminal_of(answer_of({"why": " ".join(words), "n": 3}), width)
    assert [word for word in words if word not in shown] == []
    assert max(map(len, shown.splitlines())) <= width


def test_a_table_does_not_hide_the_figure_of_the_run() -> None:
    display = {"output_type": "display_data", "data": {"image/png": png()}, "metadata": {}}
    drew = step(1, Code(source="plot()"), CellResult(status="ok", outputs=(display,)))
    page = page_of(answer_of(FRAME), drew)
    assert page.index("1,234,567.89") < page.index("<img") < page.index("How it came about")


def test_a_table_is_readable_in_a_diff_and_nothing_in_it_is_live() -> None:
    hostile = pd.DataFrame({"<b>x</b>": ["[a](http://b.c)", "`x` | y", "$a$"], "n": [1.5, 2, 3]})
    source = notebook_answer(answer_of(FRAME))
    assert "| North | 1,234,567.89 | 4,444 |" in source
    source = notebook_answer(answer_of(hostile))
    assert not set("<[`$") & set(source.replace("## Answer", ""))
    assert "http://" not in source
