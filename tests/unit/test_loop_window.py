"""Asking a model: within its window, in a format that it can keep, and within the run's budget."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from support.loop import ANSWER, LONG, OK, TALK, Bench, cell

from kernel_agent.agent.window import LARGER_WINDOW
from kernel_agent.errors import ContextLengthError
from kernel_agent.formats import get_format
from kernel_agent.records.budget import Budget, Meter
from kernel_agent.records.cell import CellResult, Changes, Variable
from kernel_agent.records.conversation import Reply, Usage
from kernel_agent.records.endings import ExitStatus
from kernel_agent.records.trace import Condensation, FormatChange


def condensations(bench: Bench) -> list[Condensation]:
    return [record for record in bench.trace if isinstance(record, Condensation)]


# --- replies that cannot be read ---------------------------------------------------------------


async def test_what_is_shown_again_of_an_unreadable_reply_has_its_limit():
    """And an empty one is called that: endpoints refuse a message without content."""
    replies = [Reply(content="x" * 9999), Reply(content=""), cell("final_answer(1)")]
    bench = Bench(replies, [ANSWER])
    await bench.run()
    assert [len(messages[-2].content) for messages in bench.asked[1:]] == [4000, len("(empty)")]
    assert [messages[-2].role for messages in bench.asked[1:]] == ["assistant"] * 2
    assert bench.asked[2][-2].content == "(empty)"
    assert [len(retry.content) for retry in bench.steps[0].retries] == [9999, 0]


async def test_only_the_last_unreadable_reply_is_shown_again():
    bench = Bench(
        [TALK, dataclasses.replace(TALK, content="I will look more."), cell("1")], [ANSWER]
    )
    await bench.run()
    assert [len(messages) for messages in bench.asked] == [2, 4, 4]
    assert bench.asked[2][-2].content == "I will look more."


async def test_every_reply_of_a_turn_is_paid_and_belongs_to_its_step():
    paid = Usage(prompt_tokens=5, calls=1)
    talk = dataclasses.replace(TALK, usage=paid, reasoning="Hm.")
    bench = Bench([talk, dataclasses.replace(cell("1"), reasoning="Aha.")], [ANSWER])
    stop = await bench.run()
    [step] = bench.steps
    assert step.usage == stop.usage == Usage(prompt_tokens=15, calls=2)
    assert step.reasoning == "Aha."


async def test_asking_again_is_not_begun_when_nothing_is_left_to_pay_it():
    talk = dataclasses.replace(TALK, usage=Usage(prompt_tokens=100, calls=1))
    bench = Bench([talk] * 9, budget=Budget(max_tokens=100))
    stop = await bench.run()
    assert (stop.status, len(bench.asked)) == (ExitStatus.TOKEN_LIMIT, 1)


BROKEN = Reply(content='{"thougt": "Talk.", "cod": "1"}')


def below(name):
    return (get_format("fenced"), "Write blocks.") if name.name == "envelope" else None


async def test_a_model_that_keeps_breaking_its_format_goes_on_in_another_one():
    """With a new first message, nothing of the old format in the request, and fresh re-asks."""
    replies = [BROKEN] * 5 + [cell("final_answer(1)")]
    bench = Bench(replies, [ANSWER], format="envelope", lower=below)
    stop = await bench.run()
    assert (stop.status, stop.steps) == (ExitStatus.ANSWERED, 1)
    [change] = [record for record in bench.trace if isinstance(record, FormatChange)]
    assert (change.run_id, change.format) == ("r", "fenced")
    assert change.time
    assert [messages[0].content for messages in bench.asked] == ["system"] * 3 + [
        "Write blocks."
    ] * 3
    assert [len(messages) for messages in bench.asked] == [2, 4, 4, 2, 4, 4]
    assert len(bench.steps[0].retries) == 5
    assert bench.agent.decider.format.name == "fenced"


async def test_a_model_that_broke_its_format_in_other_turns_has_all_its_re_asks_left():
    """Two re-asks belong to a turn; only the way down the ladder counts through the run."""
    two = [BROKEN, BROKEN]
    replies = [BROKEN, cell("1"), *two, cell("2"), *two, cell("final_answer(1)")]
    bench = Bench(replies, [OK, OK, ANSWER])
    stop = await bench.run()
    assert [len(step.retries) for step in bench.steps] == [1, 2, 2]
    assert stop.steps == 3


# --- the model's window ------------------------------------------------------------------------


def cut(prompt: int, completion: int, window: int | None) -> Reply:
    """A reply that the window's end has cut off."""
    usage = Usage(prompt_tokens=prompt, completion_tokens=completion, calls=1)
    return Reply(content="I", finish_reason="length", usage=usage, window_tokens=window)


async def test_instructions_that_leave_no_room_for_a_reply_end_the_run():
    """It says what is too small, and what would help."""
    stop = await Bench([cut(500, 99, 599)] * 9).run()
    assert (stop.status, stop.message) == (
        ExitStatus.MODEL_ERROR,
        f"the instructions alone take 500 of the 599 tokens of the model's window: {LARGER_WINDOW}",
    )


@pytest.mark.parametrize(
    "replies",
    [
        [cut(500, 100, 600), cell("final_answer(1)")],  # there was room for a cell
        [TALK, cut(500, 9, 509), cell("final_answer(1)")],  # the reply before took it
        [cell("x"), cut(500, 9, 509), cell("final_answer(1)")],  # steps may still be shortened
        [cut(500, 9, None), cell("final_answer(1)")],  # its own cap on tokens, and no window
    ],
)
async def test_a_reply_that_met_the_window_is_asked_for_again_where_that_may_help(replies):
    results = [OK, ANSWER] if len(replies) == 3 and replies[0] is not TALK else [ANSWER]
    assert (await Bench(replies, results).run()).status is ExitStatus.ANSWERED


async def test_a_window_that_was_met_is_kept_from_then_on():
    bench = Bench([cell("x"), cut(3900, 196, 4096), cell("final_answer(1)")], [LONG, ANSWER])
    await bench.run()
    assert {made.reason for made in condensations(bench)} == {
        "a reply had no room left in the model's window"
    }
    assert bench.context.max_tokens == 3072


async def test_what_was_unreadable_is_asked_for_anew_where_there_is_no_room_to_show_it():
    bench = Bench([TALK, ContextLengthError("too long"), cell("final_answer(1)")], [ANSWER])
    stop = await bench.run()
    assert stop.status is ExitStatus.ANSWERED
    assert [len(messages) for messages in bench.asked] == [2, 4, 2]


async def test_the_endpoints_count_is_of_the_conversation_and_not_of_a_re_ask():
    """What is shown again once would make every later estimate too high."""
    counted = dataclasses.replace(TALK, usage=Usage(prompt_tokens=5000, calls=1))
    again = dataclasses.replace(cell("y"), usage=Usage(prompt_tokens=9000, calls=1))
    bench = Bench([cell("x"), counted, again], [LONG, ANSWER])
    asked = bench.complete

    async def complete(messages):
        tokens.append(bench.context.tokens)
        return await asked(messages)

    tokens: list[int] = []
    bench.complete = complete
    await bench.run()
    assert tokens[2] == pytest.approx(5000, abs=1)
    assert bench.context.tokens < 6000


async def test_each_shortening_is_recorded_with_its_run_its_time_and_its_reason():
    replies = [cell(f"print({n})") for n in range(6)]
    bench = Bench([*replies, ContextLengthError("x"), cell("z")], [LONG] * 6 + [ANSWER])
    await bench.run()
    assert {(made.run_id, made.reason) for made in condensations(bench)} == {
        ("r", "it was too long for the model")
    }
    assert all(made.time for made in condensations(bench))
    replies = [cell(f"print({n})") for n in range(20)]
    bench = Bench([*replies, cell("z")], [LONG] * 20 + [ANSWER], max_tokens=12_000)
    await bench.run()
    assert {made.reason for made in condensations(bench)} == {"it had outgrown its allowance"}


async def test_a_model_without_an_answer_meets_the_tightest_cap_on_time():
    """A parent's, where that is less."""
    parent = Meter(Budget(max_seconds=0.05))
    bench = Bench(meter=Meter(Budget(max_seconds=100), parent=parent))
    bench.complete = lambda _messages: asyncio.sleep(60)
    stop = await bench.run()
    assert (stop.status, stop.message) == (
        ExitStatus.TIME_LIMIT, "the limit of 0.05 s was reached"
    )  # fmt: skip


# --- summaries ---------------------------------------------------------------------------------

LONG_CODE = "x = 1\n" + "# why\n" * 100


def summarising(summaries, *, budget=None, names=frozenset()) -> Bench:
    """A run whose conversation outgrows its allowance; the kernel has ``df``."""
    made = CellResult(status="ok", changes=Changes(added=(Variable(name="df", type="DataFrame"),)))
    replies = [cell(f"{LONG_CODE}# {n}") for n in range(9)]
    return Bench([*replies, cell("z")], [made] * 9 + [ANSWER], budget or Budget(),
                 max_tokens=1500, summaries=summaries, names=names)  # fmt: skip


async def test_a_summary_that_names_what_there_is_not_is_asked_for_again_once():
    """It is told what does not exist; what it names again is dropped, and both are paid."""
    holds = f"`df` has 4 rows{', each of them looked at' * 9}."
    bench = summarising(["`nope` is 3. `df` has 3 rows.", f"{holds} `never` is 5."] * 9)
    await bench.run()
    made = condensations(bench)[0]
    assert (made.by, made.text, made.dropped) == ("model", holds, ("`never` is 5.",))
    assert made.usage == Usage(prompt_tokens=6, calls=2)
    first, second = bench.asked_for_summary[:2]
    assert second[:-2] == first
    assert [m.role for m in second[-2:]] == ["assistant", "user"]
    assert second[-2].content == "`nope` is 3. `df` has 3 rows."
    assert "`nope`" in second[-1].content


async def test_a_summary_may_name_the_tools():
    holds = f"`fetch` gave `df`{', and all was looked at' * 9}."
    bench = summarising([holds] * 9, names=frozenset({"fetch"}))
    await bench.run()
    assert {made.text for made in condensations(bench)} == {holds}
    assert len(bench.asked_for_summary) == len(condensations(bench))


async def test_a_summary_of_which_nothing_holds_is_made_by_rules_and_paid():
    bench = summarising(["`nope` is 3."] * 18)
    await bench.run()
    made = condensations(bench)[0]
    assert (made.by, made.dropped) == ("rules", ("`nope` is 3.",))
    assert made.text.startswith("Step 1: Think.")
    assert made.usage.calls == 2


async def test_notes_that_are_far_too_short_are_asked_for_again_and_then_made_by_rules():
    """A line cannot stand for five steps."""
    bench = summarising(["All went well."] * 18)
    await bench.run()
    made = condensations(bench)[0]
    assert (made.by, made.usage.calls) == ("rules", 2)
    assert made.text.startswith("Step 1: Think.")
    told = bench.asked_for_summary[1][-1].content
    assert f"all that is left of {made.last} steps" in told


async def test_a_summary_that_failed_halfway_is_made_by_rules_and_paid():
    bench = summarising(["`nope` is 3.", ContextLengthError("too long")] * 9)
    await bench.run()
    made = condensations(bench)[0]
    assert (made.by, made.usage.calls) == ("rules", 1)


async def test_no_summary_is_asked_for_when_nothing_is_left_to_pay_it():
    """The answer to one may cost more than all steps."""
    dear = Reply(content="`nope` is 3.", usage=Usage(prompt_tokens=10**6, calls=1))
    bench = summarising([dear] * 9, budget=Budget(max_tokens=10**6))
    stop = await bench.run()
    assert (stop.status, len(bench.asked_for_summary)) == (ExitStatus.TOKEN_LIMIT, 1)


async def test_of_a_long_summary_not_all_is_shown_again():
    bench = summarising(["`nope` is 3. " * 999] * 18)
    await bench.run()
    assert len(bench.asked_for_summary[1][-2].content) == 4000
