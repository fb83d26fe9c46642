"""What a step does, as one sentence: from its thought; nothing is guessed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_agent.notebook.headings import (
    MAX_SENTENCE,
    rest_of_thought,
    rows_left_out,
    step_sentence,
)
from kernel_agent.records.action import Code
from kernel_agent.records.cell import (
    CellError,
    CellResult,
    Changes,
    Decision,
    HostCall,
    Observation,
    Variable,
)
from kernel_agent.records.trace import Step


def step(source: str = "", thought: str = "", status: str = "ok", **fields: Any) -> Step:
    result = CellResult(status=status, **fields)  # type: ignore[arg-type]  # one of five texts
    return Step(run_id="r", number=1, action=Code(source=source, thought=thought),
                observation=Observation(text=""), result=result)  # fmt: skip


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("df = pd.read_csv('data/penguins.csv')", "Loads penguins.csv"),
        ("import re\n# How heavy is each species?\n# Then\nx", "How heavy is each species?"),
        ("# /// script\n# dependencies = []\n# ///\n# Weighs them\nx", "Weighs them"),
        ("#!/bin/sh\ndf = pd.read_csv(url)", ""),
        ("df.groupby('species').mass.mean()", ""),
        ("", ""),
    ],
)  # fmt: skip
def test_without_a_thought_its_first_comment_or_the_file_that_it_loads_is_the_heading(
    source: str, sentence: str
) -> None:
    assert step_sentence(step(source)) == sentence


LONG = (
    "I drop those that are old and those of the islands: `a, b` of 1990, since nobody weighed them "
    "as they should have been weighed, and they are few."
)


@pytest.mark.parametrize(
    ("thought", "sentence", "rest"),
    [
        ("I look at the table. Then I count.", "I look at the table", "Then I count."),
        ("Use `df.mean()` of **mass**, e.g. 3.5 kg", "Use df.mean() of mass, e.g. 3.5 kg", ""),
        ("## Count\nthem", "Count", "them"),
        ("Load the\ndata first:\n- a\n- b", "Load the data first", "- a\n- b"),
        ("Next.", "", "Next."),
        ("I am an analyst. I count.", "", "I am an analyst. I count."),
        ("I am counting rows.", "I am counting rows", ""),
        ("- a list\n- of plans", "", "- a list\n- of plans"),
        ("```\ncode\n```", "", "```\ncode\n```"),
        ("x " * 90, f"{'x ' * 49}…", "x " * 90),
        ("I drop all " + "very " * 30 + "old rows.", f"I drop all {'very ' * 17}…",
         "I drop all " + "very " * 30 + "old rows."),
        (LONG, "I drop those that are old and those of the islands: a, b of 1990",
         LONG),
        ("The U.S. figures of Dr. No come first. Then", "The U.S. figures of Dr. No come first",
         "Then"),
        ("Call `obj.__init__` and *then* `a_b*c`. Go", "Call obj.__init__ and then a_b*c", "Go"),
        ("", "", ""),
    ],
)  # fmt: skip
def test_the_first_sentence_of_a_thought_is_the_heading_and_not_said_again(
    thought: str, sentence: str, rest: str
) -> None:
    one = step("x = 1", thought)
    assert step_sentence(one) == sentence
    assert rest_of_thought(one) == rest


@pytest.mark.parametrize(
    ("ename", "evalue", "traceback", "sentence"),
    [
        ("KeyError", "'area'", ("File pandas/core.py",), "Failed: no column area"),
        ("KeyError", "'area'", (), "Failed: no key area"),
        ("NameError", "name 'x' is not defined", (), "Failed: name 'x' is not defined"),
        ("AssertionError", "", (), "Failed: AssertionError"),
    ],
)
def test_a_step_that_failed_says_why(
    ename: str, evalue: str, traceback: tuple[str, ...], sentence: str
) -> None:
    error = CellError(ename=ename, evalue=evalue, traceback=traceback)
    assert step_sentence(step("x", "I try it out.", "error", error=error)) == sentence


@pytest.mark.parametrize(
    ("status", "sentence"),
    [("timeout", "Took too long: I wait a little"), ("interrupted", "Stopped: I wait a little"),
     ("dead", "The kernel ended: I wait a little")],
)  # fmt: skip
def test_a_step_that_did_not_come_to_its_end_says_so(status: str, sentence: str) -> None:
    assert step_sentence(step("x", "I wait a little.", status)) == sentence


def test_calls_and_denials_are_said() -> None:
    call = HostCall(name="rate", arguments={}, ok=True)
    assert step_sentence(step("rate('USD')", calls=(call,))) == "Calls rate"
    denied = Step(run_id="r", number=1, action=Code(source="x = 1"),
                  observation=Observation(text=""),
                  decision=Decision(allowed=False, by="person"))  # fmt: skip
    assert step_sentence(denied) == "Denied"


@given(st.text(max_size=200), st.text(max_size=80))
def test_any_step_has_one_line_at_most(thought: str, source: str) -> None:
    said = step_sentence(step(source, thought))
    assert len(said.splitlines()) <= 1
    assert len(said) <= MAX_SENTENCE + 60


def sized(source: str, **shapes: str) -> Step:
    added = tuple(Variable(name=n, type="DataFrame", shape=s) for n, s in shapes.items())
    return step(source, changes=Changes(added=added))


READ = sized("df = pd.read_csv('data/p.csv')", df="344 x 8")


@pytest.mark.parametrize(
    ("later", "said"),
    [
        (sized("df = df.dropna(subset=['sex'])", df="342 x 8"), True),
        (sized("clean = df.drop_duplicates().dropna().copy()", clean="342 x 8"), True),
        (sized("clean = df[df.mass > 3]", clean="342 x 8"), False),
        (sized("df = df.dropna(axis=1)", df="344 x 6"), False),
        (sized("df = df.head(9).dropna()", df="8 x 8"), False),
        (sized("df['x'] = 1\nclean = df.dropna()", clean="342 x 9"), False),
        (sized("df = df.dropna()\ndf = df.head(3)", df="3 x 8"), False),
        (sized("clean = other.dropna()", clean="342 x 8"), False),
        (sized("df = df.dropna()"), False),
        (step("df = df.dropna()"), False),
    ],
)
def test_rows_left_out_are_told_only_where_the_kernel_reported_both_sizes(
    later: Step, said: bool
) -> None:
    assert rows_left_out([READ, later]) == ("344 rows read from p.csv, 2 left out" * said)


def test_a_table_that_changed_in_between_is_not_the_one_that_was_read() -> None:
    changed = sized("df = pd.concat([df, more])", df="400 x 8")
    assert rows_left_out([READ, changed, sized("df = df.dropna()", df="342 x 8")]) == ""
