"""Replies in words: after a step that ran they are the answer, once the model was shown how."""

from __future__ import annotations

import dataclasses
import json

import pytest
from support.loop import ANSWER, ERROR, OK, Bench, cell

from kernel_agent.formats import get_format
from kernel_agent.records import (
    IN_WORDS,
    Call,
    Calls,
    Code,
    Final,
    HostCall,
    Observation,
    Reply,
    Step,
    ToolCall,
    Usage,
    answer_note,
)
from kernel_agent.records.endings import ExitStatus
from kernel_agent.records.trace import FormatChange

FORMATS = ("fenced", "envelope", "tool", "json")
WORDINGS = (
    "The table has 42 rows.",
    "42",
    "Final answer: 42",
    "**Final Answer:** the mean is 3.14 mm.",
    "The answer is $\\boxed{42}$.",
    "Die Tabelle hat 42 Zeilen; der Mittelwert liegt bei 3,14 mm.",
    "数据表共有 42 行。",
    "Sales by region:\n\n| region | sales |\n|---|---:|\n| North | 12 |\n| South | 30 |",
    "Two things stand out:\n\n- North sold 12\n- South sold 30",
    "1. North, 12\n2. South, 30\n3. East, 7",
    "The length, `len(df)`, is 42.",
    "As JSON the result would be:\n\n```json\n{\"rows\": 42}\n```\n\nSo there are 42 rows.",
    "The query that gives the same:\n\n```sql\nselect count(*) from t\n```\n\nIt gives 42.",
    "## Result\n\nNorth leads with 12 (29 %).\n\n## Method\n\nI counted the rows of each region.",
    "Based on the analysis above, I conclude that no region differs from the others (p = 0.43).",
    "<answer>42</answer>",
    "<think>It showed 42.</think>\n\nThere are 42 rows.",
    "Yes.",
    "No such correlation exists: r = 0.02.\n\nNote that 12 rows without a date were left out.",
    "> 42 rows\n\nis what the cell showed, of which 3 are empty…",
)  # fmt: skip


def ran(format: str) -> Reply:  # noqa: A002 - the project's word
    """Return a reply that asks for a step, in a format."""
    if format == "json":
        return Reply(content="", tool_calls=(ToolCall(id="1", name="look", arguments="{}"),))
    return Reply(content=get_format(format).compose(thought="I look.", code="len(df)"))


SHOWN = dataclasses.replace(
    OK, calls=(HostCall(name="look", arguments={"args": [], "kwargs": {}}, ok=True, result=42),)
)
"""The result of either: what the cell printed, what the call gave."""


def says(words: str) -> Reply:
    return Reply(content=words, finish_reason="stop", usage=Usage(prompt_tokens=10, calls=1))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("words", WORDINGS)
async def test_words_after_a_step_that_ran_are_the_answer_after_one_re_ask(
    format: str,  # noqa: A002 - the project's word
    words: str,
) -> None:
    bench = Bench([ran(format), says(words), says(words)], [SHOWN], format=format, lower=lower)
    stop = await bench.run()
    assert stop.status is ExitStatus.ANSWERED
    assert stop.answer is not None
    assert stop.answer.in_words
    assert stop.answer.text in words
    assert answer_note(stop.answer) == IN_WORDS
    assert (stop.steps, len(bench.asked), stop.usage.calls) == (2, 3, 2)
    assert "final_answer" in bench.asked[2][-1].content
    assert "If this is your answer" in bench.asked[2][-1].content
    assert not [record for record in bench.trace if isinstance(record, FormatChange)]


def lower(above):
    return None if above.name == "fenced" else (get_format("fenced"), "Write blocks.")


@pytest.mark.parametrize("format", FORMATS)
async def test_the_answer_in_words_stands_in_the_history_as_it_was_written(
    format: str,  # noqa: A002 - the project's word
) -> None:
    bench = Bench([ran(format), says("Rows: 42."), says("It has 42 rows.")], [SHOWN], format=format)
    await bench.run()
    [action] = [step.action for step in bench.steps[1:]]
    assert action == Final(answer="It has 42 rows.", in_words=True)
    said, told = bench.context.messages()[-2:]
    assert (said.role, said.content) == ("assistant", "It has 42 rows.")
    assert "in words and not from a cell" in told.content


async def test_an_envelope_with_a_thought_and_no_code_is_an_answer_in_words() -> None:
    """A schema that is enforced leaves a model no other way to say it."""
    empty = says(json.dumps({"thought": "It has 42 rows.", "code": ""}))
    bench = Bench([ran("envelope"), empty, empty], [OK], format="envelope")
    stop = await bench.run()
    assert stop.answer is not None
    assert (stop.answer.text, stop.answer.in_words) == ("It has 42 rows.", True)


async def test_a_model_that_is_shown_how_gives_the_value_in_a_cell() -> None:
    bench = Bench([cell("1"), says("It is 42."), cell("final_answer(42)")], [OK, ANSWER])
    stop = await bench.run()
    assert stop.answer == ANSWER.answer
    assert not stop.answer.in_words
    assert answer_note(stop.answer) == ""


@pytest.mark.parametrize(
    "words",
    [
        "Which of the two years do you mean?",
        "There are two columns of prices. Which one is meant?**",
        "Now I compute the mean of each group:",
        "",
        "   ",
        "<think>I wonder.</think>",
        "I list them.\n\n```bash\nls -la\n```",
        '{"answer": 42}',
        "<tool_call>\nlook now\n</tool_call>",
    ],
)
async def test_a_question_back_an_announcement_and_a_broken_call_are_no_answer(words: str) -> None:
    bench = Bench([cell("1"), *[says(words)] * 9], [OK], format="fenced")
    stop = await bench.run()
    assert stop.status is ExitStatus.LOOP_DETECTED
    assert stop.answer is None


async def test_words_before_any_step_ran_are_no_answer() -> None:
    """A refusal, or a promise, costs what it did; nothing says that the data were looked at."""
    bench = Bench([says("I will now load the file.")] * 9)
    stop = await bench.run()
    assert stop.status is ExitStatus.LOOP_DETECTED
    assert "If this is your answer" not in bench.asked[1][-1].content


async def test_words_after_a_cell_that_failed_are_no_answer() -> None:
    bench = Bench([cell("x"), *[says("The file cannot be read.")] * 9], [ERROR])
    assert (await bench.run()).status is ExitStatus.LOOP_DETECTED


async def test_a_second_question_may_be_answered_in_words_at_once() -> None:
    """A step of an earlier run of the session has run."""
    first = Bench([cell("1"), cell("final_answer(1)")], [OK, ANSWER])
    await first.run()
    second = Bench([says("MAD is the median absolute deviation.")] * 2)
    for record in first.trace:
        second.context.add(record)
    stop = await second.run()
    assert (stop.status, stop.steps) == (ExitStatus.ANSWERED, 1)
    assert stop.answer is not None
    assert stop.answer.in_words


async def test_words_are_asked_for_the_value_once_in_each_turn() -> None:
    talk = says("It is 42.")
    bench = Bench([cell("1"), talk, cell("2"), talk, talk], [OK, OK])
    stop = await bench.run()
    assert [len(step.retries) for step in bench.steps] == [0, 1, 1]
    assert stop.steps == 3


async def test_a_reply_that_was_cut_off_is_no_answer_in_words() -> None:
    cut = dataclasses.replace(says("It is 4"), finish_reason="length")
    bench = Bench([cell("1"), *[cut] * 9], [OK])
    assert (await bench.run()).answer is None


async def test_an_answer_beside_calls_whose_results_were_not_seen_is_known_by_its_step() -> None:
    calls = (Call(name="look", arguments={}), Call(name="final_answer", arguments={"answer": 1}))
    step = Step(run_id="r", number=1, action=Calls(calls=calls), observation=Observation(text=""))
    assert dataclasses.replace(step, result=ANSWER).answered_unseen
    assert not dataclasses.replace(step, result=OK).answered_unseen
    alone = dataclasses.replace(step, action=Calls(calls=calls[1:]), result=ANSWER)
    assert not alone.answered_unseen
    assert not dataclasses.replace(step, action=Code(source="1"), result=ANSWER).answered_unseen
