"""Replies in words: they are the answer, once the model was shown how, unless they promise one."""

from __future__ import annotations

import dataclasses
import json
import time
from contextlib import suppress

import pytest
from support.loop import ANSWER, ERROR, OK, Bench, cell

from kernel_agent.agent.words import may_answer
from kernel_agent.errors import FormatError
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
from kernel_agent.records.event import Notice
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
    assert Notice(text="The reply has words alone; asking again.") in bench.events
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


SPOKEN = (
    "MAD is the median absolute deviation: the median of the distances from the median.",
    "**MAD** (median absolute deviation) is $\\mathrm{MAD} = \\mathrm{median}(|x_i - m|)$.",
    "MAD = median(|x - median(x)|)\n\nIt is robust: half of the values may be wrong.",
    "It stands for *mean absolute deviation* or *median absolute deviation*; here the latter.",
    "To get it, we must subtract the median and take the median of what is left.",
    "Let me explain: a p-value is the probability of data at least as extreme under the null.",
    "Let's take an example. For 1, 2 and 9 the median is 2, the distances are 1, 0, 7: MAD is 1.",
    "I'll keep it short. A quartile splits sorted data into four equal parts.",
    "In pandas it is `(df.x - df.x.median()).abs().median()`.",
    "1. Sort the values.\n2. Take the middle one.\n3. That is the median.",
    "| term | meaning |\n|---|---|\n| MAD | median absolute deviation |\n| IQR | Q3 - Q1 |",
    "I cannot see a file. If you upload it, I will analyze it.",
    "I don't have access to any file. Please provide one, and I'll load it.",
    "There is no file here, so I can't say how many rows it has.",
    "I'm sorry, but I will not be able to help with that.",
    "Hello! I'm happy to help with your data. Once you share a file, I will look at it.",
    "No. A correlation does not show a cause. Let me know if you would like an example.",
    "Der MAD ist der Median der absoluten Abweichungen vom Median.",
    "Ich sehe keine Datei. Wenn Sie eine hochladen, werde ich sie untersuchen.",
    "MAD\u662f\u4e2d\u4f4d\u6570\u7edd\u5bf9\u504f\u5dee\u3002\u5982\u679c\u6709\u6587\u4ef6\uff0c\u6211\u4f1a\u5206\u6790\u5b83\u3002",
)  # fmt: skip
ANNOUNCED = (
    "I will now load the file.",
    "I'll load the file and count its rows.",
    "I\u2019ll start by reading the CSV.",
    "Sure! Let me check the columns first.",
    "Let me take a look at the data.",
    "Let me see what is in the file.",
    "First, I need to look at the data.",
    "I'm going to compute the mean of each group.",
    "I have to inspect the table before I can answer. Then the mean follows.",
    "MAD is the median absolute deviation. I will now compute it for the column price.",
    "We need to load the data. We'll use pandas.",
    "Let's begin.",
    "First, I load the table.",
    "Loading the file now.",
    "Okay, reading the CSV",
    "The next step is to read the table with pandas.",
    "Please wait while I load the file. I will report back.",
    "Ich werde die Datei laden und die Zeilen z\u00e4hlen.",
    "Zuerst lade ich die Datei.",
    "\u6211\u5c06\u8bfb\u53d6\u6587\u4ef6\u3002",
)
HALF_WRITTEN = (
    "```python",
    "'''python\nprint(1)\n'''",
    "``python\nprint(1)\n``",
    "[python]\nprint(1)\n[/python]",
    "The file is read.\nimport pandas as pd\ndf = pd.read_csv('x.csv')\ndf.head(",
    "functions.python(code='print(1)'",
    'python({"code": "print(1)"',
    'The cell: {"code": "print(1)',
    '<tool_call>\n{"name": "python"',
    "<function=python>",
    "Action: python\nAction Input: print(1)",
    "`print(df.head())`",
    "print(df.head()",
    ">>> df.head()",
    "In [1]: df.head()",
    "%%time\nprint(1",
    "The table is read.\nCode:\n",
    "final_answer('MAD is the median'",
)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("words", SPOKEN)
async def test_what_is_said_of_a_question_that_needs_no_cell_is_the_answer_after_one_re_ask(
    format: str,  # noqa: A002 - the project's word
    words: str,
) -> None:
    bench = Bench([says(words), says(words)], format=format, lower=lower)
    stop = await bench.run()
    assert stop.status is ExitStatus.ANSWERED
    assert stop.answer is not None
    assert (stop.answer.text, answer_note(stop.answer)) == (words, IN_WORDS)
    assert (stop.steps, len(bench.asked)) == (1, 2)
    assert "If this is your answer" in bench.asked[1][-1].content
    assert "final_answer" in bench.asked[1][-1].content
    assert not [record for record in bench.trace if isinstance(record, FormatChange)]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("words", ANNOUNCED)
async def test_work_that_is_only_announced_is_asked_for_as_often_as_what_cannot_be_read(
    format: str,  # noqa: A002 - the project's word
    words: str,
) -> None:
    bench = Bench([says(words)] * 9, format=format)
    stop = await bench.run()
    assert (stop.status, stop.answer) == (ExitStatus.LOOP_DETECTED, None)
    assert len(bench.asked) == 9
    assert not [sent for sent in bench.asked if "If this is your answer" in sent[-1].content]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("written", HALF_WRITTEN)
async def test_code_that_was_begun_is_no_answer_and_the_model_is_told_how_to_write_it(
    format: str,  # noqa: A002 - the project's word
    written: str,
) -> None:
    """Before a step ran, and after one."""
    for first, results in (([], []), ([ran(format)], [SHOWN])):
        bench = Bench([*first, *[says(written)] * 9], results, format=format)
        stop = await bench.run()
        assert (stop.status, stop.answer) == (ExitStatus.LOOP_DETECTED, None)
        told = [sent[-1].content for sent in bench.asked[1 + len(first) :]]
        assert not [text for text in told if "If this is your answer" in text]


async def test_a_model_that_announces_and_then_writes_the_cell_goes_on() -> None:
    bench = Bench(
        [says("I'll load the file."), says("Let me load it."), cell("final_answer(1)")], [ANSWER]
    )
    stop = await bench.run()
    assert (stop.answer, stop.steps) == (ANSWER.answer, 1)


@pytest.mark.parametrize(
    ("words", "is_answer"),
    [
        ("There are 42 rows. I will now compute the mean.", False),
        ("I will use the median, since two values are off. It is 3.14.", True),
        ("The mean is 3.14. Let me know if you need more.", True),
        ("Now I compute the mean of each group.", False),
    ],
)
async def test_after_a_step_that_ran_the_last_sentence_says_whether_the_work_goes_on(
    words: str,
    is_answer: bool,
) -> None:
    bench = Bench([cell("1"), *[says(words)] * 9], [OK])
    stop = await bench.run()
    assert (stop.answer is not None) is is_answer


async def test_an_empty_envelope_that_explains_is_an_answer_before_any_step() -> None:
    empty = says(json.dumps({"thought": "MAD is the median absolute deviation.", "code": ""}))
    stop = await Bench([empty, empty], format="envelope").run()
    assert stop.answer is not None
    assert stop.answer.text == "MAD is the median absolute deviation."


async def test_an_answer_in_words_is_no_step_that_ran() -> None:
    """What is announced in the next run is judged as in the first."""
    first = Bench([says("It is the median.")] * 2)
    await first.run()
    second = Bench([says("I will load the file. It has three columns.")] * 9)
    for record in first.trace:
        second.context.add(record)
    assert (await second.run()).answer is None


def test_a_reply_of_millions_of_characters_is_judged_at_once() -> None:
    for piece in ("for x in ", "I will ", "\n", " ", "a.", "i "):
        words = piece * (2_000_000 // len(piece))
        began = time.process_time()
        may_answer(words, ran=False)
        get_words = Reply(content=words[:200_000], finish_reason="stop")
        with suppress(FormatError):
            get_format("fenced").parse(get_words)
        assert time.process_time() - began < 5


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
