"""The loop, without a kernel and without a model: every ending has its status and its trace."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest
from support.loop import ANSWER, ERROR, LONG, OK, START, Bench, cell

from kernel_agent.agent.loop import Agent
from kernel_agent.errors import ContextLengthError, KernelDied, ModelError, TraceError
from kernel_agent.records.action import Code
from kernel_agent.records.budget import Budget
from kernel_agent.records.cell import CellError, CellResult, Changes, Variable
from kernel_agent.records.conversation import Message, Reply
from kernel_agent.records.endings import ExitStatus
from kernel_agent.records.event import Acting, Notice, ReplyText
from kernel_agent.records.trace import Condensation, Record, RunStop, Step


async def test_an_answer_ends_the_run() -> None:
    bench = Bench([cell("1"), cell("final_answer(2)")], [OK, ANSWER])
    stop = await bench.run()
    assert stop.status is ExitStatus.ANSWERED
    assert stop.answer == ANSWER.answer
    assert stop.partial == ""
    assert (stop.steps, stop.usage.prompt_tokens, stop.usage.calls) == (2, 20, 2)
    assert bench.ran == ["1", "final_answer(2)"]


async def test_the_observation_of_a_step_is_what_the_model_sees_next() -> None:
    bench = Bench([cell("1"), cell("2")], [OK, ANSWER])
    await bench.run()
    assert "42" in bench.asked[1][-1].content


@pytest.mark.parametrize(
    ("budget", "status"),
    [
        (Budget(max_steps=3), ExitStatus.STEP_LIMIT),
        (Budget(max_tokens=25), ExitStatus.TOKEN_LIMIT),
    ],
)
async def test_a_cap_ends_the_run_with_what_was_achieved(
    budget: Budget, status: ExitStatus
) -> None:
    replies = [cell(f"print({n})") for n in range(9)]
    stop = await Bench(replies, [OK] * 9, budget).run()
    assert stop.status is status
    assert stop.answer is None
    assert stop.steps == 3
    assert "3 steps ran, 3 without an error" in stop.partial
    assert "42" in stop.partial
    assert "Think." not in stop.partial


async def test_a_model_that_takes_too_long_meets_the_time_limit() -> None:
    bench = Bench([], budget=Budget(max_seconds=0.05))

    async def never(_messages: list[Message]) -> Reply:
        await asyncio.sleep(60)
        raise AssertionError("it was not cancelled")

    bench.complete = never
    stop = await bench.run()
    assert stop.status is ExitStatus.TIME_LIMIT
    assert stop.partial == "No step was completed."


async def test_the_model_is_told_when_the_next_step_is_its_last() -> None:
    bench = Bench([cell("1"), cell("2"), cell("3")], [OK] * 3, Budget(max_steps=3))
    await bench.run()
    told = ["last one" in step.observation.text for step in bench.steps]
    assert told == [False, True, False]


async def test_the_same_action_failing_the_same_way_three_times_is_a_loop() -> None:
    """Addresses in a message differ from time to time: they do not make it another failure."""
    errors = [
        CellResult(
            status="error", error=CellError(ename="KeyError", evalue=f"'x' at 0x7f00{n:08x}")
        )
        for n in range(9)
    ]
    bench = Bench(
        [cell("df.x"), cell("1"), cell("df.x"), cell("df.x")], [errors[0], OK, *errors[1:]]
    )
    stop = await bench.run()
    assert stop.status is ExitStatus.LOOP_DETECTED
    assert stop.steps == 4
    assert "KeyError" in stop.message


async def test_different_failures_are_not_a_loop() -> None:
    replies = [cell(f"df.x{n}") for n in range(5)]
    stop = await Bench(replies, [ERROR] * 5, Budget(max_steps=5)).run()
    assert stop.status is ExitStatus.STEP_LIMIT


async def test_an_unreadable_reply_is_asked_for_again_without_spending_a_step() -> None:
    bench = Bench([Reply(content="I will look first."), cell("final_answer(1)")], [ANSWER])
    stop = await bench.run()
    assert stop.steps == 1
    assert [r.content for r in bench.steps[0].retries] == ["I will look first."]
    feedback = bench.asked[1][-1]
    assert feedback.role == "user"
    assert feedback.content == bench.steps[0].retries[0].feedback
    [notice] = [event for event in bench.events if isinstance(event, Notice)]
    assert notice.text.startswith("The reply could not be read (")
    assert notice.text.endswith("); asking again.")


async def test_what_was_unreadable_does_not_enter_the_history() -> None:
    bench = Bench([Reply(content="I will look."), cell("1"), cell("2")], [OK, ANSWER])
    await bench.run()
    assert not any("I will look." in m.content for m in bench.asked[2])


async def test_after_two_re_asks_it_counts_as_a_failed_step() -> None:
    bench = Bench([Reply(content="I will look.")] * 3 + [cell("final_answer(1)")], [ANSWER])
    stop = await bench.run()
    assert stop.steps == 2
    failed = bench.steps[0]
    assert failed.action is None
    assert not failed.ok
    assert len(failed.retries) == 3
    assert failed.observation.text == failed.retries[-1].feedback


async def test_a_model_that_never_writes_an_action_is_a_loop() -> None:
    stop = await Bench([Reply(content="I will look.")] * 99).run()
    assert stop.status is ExitStatus.LOOP_DETECTED
    assert stop.steps == 3


async def test_truncated_code_never_runs() -> None:
    bench = Bench(
        [
            Reply(content="```python\nimport os\nos.remove('a')\n```", finish_reason="length"),
            cell("final_answer(1)"),
        ],
        [ANSWER],
    )
    await bench.run()
    assert bench.ran == ["final_answer(1)"]


async def test_a_model_error_is_an_ending_that_keeps_the_steps() -> None:
    stop = await Bench([cell("1"), ModelError("the endpoint said no")], [OK]).run()
    assert (stop.status, stop.message) == (ExitStatus.MODEL_ERROR, "the endpoint said no")
    assert "42" in stop.partial


async def test_a_conversation_that_is_too_long_is_shortened_and_sent_again() -> None:
    replies = [*[cell(f"print({n})") for n in range(9)], ContextLengthError("too long"), cell("z")]
    bench = Bench(replies, [LONG] * 9 + [ANSWER])
    stop = await bench.run()
    assert stop.status is ExitStatus.ANSWERED
    sizes = [sum(len(m.content) for m in messages) for messages in bench.asked]
    assert sizes[10] < sizes[9]


async def test_each_refusal_shortens_further_and_the_last_one_ends_the_run() -> None:
    replies = [*[cell(f"print({n})") for n in range(9)], *[ContextLengthError("too long")] * 99]
    bench = Bench(replies, [LONG] * 9)
    stop = await bench.run()
    assert (stop.status, stop.message) == (ExitStatus.MODEL_ERROR, "too long")
    sizes = [sum(len(m.content) for m in messages) for messages in bench.asked[9:]]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == len(sizes) < 15


async def test_what_cannot_be_shortened_is_told_with_its_size_and_the_windows() -> None:
    """Less output would not help; a larger window would."""
    refusal = ContextLengthError("too long", limit_tokens=512, used_tokens=526)
    stop = await Bench([refusal] * 9).run()
    assert stop.message == (
        "the instructions alone need 526 tokens, the model's window is 512: start the server with "
        "a larger context, or use another model"
    )
    refusal = ContextLengthError("too long", limit_tokens=512)
    stop = await Bench([cell("1"), *[refusal] * 9], [OK]).run()
    assert stop.message.startswith(
        "the instructions, the task and the last step alone need more than 512 tokens, the model's"
    )


async def test_of_a_reply_that_was_cut_off_little_is_shown_again() -> None:
    """The prompt would grow by what there was no room for; the trace keeps all of it."""
    cut = Reply(content="I think " * 500, finish_reason="length")
    unclear = Reply(content="I think " * 500)
    bench = Bench([cut, unclear, cell("1")], [ANSWER])
    await bench.run()
    shown = [messages[-2].content for messages in bench.asked[1:]]
    assert [len(text) <= 400 for text in shown] == [True, False]
    assert [retry.content for retry in bench.steps[0].retries] == ["I think " * 500] * 2


LONG_CODE = "x = 1\n" + "# why\n" * 100


async def test_a_summary_is_written_by_the_model_where_it_can() -> None:
    """Once when it names what there is; it is metered, and its text reaches the next request."""
    holds = f"`df` has 3 rows{', each of them looked at' * 12}."
    made = CellResult(status="ok", changes=Changes(added=(Variable(name="df", type="DataFrame"),)))
    replies = [cell(f"{LONG_CODE}# {n}") for n in range(20)]
    bench = Bench([*replies, cell("z")], [made] * 20 + [ANSWER], max_tokens=1500,
                  summaries=[holds] * 20)  # fmt: skip
    stop = await bench.run()
    assert stop.status is ExitStatus.ANSWERED
    shortened = [r for r in bench.trace if isinstance(r, Condensation)]
    assert {(c.kind, c.by, c.text) for c in shortened} == {("summarised", "model", holds)}
    assert holds in bench.asked[-1][1].content
    assert stop.usage.calls == 21 + len(bench.asked_for_summary)
    assert all(c.time and c.run_id == "r" and c.usage.calls == 1 for c in shortened)


async def test_a_model_that_fails_at_a_summary_does_not_end_the_run() -> None:
    replies = [cell(f"{LONG_CODE}# {n}") for n in range(20)]
    bench = Bench([*replies, cell("z")], [OK] * 20 + [ANSWER], max_tokens=1500,
                  summaries=[ContextLengthError("too long"), ModelError("down")] * 20)  # fmt: skip
    stop = await bench.run()
    assert stop.status is ExitStatus.ANSWERED
    assert {r.by for r in bench.trace if isinstance(r, Condensation)} == {"rules"}
    assert any(isinstance(e, Notice) and "no summary" in e.text for e in bench.events)


async def test_stopping_during_a_summary_ends_at_once() -> None:
    replies = [cell(f"{LONG_CODE}# {n}") for n in range(20)]
    bench = Bench(replies, [OK] * 20, max_tokens=1500, summaries=[])
    thinking = asyncio.Event()

    async def slow(_messages: list[Message]) -> Reply:
        thinking.set()
        await asyncio.sleep(60)
        raise AssertionError("it was not cancelled")

    bench.summarise = slow
    run = asyncio.create_task(bench.run())
    await thinking.wait()
    bench.stop()
    stop = await run
    assert stop.status is ExitStatus.INTERRUPTED
    assert stop.steps > 0


async def test_a_small_window_has_small_observations() -> None:
    """Several of them must fit, or each step would change what is cached."""
    bench = Bench([cell("1"), cell("2")], [LONG, ANSWER], max_tokens=6000)
    await bench.run()
    assert 1700 < len(bench.steps[0].observation.text) <= 1750


@pytest.mark.parametrize(
    "end",
    [
        CellResult(status="dead", error=CellError(ename="KernelDied", evalue="exit code 3")),
        KernelDied("exit code 3"),
    ],
)
async def test_a_lost_kernel_ends_the_run(end: CellResult | Exception) -> None:
    stop = await Bench([cell("boom")], [end]).run()
    assert stop.status is ExitStatus.KERNEL_LOST
    assert "exit code 3" in stop.message


async def test_stopping_while_the_model_thinks_ends_at_once() -> None:
    bench = Bench([])
    thinking = asyncio.Event()

    async def slow(_messages: list[Message]) -> Reply:
        thinking.set()
        await asyncio.sleep(60)
        raise AssertionError("it was not cancelled")

    bench.complete = slow
    run = asyncio.create_task(bench.run())
    await thinking.wait()
    bench.stop()
    assert (await run).status is ExitStatus.INTERRUPTED


async def test_stopping_during_a_cell_keeps_the_step() -> None:
    interrupted = CellResult(status="interrupted", outputs=OK.outputs)
    bench = Bench([cell("long()")], [interrupted])

    async def stop_now() -> None:
        bench.stop()

    bench.during_cell = stop_now
    stop = await bench.run()
    assert stop.status is ExitStatus.INTERRUPTED
    assert [s.result for s in bench.steps] == [interrupted]


async def test_an_answer_that_came_with_the_stop_still_counts() -> None:
    bench = Bench([cell("final_answer(1)")], [ANSWER])

    async def stop_now() -> None:
        bench.stop()

    bench.during_cell = stop_now
    assert (await bench.run()).status is ExitStatus.ANSWERED


async def test_a_cancelled_run_is_recorded_before_the_cancellation_goes_on() -> None:
    bench = Bench([cell("long()")])

    async def forever() -> None:
        await asyncio.sleep(60)

    bench.during_cell = forever
    run = asyncio.create_task(bench.agent.run(START, numbers=count(1)))
    while not bench.ran:
        await asyncio.sleep(0)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert isinstance(bench.trace[-1], RunStop)
    assert bench.trace[-1].status is ExitStatus.INTERRUPTED


async def test_an_opening_is_a_step_before_the_model_is_asked_and_costs_none() -> None:
    """The model sees it; it is not counted, and what it computes is not the answer."""
    bench = Bench([cell("2"), cell("final_answer(3)")], [ANSWER, OK, ANSWER], Budget(max_steps=2))
    stop = await bench.run(opening=Code(source="1"), numbers=count(4))
    assert bench.ran == ["1", "2", "final_answer(3)"]
    assert [step.number for step in bench.steps] == [4, 5, 6]
    assert len(bench.asked) == 2
    assert "1" in bench.asked[0][-2].content
    assert (stop.status, stop.steps, bench.meter.steps) == (ExitStatus.ANSWERED, 2, 2)


async def test_what_an_opening_showed_is_not_what_the_run_achieved() -> None:
    bench = Bench([ModelError("down")], [OK])
    stop = await bench.run(opening=Code(source="1"))
    assert (stop.partial, stop.steps) == ("No step was completed.", 0)


async def test_an_opening_that_takes_the_kernel_with_it_ends_the_run() -> None:
    dead = CellResult(status="dead", error=CellError(ename="KernelDied", evalue="exit code 3"))
    bench = Bench([cell("1")], [dead])
    stop = await bench.run(opening=Code(source="boom"))
    assert (stop.status, bench.asked) == (ExitStatus.KERNEL_LOST, [])


async def test_steps_are_counted_on_from_the_first_number() -> None:
    """``outputs[k]`` means one thing through a session."""
    bench = Bench([cell("1"), cell("2")], [OK, ANSWER])
    await bench.run(numbers=count(7))
    assert [step.number for step in bench.steps] == [7, 8]
    assert [number for number, _ in bench.actions] == [7, 8]
    assert [event.number for event in bench.events if isinstance(event, Acting)] == [7, 8]


async def test_a_run_that_was_stopped_before_it_began_asks_nothing() -> None:
    bench = Bench([cell("1")], [OK])
    bench.stop()
    stop = await bench.run()
    assert (stop.status, stop.message) == (ExitStatus.INTERRUPTED, "stopped on request")
    assert (bench.asked, bench.ran) == ([], [])


async def test_a_stop_outweighs_what_went_wrong_in_the_same_step() -> None:
    """Stopping a cell may cost the kernel: the person knows why it ended."""
    dead = CellResult(status="dead", error=CellError(ename="KernelDied", evalue="exit code 3"))
    bench = Bench([cell("long()")], [dead])

    async def stop_now() -> None:
        bench.stop()

    bench.during_cell = stop_now
    assert (await bench.run()).status is ExitStatus.INTERRUPTED


async def test_a_trace_that_cannot_be_written_ends_everything() -> None:
    """There is nowhere to put an ending, so there is none."""
    bench = Bench([cell("1")], [OK])
    kept = []

    def record(made: Record) -> None:
        if isinstance(made, Step):
            raise TraceError("the disk is full")
        kept.append(made)

    agent = Agent(
        bench.agent.decider, execute=bench.execute, record=record, meter=bench.meter,
        on_event=bench.events.append,
    )  # fmt: skip
    with pytest.raises(TraceError, match="disk is full"):
        await agent.run(START, numbers=count(1))
    assert kept == [START]
    assert [event for event in bench.events if isinstance(event, Step | RunStop)] == []


async def test_what_is_heard_between_two_turns_belongs_to_none() -> None:
    bench = Bench([cell("1"), ModelError("down")], [OK])
    bench.agent.hear(ReplyText(text="before"))

    async def say() -> None:
        bench.agent.hear(ReplyText(text="in a cell"))

    bench.during_cell = say
    await bench.run()
    assert [step.code for step in bench.steps] == ["1"]


async def test_the_seconds_of_the_model_and_of_the_cell_are_told_apart() -> None:
    """Whichever takes longer is the one that took longer."""
    bench = Bench()
    replies, results = [cell("1"), cell("2")], [OK, ANSWER]

    async def complete(_messages: list[Message]) -> Reply:
        await asyncio.sleep(0.05 if len(replies) == 2 else 0)  # a moment: that is told
        return replies.pop(0)

    async def execute(_action: object, _number: int) -> CellResult:
        await asyncio.sleep(0.05 if len(results) == 1 else 0)  # a moment: that is told
        return results.pop(0)

    bench.complete, bench.execute = complete, execute
    stop = await bench.run()
    slow_model, slow_cell = bench.steps
    assert slow_model.model_seconds > slow_model.cell_seconds
    assert slow_cell.cell_seconds > slow_cell.model_seconds
    assert stop.seconds >= slow_model.model_seconds + slow_cell.cell_seconds


async def test_a_model_that_does_not_let_go_is_asked_no_more_after_a_stop() -> None:
    """Its reply comes although it was cancelled: what it said is kept, nothing is asked again."""
    bench = Bench()

    async def stubborn(messages: list[Message]) -> Reply:
        bench.asked.append(messages)
        bench.stop()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return Reply(content="I will look.")
        raise AssertionError("it was not cancelled")

    bench.complete = stubborn
    stop = await bench.run()
    assert (stop.status, len(bench.asked)) == (ExitStatus.INTERRUPTED, 1)
    assert [retry.content for retry in bench.steps[0].retries] == ["I will look."]
