"""A run at terminals of 60, 80 and 120 columns: nothing is cut, everything fits."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.text import Text

from kernel_agent.cli.layout import wrap
from kernel_agent.cli.live import LiveView
from kernel_agent.notebook.seen import person_text
from kernel_agent.notebook.table_text import Cells, table_lines
from kernel_agent.records import (
    Acting,
    Answer,
    CellError,
    CellResult,
    Changes,
    Code,
    ExitStatus,
    Observation,
    OutputDict,
    RunStart,
    RunStop,
    Step,
    Variable,
)

WIDTHS = (60, 80, 120)
VALUE_MIME = "application/vnd.kernel-agent.value+json"
ANSWER_MIME = "application/vnd.kernel-agent.answer+json"
NAMES = ["species", "island", "bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"]
THOUGHT = (
    "I compare the average body mass of each species, because the question is which of them is "
    "heaviest; 1,234,567 observations of 12 stations are in the table, and 3.14159 of them count."
)
SENTENCE = (
    "Average body mass by species: Gentoo 5,076 g (n = 123); Chinstrap 3,733 g (n = 68); Adelie "
    "3,701 g (n = 151) (2 rows with a missing value are left out)."
)
MARKDOWN = (
    "# Result\n\nThe **Gentoo** are heaviest, at 5,076 g on average of 123 birds that were weighed "
    "in three years:\n\n- Gentoo 5,076 g\n- Adelie 3,701 g\n\n| species | mass |\n|---|---|\n"
    "| Gentoo | 5,076 |\n"
)


def table(columns: int, rows: int = 3) -> OutputDict:
    """Return the display of a table, as a kernel describes it."""
    names = NAMES[:columns]
    described = {
        "columns": [names], "column_names": [""], "index": [[str(n) for n in range(rows)]],
        "index_names": [""], "cells": [[f"{name[:3]}{n}" for n in range(rows)] for name in names],
        "row_gap": None, "column_gap": None, "shape": [344, columns],
    }  # fmt: skip
    value = {"kind": "DataFrame", "shape": [344, columns], "preview": "", "table": described}
    data = {"text/plain": "a table", VALUE_MIME: value}
    return {"output_type": "execute_result", "data": data, "metadata": {}}


def stream(text: str, name: str = "stdout") -> OutputDict:
    return {"output_type": "stream", "name": name, "text": text}


def step(*outputs: OutputDict, code: str = "df.groupby('species').mean()", **fields) -> Step:
    result = fields.pop("result", None) or CellResult(
        status="ok", outputs=outputs, changes=Changes(added=(Variable(name="df", type="T"),))
    )
    images = fields.pop("images", ())
    return Step(
        run_id="r", number=1, action=Code(source=code, thought=THOUGHT), result=result,
        observation=Observation(
            text="DataFrame: 3 rows x 6 columns\nstr: species\n[variables: new df T]",
            images=images,
        ), **fields,
    )  # fmt: skip


def failed() -> Step:
    error = CellError(
        ename="KeyError", evalue="'area'",
        traceback=("Cell In[1], line 1\n----> 1 df['area']", "KeyError: 'area'"),
    )  # fmt: skip
    return step(result=CellResult(status="error", error=error))


def stop(**fields) -> RunStop:
    return RunStop(
        run_id="r", **{"status": ExitStatus.ANSWERED, "steps": 1, "seconds": 1.0} | fields
    )


def answered(text: str, value: object = None) -> RunStop:
    kind = "text" if value is None else type(value).__name__
    return stop(answer=Answer(text=text, value=value, kind=kind))


RUNS = {
    "sentence": (step(stream(SENTENCE)), answered(SENTENCE, SENTENCE)),
    "markdown": (step(), answered(MARKDOWN, MARKDOWN)),
    "number": (step(), answered("np.float64(91219.93250000001)", 91219.93250000001)),
    "dict": (step(), answered("{'best month': …}", {"best month": "June", "sold": 1234567})),
    "table": (step(table(6)), answered("a table")),
    "failed": (failed(), stop(status=ExitStatus.LOOP_DETECTED, message="KeyError: 'area'")),
    "stopped": (
        step(table(6)),
        stop(
            status=ExitStatus.INTERRUPTED, message="stopped on request",
            partial="1 step ran, 1 without an error. Step 1 showed last:\n[variables: new df T]",
        ),
    ),
}  # fmt: skip


@pytest.fixture(params=WIDTHS)
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", str(request.param))
    for name in ("KITTY_WINDOW_ID", "TERM_PROGRAM", "LC_TERMINAL", "TMUX"):
        monkeypatch.delenv(name, raising=False)
    return request.param


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def screen(*events: object, verbose: bool = False) -> str:
    """Return what stays on the screen, without colours."""
    shown = Terminal()
    with LiveView(shown, live=False, verbose=verbose, clock=lambda: 0.0) as view:
        view(RunStart(run_id="r", task="Which species is heaviest?", time="", model="offline",
                      format="fenced", budget={}, sandbox={}))  # fmt: skip
        for event in events:
            view(event)
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.getvalue())


def words(text: str) -> Iterator[str]:
    """Yield words and numbers without the marks of Markdown around them."""
    for word in text.split():
        if bare := word.strip("*|#-"):
            yield bare


@pytest.mark.parametrize("name", RUNS)
def test_every_line_fits_and_no_word_or_number_is_cut(name: str, width: int) -> None:
    """At each width, whatever a run shows."""
    done, ended = RUNS[name]
    shown = screen(Acting(number=1, action=done.action), done, ended)
    assert all(cell_len(line) <= width for line in shown.split("\n")), shown
    there = set(shown.replace("│", " ").split())
    said = [THOUGHT, done.action.source]
    said += [SENTENCE] if name == "sentence" else [MARKDOWN] if name == "markdown" else []
    for word in (word for text in said for word in words(text)):
        assert word in there, (word, shown)


def test_a_table_shows_the_columns_that_fit_and_counts_the_others(width: int) -> None:
    """So a row never becomes two, and nobody takes a part for the whole."""
    shown = screen(*RUNS["table"])
    more = {60: "… 2 more columns", 80: "… 1 more column", 120: ""}[width]
    kept = [name for name in NAMES if name in shown]
    assert kept == NAMES[: {60: 4, 80: 5, 120: 6}[width]]
    assert (more in shown) if more else "more column" not in shown
    assert "344 rows in all" in shown


def test_a_person_is_shown_no_variables_types_or_sizes_of_pictures(width: int) -> None:
    """With --verbose it is what the model reads."""
    for name, events in RUNS.items():
        assert "[variables" not in screen(*events), name
        assert "3 rows x 6 columns" not in screen(*events), name
    assert "[variables: new df T]" in screen(*RUNS["table"], verbose=True)


def test_the_answer_stands_once_in_a_box(width: int) -> None:
    """Not below its cell as well."""
    data = {"text/plain": SENTENCE, ANSWER_MIME: {"kind": "str", "value": SENTENCE}}
    given = {
        "output_type": "display_data", "data": data,
        "metadata": {"kernel_agent": {"role": "answer"}},
    }  # fmt: skip
    shown = screen(step(given), answered(SENTENCE, SENTENCE))
    assert shown.count("Gentoo") == 1
    assert "╭─ Answer ─" in shown
    assert "Observation" not in shown


@pytest.mark.parametrize(
    ("value", "said"),
    [(1234567, "1,234,567"), (91219.93250000001, "91,219.93"), (0.25, "0.25"), (7, "7")],
)
def test_a_number_has_thousands_and_no_type(value: float, said: str, width: int) -> None:
    """As a person writes it."""
    shown = screen(answered(f"np.float64({value!r})", value))
    assert re.search(rf"│ {re.escape(said)} +│", shown)
    assert "float64" not in shown


def test_markdown_is_rendered_and_its_links_are_text(width: int) -> None:
    """No mark of it is left; an address that a model wrote is not hidden behind a word."""
    shown = screen(answered(f"{MARKDOWN}\nSee [here](http://example.org/x)."))
    assert not any(mark in shown for mark in ("**", "# Result", "|---"))
    assert "• Gentoo 5,076 g" in shown
    assert "http://example.org/x" in shown
    assert "\x1b]8" not in shown


def test_a_text_that_is_no_markdown_keeps_its_lines(width: int) -> None:
    """A list of lines is not made a paragraph."""
    shown = screen(answered("North 3\nSouth 4"))
    assert re.search(r"│ North 3 +│\n│ South 4 +│", shown)


def test_what_was_achieved_is_told_in_the_same_form(width: int) -> None:
    """Below what is said of the ending."""
    shown = screen(*RUNS["stopped"])
    quoted = shown[shown.index("Achieved so far:") :]
    assert "Step 1 showed last:" in quoted
    assert "bill_length_mm" in quoted


@pytest.mark.parametrize(
    ("status", "limit", "said"),
    [
        ("timeout", "cell_seconds", "it passed a cell's limit. --cell-seconds raises it."),
        ("timeout", "max_seconds", "the run's limit of time. --max-seconds raises it."),
        ("interrupted", "", "You stopped this cell."),
    ],
)
def test_how_a_cell_ended_is_said_with_its_option(status: str, limit: str, said: str) -> None:
    """Which limit it passed, and what raises it."""
    assert said in person_text(step(result=CellResult(status=status, seconds=120.2, limit=limit)))


# --- lines and tables ----------------------------------------------------------------------------

written = st.text(st.sampled_from("ab 1,.\n") | st.characters(categories=["L", "N"]), max_size=300)


@given(written, st.integers(20, 130), st.sampled_from(["", "    "]))
def test_wrapping_loses_nothing_and_breaks_between_words_only(
    text: str, width: int, indent: str
) -> None:
    """Every word is whole; a line that is too wide is a single word."""
    lines = [line.plain for line in wrap(Text(text), width, indent)]
    assert "".join("".join(lines).split()) == "".join(text.split())
    for line in lines:
        assert cell_len(line) <= max(width, 24) or len(line.split()) == 1
    for word in text.split():
        if word.isascii():
            assert any(word in line.split() for line in lines)


def test_text_without_blanks_between_words_is_broken_at_its_characters() -> None:
    """Scripts that are written so would else never wrap."""
    lines = [line.plain for line in wrap(Text("数据分析" * 30), 60)]
    assert all(cell_len(line) <= 60 for line in lines)
    assert "".join(lines) == "数据分析" * 30


def test_an_address_stays_whole() -> None:
    """The terminal continues it, and it is copied in one piece."""
    address = "https://example.org/" + "x" * 100
    assert address in [line.plain for line in wrap(Text(f"see {address} now"), 60)]


def test_numbers_stand_on_the_right_and_text_on_the_left() -> None:
    """As in any table."""
    cells = Cells(headings=["name", "n"], rows=[["a", "1,234"], ["long", "5"]])
    assert table_lines(cells, 40) == ["name      n", "a     1,234", "long      5"]
