"""What a person or the policy decided holds in the loop: a no is not run, a change is what runs."""

from __future__ import annotations

import dataclasses

import pytest
from support.loop import ANSWER, OK, Bench, cell

from kernel_agent.agent.checks import Checks
from kernel_agent.agent.loop import CHANGED
from kernel_agent.records.cell import CellResult, Decision, HostCall, Observation
from kernel_agent.records.endings import ExitStatus
from kernel_agent.records.event import Acting

YES = Decision(allowed=True, by="person", reason="go on")
NO = Decision(allowed=False, by="person", reason="not that one")


def deciding(*decisions: Decision | None) -> tuple[Checks, list]:
    """Checks that admit as they are told to, and what they were asked."""
    asked, left = [], list(decisions)

    async def admit(action, number):
        asked.append((number, action.thought, getattr(action, "source", None)))
        return left.pop(0) if left else None

    return Checks(admit=admit), asked


async def test_a_denied_cell_is_not_run_and_the_model_is_told():
    """Its step keeps the decision and the code; the run goes on."""
    checks, _ = deciding(NO)
    bench = Bench([cell("rm()"), cell("final_answer(1)")], [ANSWER], checks=checks)
    stop = await bench.run()
    assert bench.ran == ["final_answer(1)"]
    denied = bench.steps[0]
    assert (denied.code, denied.decision, denied.ok) == ("rm()", NO, False)
    assert denied.result.error.ename == "PermissionError"
    assert "denied by a person: not that one" in bench.asked[1][-1].content
    assert stop.status is ExitStatus.ANSWERED


async def test_what_is_allowed_or_needs_no_decision_runs():
    checks, asked = deciding(YES, None)
    bench = Bench([cell("1"), cell("final_answer(1)")], [OK, ANSWER], checks=checks)
    await bench.run()
    assert bench.ran == ["1", "final_answer(1)"]
    assert [step.decision for step in bench.steps] == [YES, None]
    assert asked == [(1, "Think.", "1"), (2, "Think.", "final_answer(1)")]


async def test_a_view_is_told_of_an_action_before_a_person_is_asked_about_it():
    """Or the question would be about something that nobody can see."""
    told = []

    async def admit(_action, _number):
        told.extend(event.number for event in bench.events if isinstance(event, Acting))

    bench = Bench([cell("final_answer(1)")], [ANSWER], checks=Checks(admit=admit))
    await bench.run()
    assert told == [1]


async def test_a_cell_that_a_person_changed_runs_as_changed():
    """The step has what ran, and the model is told in its first line that it was changed."""
    checks, _ = deciding(dataclasses.replace(YES, edited="x = 2", original="x = 1"))
    bench = Bench([cell("x = 1"), cell("final_answer(1)")], [OK, ANSWER], checks=checks)
    await bench.run()
    assert bench.ran[0] == bench.steps[0].code == "x = 2"
    assert bench.steps[0].observation.text == f"{CHANGED}\n42"
    assert CHANGED not in bench.steps[1].observation.text


def marking() -> tuple[Checks, list]:
    """Checks that mark every observation, and the results that they were given."""
    given = []

    def show(observation: Observation, result: CellResult) -> Observation:
        given.append(result)
        return dataclasses.replace(observation, text=f"[data] {observation.text}")

    return Checks(show=show), given


async def test_what_a_cell_showed_is_marked_where_it_must_be():
    checks, given = marking()
    bench = Bench([cell("1"), cell("final_answer(1)")], [OK, ANSWER], checks=checks)
    await bench.run()
    assert bench.steps[0].observation.text == "[data] 42"
    assert given == [OK, ANSWER]


async def test_our_own_words_about_a_denied_cell_are_not_marked_as_data():
    """A model that takes them for data would not obey them."""
    checks, given = marking()
    denying, _ = deciding(NO)
    checks = dataclasses.replace(checks, admit=denying.admit)
    bench = Bench([cell("rm()"), cell("final_answer(1)")], [ANSWER], checks=checks)
    await bench.run()
    assert not bench.steps[0].observation.text.startswith("[data]")
    assert given == [ANSWER]
    changed = dataclasses.replace(YES, edited="x")
    allowing, _ = deciding(changed)
    checks = dataclasses.replace(checks, admit=allowing.admit)
    bench = Bench([cell("y"), cell("final_answer(1)")], [OK, ANSWER], checks=checks)
    await bench.run()
    assert bench.steps[0].observation.text == f"{CHANGED}\n[data] 42"  # and what is ours stands out


async def test_a_model_that_does_not_take_no_for_an_answer_is_ended():
    """The same cell three times, whatever it does in between."""
    replies = [cell("rm()"), cell("1"), cell("rm()"), cell("2"), cell("rm()")]
    checks, _ = deciding(NO, None, NO, None, NO)
    bench = Bench(replies, [OK, OK], checks=checks)
    stop = await bench.run()
    assert stop.status is ExitStatus.DENIED
    assert stop.message == (
        "the same action was denied 3 times (The cell was denied by a person: not that one)"
    )
    assert bench.ran == ["1", "2"]
    assert stop.steps == 5


async def test_calls_that_are_denied_within_cells_count_as_well():
    """Five steps in a row, each of another cell, in which something was denied."""
    denied = HostCall(name="pay", arguments={}, ok=False, error="no", decision=NO, number=7)
    failed = CellResult(status="ok", calls=(denied,))
    bench = Bench([cell(f"pay({n})") for n in range(9)], [failed] * 9)
    stop = await bench.run()
    assert (stop.status, stop.steps) == (ExitStatus.DENIED, 5)
    assert stop.message == (
        "something was denied in 5 steps in a row "
        "(pay (call 7) was denied by a person: not that one)"
    )


async def test_the_ending_says_what_the_network_was_asked_and_what_programs_obey():
    """Both are the session's to know; the loop puts them into the last record."""
    checks = Checks(visits=lambda: ("a visit",), obeyed=lambda: (".envrc",))
    stop = await Bench([cell("final_answer(1)")], [ANSWER], checks=checks).run()
    assert (stop.network, stop.obeyed) == (("a visit",), (".envrc",))
    stop = await Bench([cell("final_answer(1)")], [ANSWER]).run()
    assert (stop.network, stop.obeyed) == ((), ())


@pytest.mark.parametrize("decision", [NO, YES])
async def test_an_answer_that_is_no_cell_is_never_carried_out(decision):
    """The format json has one; there is nothing to run for it."""
    from kernel_agent.records.conversation import Reply, ToolCall

    answer = ToolCall(id="1", name="final_answer", arguments='{"answer": 7}')
    checks, _ = deciding(decision)
    bench = Bench([Reply(content="", tool_calls=(answer,))], format="json", checks=checks)
    stop = await bench.run()
    assert (stop.status, stop.answer.value, stop.answer.text) == (ExitStatus.ANSWERED, 7, "7")
    assert bench.actions == []
    assert bench.steps[0].observation.text == "The answer was given."
