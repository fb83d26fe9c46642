"""When a run goes on and when its rules end it: repeated failures, denials, broken formats."""

from __future__ import annotations

import dataclasses

import pytest

from kernel_agent.agent.outcome import (
    CellFailed,
    Denied,
    LoopDetected,
    Stopped,
    cause,
    check_kernel,
    describe_progress,
    ending,
    limit_text,
)
from kernel_agent.agent.rules import Ladder, Patience, warning
from kernel_agent.errors import BudgetExceeded, FormatError, KernelError, ModelError
from kernel_agent.formats import get_format
from kernel_agent.records.action import Call, Calls, Code
from kernel_agent.records.budget import Budget, Meter
from kernel_agent.records.cell import Answer, CellError, CellResult, Decision, Observation
from kernel_agent.records.conversation import Reply
from kernel_agent.records.endings import ExitStatus
from kernel_agent.records.trace import Retry, Step

NO = Decision(allowed=False, by="person", reason="no")


def step(source="x", *, error="", number=1, text="seen", decision=None, **more) -> Step:
    """A step that ran a cell, well or not."""
    result = CellResult(status="ok")
    if error:
        kind, _, message = error.partition(": ")
        result = CellResult(status="error", error=CellError(ename=kind, evalue=message))
    made = Step(
        run_id="r", number=number, action=Code(source=source), observation=Observation(text=text),
        result=result, decision=decision,
    )  # fmt: skip
    return dataclasses.replace(made, **more)


def judged(*steps: Step) -> str:
    """What ended a run of these steps, after how many of them."""
    patience = Patience()
    for number, each in enumerate(steps, 1):
        try:
            patience.judge(each)
        except (Denied, LoopDetected) as error:
            return f"{number}: {error}"
    return ""


# --- failures ----------------------------------------------------------------------------------


def test_the_third_identical_failure_of_an_identical_action_is_a_loop():
    failed = step(error="KeyError: 'x'")
    assert judged(failed, failed) == ""
    assert judged(failed, step("y"), failed, failed, failed) == (
        "4: the same action failed 3 times in the same way (KeyError: 'x')"
    )


@pytest.mark.parametrize(
    "steps",
    [
        [step(f"x{n}", error="KeyError: 'x'") for n in range(9)],
        [step("x", error=f"KeyError: '{n}'") for n in range(9)],
        [step("x", error=kind) for kind in ("A: x", "B: x", "A: x", "B: x")],
        [step("x")] * 9,
    ],
)
def test_another_action_another_error_and_a_success_are_no_repetition(steps):
    assert judged(*steps) == ""


def test_addresses_in_a_message_do_not_make_it_another_failure():
    """They differ whenever the same object is made again; other numbers tell something."""
    at = [f"TypeError: <f at 0x{n:012x}> is no table" for n in range(3)]
    assert judged(*(step(error=message) for message in at)).startswith("3: the same action failed")
    assert judged(*(step(error=f"E: 0x{n:05x}") for n in range(3))) == ""


def test_the_same_unreadable_reply_is_a_failure_like_any_other():
    """It is known by what was written last and what was told of it."""
    talk = Retry(content="Talk.", feedback="No code was found.")
    other = dataclasses.replace(talk, content="More.")
    silent = step(action=None, result=None, retries=(other, talk), text=talk.feedback)
    assert judged(silent, silent, silent) == (
        "3: the same action failed 3 times in the same way (No code was found.)"
    )
    changing = [dataclasses.replace(silent, retries=(talk, Retry(content=str(n), feedback="")))
                for n in range(5)]  # fmt: skip
    assert judged(*changing) == ""
    nothing = dataclasses.replace(silent, retries=(), observation=Observation(text=""))
    assert judged(nothing, nothing, nothing).endswith("(no readable action)")


def test_calls_are_the_same_action_when_all_of_them_are():
    def calls(*numbers: int) -> Step:
        asked = tuple(Call(name="f", arguments={"n": n}) for n in numbers)
        return step(action=Calls(calls=asked), error="ValueError: no")

    assert judged(calls(1, 2), calls(1, 2), calls(1, 2)).startswith("3:")
    assert judged(calls(1, 2), calls(1, 3), calls(2, 2)) == ""


# --- denials -----------------------------------------------------------------------------------


def denied(source: str) -> Step:
    return step(source, decision=NO, error=f"PermissionError: {source}")


def test_the_third_denial_of_the_same_action_ends_the_run():
    """Also with other steps between them, and by what was denied last."""
    assert judged(denied("a"), step("b"), denied("a"), step("b"), denied("a")) == (
        "5: the same action was denied 3 times (The cell was denied by a person: no)"
    )
    assert judged(denied("a"), denied("a"), denied("b")) == ""


def test_the_fifth_step_in_a_row_with_a_denial_ends_the_run():
    cells = [denied(str(n)) for n in range(9)]
    assert judged(*cells) == (
        "5: something was denied in 5 steps in a row (The cell was denied by a person: no)"
    )
    assert judged(*cells[:4], step("x"), *cells[4:8]) == ""


def test_a_decision_to_allow_is_no_denial():
    yes = dataclasses.replace(NO, allowed=True)
    assert judged(*[step("a", decision=yes)] * 9) == ""


# --- the ladder --------------------------------------------------------------------------------

READABLE = Reply(content="```python\nx = 1\n```")
TALK = Reply(content='{"thougt": "Let me think.", "cod": 1}')
CUT = Reply(content="```python\nx = (", finish_reason="length")


def below(name):
    """The way down from envelope over fenced to nothing."""
    return (get_format("fenced"), "Write blocks.") if name.name == "envelope" else None


def read(ladder: Ladder, *replies: Reply) -> list:
    """Read replies; return the changes of the format, each with the number of its reply."""
    changes = []
    for number, reply in enumerate(replies, 1):
        try:
            ladder.read(reply)
        except FormatError:
            change = ladder.go_down()
            if change is not None:
                changes.append((number, change))
    return changes


def test_a_reply_that_can_be_read_is_an_action():
    assert Ladder(get_format("fenced")).read(READABLE).source == "x = 1"


def test_three_unreadable_replies_of_at_least_half_lead_to_the_format_below():
    """It says why, and what the model is told from then on."""
    ladder = Ladder(get_format("envelope"), below)
    [(number, change)] = read(ladder, TALK, TALK, TALK)
    assert (number, change.format, change.system_prompt) == (3, "fenced", "Write blocks.")
    assert change.reason == "3 of 3 replies in envelope unreadable"
    assert ladder.format.name == "fenced"


def test_a_model_that_mostly_keeps_its_format_keeps_it_for_good():
    """Half of the replies is often enough, less is not."""
    good = Reply(content='{"thought": "", "code": "f()"}')
    ladder = Ladder(get_format("envelope"), below)
    assert read(ladder, good, good, good, good, TALK, TALK, TALK, good) == []
    [(number, change)] = read(ladder, TALK, TALK)
    assert (number, change.reason) == (2, "5 of 10 replies in envelope unreadable")


def test_a_reply_that_was_cut_off_is_not_held_against_the_format():
    """Its length is to blame; another format would not help."""
    ladder = Ladder(get_format("envelope"), below)
    assert read(ladder, CUT, CUT, CUT, CUT, TALK, TALK) == []


def test_each_format_is_judged_by_its_own_replies():
    """Also when there is nothing below it, or the user chose it."""
    ladder = Ladder(get_format("envelope"), below)
    assert [number for number, _ in read(ladder, *[TALK] * 9)] == [3]
    assert ladder.format.name == "fenced"
    fixed = Ladder(get_format("envelope"))
    assert read(fixed, *[TALK] * 9) == []
    assert fixed.format.name == "envelope"


def test_a_format_further_down_begins_without_the_failures_of_the_one_above():
    """It takes three replies of its own that cannot be read to leave it, too."""
    order = {"envelope": "fenced", "fenced": "tool"}

    def lower(above):
        name = order.get(above.name)
        return (get_format(name), "") if name else None

    changes = read(Ladder(get_format("envelope"), lower), *[TALK] * 9)
    assert [(number, change.reason) for number, change in changes] == [
        (3, "3 of 3 replies in envelope unreadable"),
        (6, "3 of 3 replies in fenced unreadable"),
    ]


# --- what the model is told, and how a run ends --------------------------------------------------


@pytest.mark.parametrize(
    ("cap", "steps", "answered", "warned"),
    [(3, 2, False, True), (3, 1, False, False), (3, 3, False, False), (2, 1, False, True),
     (1, 0, False, False), (3, 2, True, False), (None, 2, False, False)],
)  # fmt: skip
def test_the_model_is_warned_after_the_last_step_but_one(cap, steps, answered, warned):
    """Where there is one, and only when it has not answered."""
    meter = Meter(Budget(max_steps=cap))
    for _ in range(steps):
        meter.count_step()
    answer = Answer(text="a") if answered else None
    told = warning(step(result=CellResult(status="ok", answer=answer)), meter)
    assert told == ("(The next step is the last one: call final_answer in it.)" if warned else "")
    assert bool(warning(step(action=None, result=None), meter)) is (warned or answered)


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (BudgetExceeded("steps", used=3, cap=3), "step_limit", "3 steps"),
        (BudgetExceeded("seconds", used=9, cap=1.5), "time_limit", "1.5 s"),
        (BudgetExceeded("tokens", used=9, cap=7), "token_limit", "7 tokens"),
        (BudgetExceeded("cost", used=9, cap=0.25), "cost_limit", "0.25 USD"),
        (LoopDetected("again"), "loop_detected", "again"),
        (Denied("no"), "denied", "no"),
        (CellFailed("step 2 failed"), "cell_failed", "step 2 failed"),
        (Stopped(), "interrupted", "stopped on request"),
        (ModelError("down"), "model_error", "down"),
        (KernelError("gone"), "kernel_lost", "gone"),
    ],
)  # fmt: skip
def test_every_ending_has_its_status_and_says_why(error, status, message):
    if isinstance(error, BudgetExceeded):
        message = f"the limit of {message} was reached"
        assert limit_text(error) == message
    assert ending(error) == (ExitStatus(status), message)


def test_an_error_that_is_nobodys_ending_is_named_in_one_line():
    import asyncio

    assert ending(ZeroDivisionError("x")) is None
    assert cause(ZeroDivisionError("a\nb")) == "ZeroDivisionError: a b"
    assert len(cause(ValueError("x" * 999))) <= 300
    assert cause(asyncio.CancelledError()) == "the run was cancelled"


def test_a_step_that_took_the_kernel_with_it_says_so():
    check_kernel(step(error="KeyError: x"))
    check_kernel(step(result=None, action=None))
    error = CellError(ename="KernelDied", evalue="exit code 3")
    with pytest.raises(KernelError, match=r"^the kernel was lost: exit code 3$"):
        check_kernel(step(result=CellResult(status="dead", error=error)))
    with pytest.raises(KernelError, match=r"^the kernel was lost: $"):
        check_kernel(step(result=CellResult(status="dead")))


def test_what_was_achieved_quotes_the_last_thing_that_was_seen_and_worked():
    """Counts, and never the model's own words."""
    assert describe_progress([]) == "No step was completed."
    assert (
        describe_progress([step(number=4)])
        == "1 step ran, 1 without an error. Step 4 showed last:\nseen"
    )
    steps = [step(text="41"), step(number=2, text="42"), step(error="E: x", number=3, text="bad")]
    assert describe_progress(steps) == "3 steps ran, 2 without an error. Step 2 showed last:\n42"
    assert describe_progress(steps[2:]) == "1 step ran, 0 without an error."
    assert 1900 < len(describe_progress([step(text="word " * 9999)])) < 2100
