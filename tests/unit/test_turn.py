"""What a turn keeps of what was written in it when the run ends before the turn does."""

from __future__ import annotations

import pytest

from kernel_agent.agent.turn import Ledger, Turn, write_reply
from kernel_agent.records.action import Code
from kernel_agent.records.budget import Budget, Meter
from kernel_agent.records.conversation import Reply, ToolCall, Usage
from kernel_agent.records.event import Acting, Notice, ReplyText
from kernel_agent.records.trace import Retry


def turn(**fields) -> Turn:
    ledger = Ledger(
        run_id="r",
        meter=Meter(Budget()),
        record=lambda _: None,
        tell=lambda _: None,
        check_stopped=lambda: None,
    )
    return Turn(ledger=ledger, number=4, **fields)


def hearing(*events: object) -> Turn:
    heard = turn()
    for event in events:
        heard.hear(event)
    return heard


def test_a_turn_in_which_nothing_was_written_leaves_no_step() -> None:
    assert turn().unfinished("out of time") is None
    assert hearing(Acting(number=4, action=None)).unfinished("out of time") is None


def test_what_was_being_written_is_kept_and_marked_as_cut_off() -> None:
    """Reasoning apart from the text, and why it ended with what the model is told."""
    step = hearing(
        ReplyText(text="Hm. ", reasoning=True), ReplyText(text="I co"), ReplyText(text="unt")
    ).unfinished("out of time")
    assert step is not None
    [retry] = step.retries
    assert (step.number, step.action, step.reasoning) == (4, None, "Hm. ")
    assert (retry.content, retry.cut_off) == ("I count", True)
    assert "(out of time)" in retry.feedback
    assert step.observation.text == retry.feedback
    assert step.model_seconds >= 0


def test_reasoning_alone_was_written_too() -> None:
    step = hearing(ReplyText(text="Hm.", reasoning=True)).unfinished("stopped")
    assert step is not None
    assert (step.reasoning, step.retries[0].content) == ("Hm.", "")


def test_what_broke_off_before_a_new_try_is_no_part_of_the_reply() -> None:
    """A notice says that the reply begins anew; any other event says nothing of it."""
    pieces = ReplyText(text="I co"), Notice(text="again"), ReplyText(text="So")
    again = hearing(*pieces, Acting(number=4, action=None)).unfinished("stopped")
    assert again is not None
    assert again.retries[-1].content == "So"


def test_what_was_cut_off_comes_after_the_replies_that_could_not_be_read() -> None:
    """With what all of them have cost."""
    before = Retry(content="?", feedback="no code found")
    begun = turn(retries=(before,), usage=Usage(prompt_tokens=3))
    begun.take(Reply(content="", usage=Usage(prompt_tokens=4), reasoning="Why?"))
    kept = begun.unfinished("stopped")
    assert kept is not None
    assert kept.retries == (before,)
    assert kept.usage.prompt_tokens == 7
    begun.hear(ReplyText(text="So"))
    kept = begun.unfinished("stopped")
    assert kept is not None
    assert [retry.content for retry in kept.retries] == ["?", "So"]


def test_a_complete_reply_is_no_longer_one_that_is_being_written() -> None:
    heard = hearing(ReplyText(text="I co"))
    heard.take(Reply(content="I count"))
    assert heard.unfinished("stopped") is None


def test_a_reply_that_was_read_and_not_carried_out_is_kept_with_its_calls() -> None:
    call = ToolCall(id="a", name="python", arguments='{"code": "f()"}')
    step = turn(reply=Reply(content="Go.", tool_calls=(call,), reasoning="Hm.")).unfinished("x")
    assert step is not None
    assert step.retries[0].content == 'Go.\npython({"code": "f()"})'
    assert step.reasoning == "Hm."


def test_a_cell_under_way_is_kept_as_interrupted() -> None:
    """Its step has its code, and says that it was not carried out to its end."""
    begun = turn()
    begun.acting = begun.step(Code(source="f()"))
    step = begun.unfinished("out of time")
    assert step is not None
    assert step.code == "f()"
    assert step.result is not None
    assert step.result.error is not None
    assert (step.result.status, step.result.error.ename) == ("interrupted", "Interrupted")
    assert "(out of time)" in step.observation.text


@pytest.mark.parametrize(("content", "written"), [("Go.", "Go."), ("", "")])
def test_a_reply_without_calls_is_its_text(content: str, written: str) -> None:
    assert write_reply(Reply(content=content)) == written


def test_a_step_says_how_long_the_model_took_and_what_it_was_told_last() -> None:
    begun = turn(retries=(Retry(content="?", feedback="no code found"),))
    begun.take(Reply(content="x", reasoning="Hm."))
    step = begun.step(None)
    assert step.observation.text == "no code found"
    assert step.model_seconds == begun.model_seconds <= begun.seconds
    assert (step.run_id, step.reasoning) == ("r", "Hm.")
