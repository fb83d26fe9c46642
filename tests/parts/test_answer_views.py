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
    "a list of dicts in a dict": {"top": [{"name": "Ann, B.", "sold": 1234567}, {"name": "Bob"}]},
    "a series of days": pd.Series([1.5, 2], index=pd.date_range("2025-01-31", periods=2)),
    "a table of times": pd.DataFrame({"at": pd.date_range("2025-01-01", periods=2, freq="min")}),
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


def test_dates_are_plain_wherever_they_stand() -> None:
    rows = {kind: word_answer(answer_of(value)).rows for kind, value in KINDS.items()}
    assert rows["a series of days"] == (("2025-01-31", "1.5"), ("2025-02-01", "2.0"))
    assert rows["a table of times"] == (("2025-01-01 00:00",), ("2025-01-01 00:01",))
    days = pd.DataFrame([[1, 2]], columns=pd.date_range("2025-01-31", periods=2))
    assert word_answer(answer_of(days)).columns == ("2025-01-31", "2025-02-01")
    days.columns = pd.MultiIndex.from_product([days.columns[:1], ["sum", "mean"]])
    assert word_answer(answer_of(days)).columns == ("2025-01-31, sum", "2025-01-31, mean")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"days": 2, "hours": 3}, "2 days, 3:00:00"),
        ({"hours": -1}, "minus 1:00:00"),
        ({"hours": -26}, "minus 1 day, 2:00:00"),
        ({"seconds": 1.5}, "0:00:01.5"),
    ],
)
def test_a_duration_is_large_and_counted_from_zero(given: dict[str, float], said: str) -> None:
    span = pd.Timedelta(**given)
    worded = word_answer(answer_of(span))
    assert (worded.kind, worded.text) == ("number", said)
    assert f">{said}</p>" in page_of(answer_of(span))
    assert word_answer(answer_of(pd.DataFrame({"lag": [span]}))).rows == ((said,),)


def test_rows_within_a_dict_are_told_apart() -> None:
    value = KINDS["a list of dicts in a dict"]
    said = "name: Ann, B. · sold: 1,234,567; name: Bob"
    assert word_answer(answer_of(value)).rows == (("top", said),)
    many = answer_of({"n": list(range(30)), "rows": [{"k": k, "of": "x" * 90} for k in range(40)]})
    (_, numbers), (_, rows) = word_answer(many).rows
    assert numbers.endswith("18, 19, … 30 in all")
    assert rows == "40 rows"


def test_a_long_text_in_a_table_is_whole_where_there_is_room() -> None:
    words = [f"word{number}" for number in range(60)]
    answer = answer_of(pd.DataFrame({"n": [1], "why": [" ".join(words)], "m": [2]}))
    for shown in (page_of(answer), notebook_answer(answer), terminal_of(answer, 60)):
        assert [word for word in words if word not in shown] == []
    assert max(map(len, answer.text.splitlines())) < 110


@pytest.mark.parametrize("width", [60, 80, 120])
def test_columns_that_do_not_fit_a_terminal_follow_below(width: int) -> None:
    names = [f"column {number}" for number in range(12)]
    frame = pd.DataFrame([[1234567.5] * 12], columns=names, index=pd.Index(["N"], name="region"))
    shown = terminal_of(answer_of(frame), width)
    assert [name for name in names if name not in shown] == []
    assert shown.count("region") == shown.count("│ N ") == {60: 4, 80: 3, 120: 2}[width]
    assert max(map(len, shown.splitlines())) <= width
    wide = pd.DataFrame([range(10**9, 10**9 + 50)])
    assert "more columns" in terminal_of(answer_of(wide), width)


def test_a_link_is_written_out_as_words_and_address() -> None:
    answer = answer_of("See [the report](https://example.org/r) and `[a](b)`.")
    page = page_of(answer)
    assert "the report (https://example.org/r)" in page
    assert "[a](b)" in page
    assert "the report (https&#58;//example.org/r)" in notebook_answer(answer)


def test_one_line_is_text_like_any_other_and_a_day_stays_in_it() -> None:
    for value in ([1, 2], None, Image.new("RGB", (2, 2))):
        assert "<pre" not in page_of(answer_of(value)).partition("How it came about")[0]
    day = page_of(answer_of(pd.DataFrame({"day": pd.to_datetime(["2025-01-01"]), "n": [1]})))
    assert 'white-space:nowrap;padding:0.2em 0.8em">2025-01-01<' in day


def test_a_figure_is_told_by_its_titles() -> None:
    told = {"application/vnd.kernel-agent.value+json": {"kind": "Figure", "titles": ["Sold <b>"]}}
    for titles, alt in ((told, "Figure of step 1: Sold b"), ({}, "Figure of step 1: I draw it")):
        data = {"image/png": png(), **titles}
        display = {"output_type": "display_data", "data": data, "metadata": {}}
        result = CellResult(status="ok", outputs=(display,))
        drew = step(1, Code(source="plot()", thought="I draw it."), result)
        records = [start("one", "What?"), drew, stop_with(answer_of(FRAME))]
        assert page_html(records).count(f'alt="{alt}"') == 2
        outputs = [o for c in notebook_of(records).cells for o in c.get("outputs", [])]
        assert [o["metadata"]["image/png"]["alt"] for o in outputs] == [alt, alt]


def test_numbers_of_a_notebook_are_written_as_digits() -> None:
    frame = pd.DataFrame({"n": [4, 5], "x": [4.5, 1e-7], "y": ["4.", "-5"]})
    for value in (frame, 4.5, -4, [4, 5], {"n": 4, "x": -4.5}, pd.Timestamp("2025-01-01")):
        assert "&#" not in notebook_answer(answer_of(value))


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
    source = source.replace("<span>&#36;</span>", "")  # as no formula is written
    assert not set("<[`$") & set(source.replace("## Answer", ""))
    assert "http://" not in source
