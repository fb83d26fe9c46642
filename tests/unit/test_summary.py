"""A summary names what there is: invented variables are dropped, and rules need no model."""

from __future__ import annotations

import dataclasses

import pytest

from kernel_agent.agent.summary import (
    ask_again,
    by_rules,
    check,
    dialogue,
    newest,
    plan_in,
    request,
)
from kernel_agent.records.action import Call, Calls, Code
from kernel_agent.records.cell import Answer, Observation
from kernel_agent.records.endings import ExitStatus
from kernel_agent.records.trace import RunStart, RunStop, Step

NAMES = frozenset({"df", "model", "len"})


def step(number: int, thought: str = "I look. And more.", text: str = "1\n2") -> Step:
    return Step(
        run_id="r",
        number=number,
        action=Code(source=f"x = {number}", thought=thought),
        observation=Observation(text=text, held="printed: 1 2"),
    )


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("`df` has 3 rows. `gone` has 4.", "`df` has 3 rows."),
        ("`df.groupby('a').sum()` gave 3.", "`df.groupby('a').sum()` gave 3."),
        ("`df['a']` is clean; `dfs['a']` is not.", ""),
        ("`len(df)` is 3.", "`len(df)` is 3."),
        ('The column "mass" is skewed.', 'The column "mass" is skewed.'),
        ("It was saved to `out/table.csv`.", "It was saved to `out/table.csv`."),
        ("The body_mass is in grams.", "The body_mass is in grams."),
        ("The clean_frame has no gaps.", ""),
        ('The column "clean_frame" has gaps.', 'The column "clean_frame" has gaps.'),
        ("- `df` is loaded\n- `gone` is loaded", "- `df` is loaded"),
        ("<think>`gone`?</think>`model` fits, R2 is 0.93.", "`model` fits, R2 is 0.93."),
        ("<think>it never ends", ""),
        ("\x1b[31m`df`\x1b[0m is red.", "`df` is red."),
        ("", ""),
    ],
)
def test_sentences_with_variables_that_do_not_exist_are_dropped(text: str, kept: str) -> None:
    checked = check(text, names=NAMES, told="body_mass of penguins", max_chars=1000)
    assert checked.text == kept


def test_what_was_dropped_and_why_is_known() -> None:
    checked = check("`df` is. `gone` was. `lost` too.", names=NAMES, told="", max_chars=99)
    assert checked.dropped == ("`gone` was.", "`lost` too.")
    assert checked.unknown == ("gone", "lost")
    assert "`gone`, `lost`" in ask_again(checked.unknown).content


def test_a_summary_is_as_long_as_it_may_be() -> None:
    assert len(check("It is. " * 5000, names=NAMES, told="", max_chars=500).text) <= 500


def test_hostile_text_takes_no_time_out_of_proportion() -> None:
    """Linear: these took minutes with a backtracking pattern."""
    for text in ("`" * 200_000, "a_" * 100_000, "<think>" * 50_000, "A. " * 60_000):
        check(text, names=NAMES, told="", max_chars=500)


def test_by_rules_a_step_is_a_line() -> None:
    """Questions and answers stand beside it, as they were."""
    start = RunStart(run_id="r", task="Why?", time="", model="m", format="f", sandbox={}, budget={})
    stop = RunStop(run_id="r", status=ExitStatus.ANSWERED, answer=Answer(text="42"))
    late = RunStop(run_id="r", status=ExitStatus.TIME_LIMIT, message="5 s")
    assert by_rules([start, step(1), stop, late], earlier="Before.", max_chars=999).split("\n") == [
        "Before.",
        "Step 1: I look. -> printed: 1 2",
        "That run ended without an answer: 5 s",
    ]
    assert [dialogue(record) for record in (start, step(1), stop, late)] == [
        "Task: Why?", "", "Answer: 42", "",
    ]  # fmt: skip


def test_of_many_questions_and_answers_the_oldest_are_counted() -> None:
    said = [f"Answer: {n} {'x' * 90}" for n in range(9)]
    assert newest(said, max_chars=10_000) == "\n".join(said)
    told = newest(said, max_chars=350).split("\n")
    assert told == ["(6 older questions and answers are not listed)", *said[6:]]
    assert newest(said, max_chars=0).split("\n")[-1] == said[-1]
    assert newest([], max_chars=100) == ""


@pytest.mark.parametrize(("room", "kept"), [(16, 1), (17, 2), (25, 2), (26, 3)])
def test_questions_and_answers_are_listed_as_long_as_they_fit_to_the_character(
    room: int, kept: int
) -> None:
    said = ["Task: b?", "Answer: 2", "Task: c"]
    assert newest(said, max_chars=room).split("\n")[-kept:] == said[-kept:]
    assert ("older" in newest(said, max_chars=room)) is (kept < 3)


@pytest.mark.parametrize(
    ("text", "told"),
    [("", "-> "), ("\n  a table\n1 2", "-> 14 characters that begin with 'a table'")],
)
def test_a_step_without_a_note_on_what_it_held_is_told_by_its_first_line(
    text: str, told: str
) -> None:
    bare = dataclasses.replace(step(1), observation=Observation(text=text))
    line = by_rules([bare], earlier="", max_chars=999)
    assert line.strip() == f"Step 1: I look. {told}".strip()


def test_by_rules_the_oldest_lines_go_first() -> None:
    text = ""
    for number in range(1, 500):
        text = by_rules([step(number)], earlier=text, max_chars=600)
        assert len(text) <= 600
    assert text.startswith("(older steps are not listed)\n")
    assert text.count("older steps") == 1
    assert "Step 499:" in text


def test_the_request_is_bounded_and_holds_what_was_known() -> None:
    steps = [step(n, thought="why " * 5000, text="z" * 50_000) for n in range(1, 300)]
    system, user = request(steps, earlier="Known before.", max_chars=20_000)
    assert "backticks" in system.content
    assert "at most 250 words" in system.content
    assert len(user.content) <= 20_100
    assert "Known before." in user.content
    assert "Step 1." in user.content


def test_the_request_says_what_was_asked_what_was_called_and_how_it_ended() -> None:
    start = RunStart(run_id="r", task="Why?", time="", model="m", format="f", sandbox={}, budget={})
    stop = RunStop(run_id="r", status=ExitStatus.ANSWERED, answer=Answer(text="42"))
    calls = Calls(calls=(Call(name="f", arguments={}), Call(name="g", arguments={})))
    called = dataclasses.replace(step(2), action=calls)
    text = request([start, step(1), called, stop], earlier="", max_chars=9000)[1].content
    assert text.startswith("Task: Why?\n\nStep 1. I look. And more.\nx = 1\n-> 1\n2\n\nStep 2. ")
    assert "\nf, g\n-> 1\n2\n\nAnswer: 42\n\n" in text


@pytest.mark.parametrize(
    ("thought", "known", "plan"),
    [
        ("First I look.", "", "First I look."),
        ("Now I sum.", "First I look.", "First I look."),
        ("Plan: sum, then compare.", "First I look.", "Plan: sum, then compare."),
        ("**Updated plan**\nsum", "old", "**Updated plan**\nsum"),
        ("So:\n1. load\n2. sum", "old", "So:\n1. load\n2. sum"),
        ("I planned that.", "old", "old"),
        ("", "old", "old"),
    ],
)
def test_the_plan_is_the_latest_thought_that_is_one(thought: str, known: str, plan: str) -> None:
    assert plan_in(step(1, thought), known) == plan
