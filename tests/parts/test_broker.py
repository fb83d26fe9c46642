"""The broker answers whatever a kernel sends, counts what it refuses, and loses nothing."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import resource
import sys
import threading
import time
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from support.examples import examples
from support.waiting import until

from kernel_agent.inkernel.values import decode, encode
from kernel_agent.records.action import Call
from kernel_agent.records.cell import Decision
from kernel_agent.records.codec import from_json
from kernel_agent.records.trace import to_json
from kernel_agent.safe.text import json_items
from kernel_agent.tools import broker as bounds
from kernel_agent.tools import caller
from kernel_agent.tools.broker import PREFIX, Broker
from kernel_agent.tools.definition import Origin, Tool, tool


class Order(BaseModel):
    pens: list[int]
    when: dt.date


@tool
def echo(value: object, note: object = None) -> object:
    """Return the value."""
    return value


@tool
def total(order: Order) -> int:
    """Return how many pens were ordered."""
    return sum(order.pens) * order.when.year


@tool
def rows(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with a column more."""
    return table.assign(more=1)


def request(*calls: Any, number: Any = 1) -> str:
    return PREFIX + json.dumps({"id": number, "calls": list(calls)})


def call(name: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    return {"name": name, "args": encode(list(args)), "kwargs": encode(kwargs)}


async def one(broker: Broker, made: Any, number: int = 1) -> dict[str, Any]:
    reply = json.loads(await broker.answer(request(made, number=number)))
    return dict(reply["results"][0])


async def end(broker: Broker) -> dict[str, int]:
    await broker.end_cell()
    return broker.take_counted()


# --- values --------------------------------------------------------------------------------------


async def test_tables_arrays_and_dates_are_given_and_returned_as_what_they_are() -> None:
    broker = Broker([echo, rows])
    for n, value in enumerate([dt.date(2024, 2, 29), b"\x00", (1, 2), {1: "x"}, float("inf")]):
        assert decode((await one(broker, call("echo", value), n + 1))["value"]) == value
    table = pd.DataFrame({"a": [1, 2]})
    back = decode((await one(broker, call("rows", table), 10))["value"])
    pd.testing.assert_frame_equal(back, table.assign(more=1))
    array = decode((await one(broker, call("echo", np.arange(3)), 11))["value"])
    assert array.tolist() == [0, 1, 2]


async def test_pydantic_makes_models_of_dicts_on_arrival() -> None:
    broker = Broker([total])
    given_ = {"pens": [1, 2], "when": dt.date(2000, 1, 1)}
    assert await one(broker, call("total", given_)) == {"ok": True, "value": 6000}
    wrong = await one(broker, call("total", {"pens": "none"}), 2)
    assert wrong["type"] == "TypeError"
    assert "pens" in wrong["message"]
    assert "when" in wrong["message"]
    assert await end(broker) == {"wrong arguments": 1}


async def test_a_result_that_cannot_be_sent_is_a_type_error_and_one_too_large_a_value_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @tool
    def odd() -> object:
        """Return what has no form."""
        return object()

    @tool
    def large() -> str:
        """Return a long text."""
        return "x" * 20_000

    monkeypatch.setattr(caller, "MAX_RESULT", 10_000)
    broker = Broker([odd, large])
    assert (await one(broker, call("odd")))["type"] == "TypeError"
    result = await one(broker, call("large"), 2)
    assert (result["type"], "too large to send" in result["message"]) == ("ValueError", True)
    assert [c.ok for c in broker.take_calls()] == [False, False]


# --- errors --------------------------------------------------------------------------------------


class Unreadable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("error", "kind", "args"),
    [
        (KeyError("kiwis"), "KeyError", ["kiwis"]),
        (FileNotFoundError(2, "No such file", "x.csv"), "FileNotFoundError",
         [2, "No such file", "x.csv"]),
        (SystemExit(3), "SystemExit", [3]),
        (KeyboardInterrupt(), "KeyboardInterrupt", []),
        (asyncio.CancelledError(), "CancelledError", []),
        (ValueError(object()), "ValueError", None),
        (Unreadable("x"), "Unreadable", ["x"]),
        (StopIteration(1), "RuntimeError", ["coroutine raised StopIteration"]),
        (MemoryError(), "MemoryError", []),
        (RecursionError("deep"), "RecursionError", ["deep"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("waits", [False, True])
async def test_whatever_a_tool_raises_is_an_answer(
    error: BaseException, kind: str, args: list[Any] | None, *, waits: bool
) -> None:
    """Nothing of it ends the host's loop, not even SystemExit."""

    @tool
    def fails() -> None:
        """Raise."""
        raise error

    @tool
    async def fails_later() -> None:
        """Raise."""
        raise error

    broker = Broker([fails, fails_later, echo])
    result = await one(broker, call("fails_later" if waits else "fails"))
    assert (result["ok"], result["type"], result.get("args")) == (False, kind, args)
    assert (await one(broker, call("echo", 1), 2))["value"] == 1
    json.dumps(to_json(broker.take_calls()))


async def test_secrets_are_cut_from_errors_results_and_the_trace() -> None:
    secret = 'p"ss-wörd-123'

    @tool
    def leaks(how: str) -> dict[str, str]:
        """Say too much."""
        if how == "raise":
            raise ConnectionError(f"postgres://user:{secret}@db refused")
        return {f"url-{secret}": f"key={secret}"}

    broker = Broker([leaks], secrets=[secret])
    told = [await one(broker, call("leaks", how), n) for n, how in enumerate(("raise", "give"), 1)]
    assert told[0]["args"] == ["postgres://user:[secret]@db refused"]
    assert told[1]["value"] == {"url-[secret]": "key=[secret]"}
    traced = json.dumps(to_json(broker.take_calls()), ensure_ascii=False)
    assert secret not in traced
    assert json.dumps(secret)[1:-1] not in json.dumps(told)


async def test_no_part_of_a_secret_is_left_where_a_text_is_shortened() -> None:
    """It is cut before, wherever it stands: in a long message, and in a result that is too long."""
    secret = "abcdefgh12345678"

    @tool
    def fails(before: int) -> str:
        """Say too much."""
        raise ConnectionError("x" * before + secret)

    @tool
    def gives(before: int) -> str:
        """Give too much."""
        return "y" * before + secret + "z" * 3_000_000

    broker = Broker([fails, gives], secrets=[secret])
    for number, before in enumerate(range(1984, 2001, 4), 1):
        told = await one(broker, call("fails", before), number)
        assert "abcd" not in json.dumps(told)
    for number, before in enumerate(range(2340, 2420, 4), 100):
        await one(broker, call("gives", before), number)
    assert "abcd" not in json.dumps(to_json(broker.take_calls()))


@pytest.mark.parametrize("given", [12345678, -123456789.5, 1.2345678e7, {"n": [12345678, "a"]}])
async def test_a_number_that_holds_a_secret_is_cut_and_the_call_is_answered(given: Any) -> None:
    @tool
    def gives() -> Any:
        """Give it."""
        return given

    broker = Broker([gives], secrets=["12345678"])
    told = await one(broker, call("gives"))
    assert told["ok"]
    [traced] = broker.take_calls()
    for seen in (told["value"], traced.result):
        assert "[secret]" in json.dumps(seen)
        assert "12345678" not in json.dumps(seen)


# --- hostile requests ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "kind"),
    [
        ("Name? ", "input"),
        ("kernel-agent/2 {}", "input"),
        (PREFIX, "malformed"),
        (PREFIX + "[" * 100_000, "malformed"),
        (PREFIX + "1" * 5000, "malformed"),
        (request(number=True), "malformed"),
        (request(number=-1), "malformed"),
        (request(number=2**60), "malformed"),
        (request(number=1.0), "malformed"),
        (PREFIX + '{"id": 1, "calls": {}}', "malformed"),
        (request(*[{}] * 1001), "too large"),
        (PREFIX + "[" + "{}," * 600_000 + "{}]", "too large"),
        ("kernel-agent/1 " + " " * 32_000_000, "too large"),
        (request(5, number=1), None),
    ],
)
async def test_a_request_that_is_not_one_is_refused_and_counted(
    prompt: str, kind: str | None
) -> None:
    broker = Broker([echo])
    reply = json.loads(await broker.answer(prompt))
    if kind is None:
        assert reply["results"][0]["ok"] is False
        assert await end(broker) == {"malformed": 1}
    else:
        assert reply["results"] == []
        assert reply["error"]["message"]
        assert (broker.refused, await end(broker)) == (1, {kind: 1})
    assert (await one(broker, call("echo", "x"), 7))["ok"]


async def test_a_text_full_of_commas_is_not_too_large() -> None:
    """Only what becomes an object of its own counts."""
    broker = Broker([echo])
    text = '[{,"\\' * 400_000
    assert decode((await one(broker, call("echo", text)))["value"]) == text


@pytest.mark.parametrize(
    "inside",
    [
        "a," * 15_000_000 + '"',
        "\\n" * 14_000_000 + "," * 1_100_000 + '"',
        '\\",' * 9_000_000 + "\\",
    ],
    ids=["letters", "escapes", "never ended"],
)
def test_telling_texts_from_items_takes_neither_memory_nor_time(inside: str) -> None:
    began, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert json_items('{"a": "' + inside, 1_000_000) == 1
    assert time.process_time() - began < 15
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # kB


async def test_a_request_is_answered_once_and_in_its_turn() -> None:
    broker = Broker([echo])
    assert (await one(broker, call("echo", 1), 5))["ok"]
    for number in (5, 4, 1):
        reply = json.loads(await broker.answer(request(call("echo", 1), number=number)))
        assert reply["error"]["type"] == "RuntimeError"
    assert len(broker.take_calls()) == 1
    assert await end(broker) == {"replayed": 3}
    broker.fresh_kernel()
    assert (await one(broker, call("echo", 1), 1))["ok"]


async def test_a_flood_of_requests_waits_for_nothing() -> None:
    """More than may be under way are refused at once, and the others are answered."""
    held = asyncio.Event()

    @tool
    async def wait() -> None:
        """Wait."""
        await held.wait()

    broker = Broker([wait])
    tasks = [asyncio.create_task(broker.answer(request(call("wait"), number=n)))
             for n in range(1, 400)]  # fmt: skip
    await until(lambda: sum(task.done() for task in tasks) == 399 - bounds.MAX_UNDER_WAY)
    held.set()
    replies = [json.loads(reply) for reply in await asyncio.gather(*tasks)]
    assert sum(bool(reply["results"]) for reply in replies) == bounds.MAX_UNDER_WAY
    assert await end(broker) == {"flood": 399 - bounds.MAX_UNDER_WAY}


async def test_a_cell_may_make_so_many_calls_and_the_trace_lists_so_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "MAX_CELL_CALLS", 30)
    monkeypatch.setattr(bounds, "LISTED", 12)
    broker = Broker([echo])
    for n in range(1, 6):
        await broker.answer(request(*[call("echo", n)] * 10, number=n))
    calls = broker.take_calls()
    assert (len(calls), [c.number for c in calls][-1]) == (12, 12)
    assert await end(broker) == {"flood": 2, "not listed": 18}
    assert (await one(broker, call("echo", 1), 9))["ok"]  # in the next cell
    assert broker.take_calls()[0].number == 31


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["$", "id", "calls", "name", "args", "kwargs", "items", "text"]), inner
        )
    ),
    max_leaves=12,
)
hostile = st.one_of(
    st.text(max_size=50),
    st.text(max_size=50).map(PREFIX.__add__),
    json_values.map(lambda value: PREFIX + json.dumps(value)),
    st.lists(json_values, max_size=3).map(lambda calls: request(*calls, number=len(calls))),
    st.builds(
        lambda name, args, kwargs, n: request(
            {"name": name, "args": args, "kwargs": kwargs}, number=n
        ),
        st.sampled_from(["echo", "total", "rows", "no", "__class__"]),
        json_values,
        json_values,
        st.integers(-2, 20),
    ),
)


@settings(max_examples=examples(300))
@given(st.lists(hostile, min_size=1, max_size=8))
async def test_whatever_a_kernel_sends_gets_one_answer_and_the_next_call_works(
    prompts: list[str],
) -> None:
    """And what the trace is told of it can be written and read."""
    broker = Broker([echo, total, rows])
    replies = await asyncio.gather(*map(broker.answer, prompts))
    for reply in map(json.loads, replies):
        assert bool(reply["results"]) or "error" in reply or reply["results"] == []
    await broker.end_cell()
    calls, counted = broker.take_calls(), broker.take_counted()
    told = [to_json(call) for call in calls]
    back = [from_json(call) for call in json.loads(json.dumps(told))]
    assert back == [from_json(call) for call in told]
    assert all(count > 0 for count in counted.values())
    broker.fresh_kernel()  # whose numbers begin again, whatever the one before had used
    assert (await one(broker, call("echo", 1)))["value"] == 1


# --- side by side, and given up ------------------------------------------------------------------


async def test_a_hundred_slow_calls_take_as_long_as_the_slowest() -> None:
    """Plain functions have a thread each."""
    all_there = threading.Barrier(100)

    @tool
    def meet(n: int) -> int:
        """Wait for the others."""
        all_there.wait(20)
        return n

    broker = Broker([meet])
    reply = json.loads(await broker.answer(request(*[call("meet", n) for n in range(100)])))
    assert [result["value"] for result in reply["results"]] == list(range(100))


async def test_calls_are_numbered_as_they_were_asked_for_whichever_ends_first() -> None:
    """The cell's and those of an action alike."""
    ended: list[int] = []
    turn = asyncio.Condition()

    @tool
    async def meet(n: int) -> int:
        """End after all that were asked for later."""
        async with turn:
            await turn.wait_for(lambda: len(ended) == 3 - n)
            ended.append(n)
            turn.notify_all()
        return n

    broker = Broker([meet])
    await broker.answer(request(*[call("meet", n) for n in (1, 2, 3)]))
    assert ended == [3, 2, 1]
    assert [(made.number, made.result) for made in broker.take_calls()] == [(1, 1), (2, 2), (3, 3)]
    ended.clear()
    asked = [Call(name="meet", arguments={"n": n}) for n in (1, 2, 3)]
    made = await asyncio.gather(*map(broker.call, asked))
    assert ended == [3, 2, 1]
    assert [each.number for each in made] == [4, 5, 6]


async def test_a_quick_request_that_overtakes_a_slow_one_keeps_its_number() -> None:
    """The large one is decoded in a thread; the next one is answered meanwhile."""
    broker = Broker([echo])
    await broker.answer(request(call("echo", 0), number=1))  # pydantic is imported
    large = asyncio.ensure_future(broker.answer(request(call("echo", "x" * 8_000_000), number=2)))
    while broker._last_id < 2:  # until it was read
        await asyncio.sleep(0.001)
    await broker.answer(request(call("echo", 1), number=3))
    await large
    first, _, last = broker.take_calls()
    assert [(made.number, made.result) for made in (first, last)] == [(1, 0), (3, 1)]


async def test_when_the_cell_ends_async_tools_are_cancelled_and_threads_abandoned() -> None:
    """The kernel is told, the trace has them, and nobody is waited for."""
    release, cancelled, begun = threading.Event(), [], set[str]()

    @tool
    def never() -> None:
        """Wait for ever."""
        begun.add("never")
        release.wait(60)

    @tool
    async def later() -> None:
        """Wait for ever."""
        begun.add("later")
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    @tool
    async def stubborn() -> None:
        """Refuse to be cancelled."""
        begun.add("stubborn")
        while not release.is_set():
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                continue

    broker = Broker([never, later, stubborn, echo])
    names = ["never", "later", "stubborn"]
    try:
        answer = asyncio.create_task(broker.answer(request(*map(call, names))))
        await until(lambda: begun == set(names))
        await broker.end_cell()
        reply = json.loads(await answer)
        told = {result["message"] for result in reply["results"]}
        assert told == {"the cell was over before the call was"}
        assert {(c.name, c.ok) for c in broker.take_calls()} == {(name, False) for name in names}
        assert broker.take_counted() == {"abandoned": 2}
        assert cancelled == [True]
        assert (await one(broker, call("echo", 1), 2))["ok"]
    finally:
        release.set()
    await asyncio.sleep(0.2)  # a moment: nothing comes after
    assert [c.name for c in broker.take_calls()] == ["echo"]


async def test_abandoned_threads_do_not_take_the_places_of_others() -> None:
    release = threading.Event()

    @tool
    def never() -> None:
        """Wait for ever."""
        release.wait(60)

    broker = Broker([never, echo])
    for number in (1, 2, 3):
        answer = asyncio.create_task(broker.answer(request(*[call("never")] * 100, number=number)))
        await asyncio.sleep(0.3)
        await broker.end_cell()
        await answer
    assert (await one(broker, call("echo", 1), 9))["ok"]
    assert broker.take_counted() == {"abandoned": 300}
    release.set()


async def test_cancelling_an_answer_leaves_no_task_behind() -> None:
    @tool
    async def later() -> None:
        """Wait for ever."""
        begun.append(True)
        await asyncio.sleep(3600)

    begun: list[bool] = []
    broker = Broker([later])
    answer = asyncio.create_task(broker.answer(request(call("later"), call("later"))))
    await until(lambda: len(begun) == 2)
    answer.cancel()
    await asyncio.gather(answer, return_exceptions=True)
    await broker.end_cell()
    assert asyncio.all_tasks() == {asyncio.current_task()}


# --- admission and the trace ---------------------------------------------------------------------


async def test_a_call_is_asked_about_once_its_arguments_are_right() -> None:
    asked = []

    async def admit(asked_for: Tool, arguments: dict[str, Any], _origin: Origin) -> Decision:
        asked.append((asked_for.name, arguments))
        return Decision(allowed=arguments == {"url": "yes"}, by="policy", reason="only yes")

    @tool(untrusted=True)
    def page(url: str) -> str:
        """Return a page."""
        return f"<{url}>"

    broker = Broker([page], admit=admit)
    wrong = await one(broker, call("page", 5))
    no = await one(broker, call("page", "no"), 2)
    yes = await one(broker, call("page", "yes"), 3)
    assert (wrong["type"], no["type"]) == ("TypeError", "PermissionError")
    denied = "the call of page was denied by the policy: only yes"
    assert (no["message"].split(". ")[0], yes["value"]) == (denied, "<yes>")
    assert [arguments for _, arguments in asked] == [{"url": "no"}, {"url": "yes"}]
    calls = broker.take_calls()
    assert [c.decision and c.decision.allowed for c in calls] == [None, False, True]
    assert [(c.number, c.untrusted) for c in calls] == [(1, True), (2, True), (3, True)]
    assert await end(broker) == {"wrong arguments": 1, "denied": 1}
    made = await broker.call(Call(name="page", arguments={"url": "no"}))
    assert made.error.startswith(f"PermissionError: {denied}")


async def test_the_trace_describes_what_is_large_and_keeps_what_is_small() -> None:
    broker = Broker([echo])
    small, large = pd.DataFrame({"a": [1, 2]}), pd.DataFrame(np.zeros((50_000, 5)))
    values = [small, large, "x" * 2_000_000, ["x" * 30] * 40_000, b"\0" * 900_000, (1, {"$": 2})]
    for n, value in enumerate(values, 1):
        assert (await one(broker, call("echo", value), n))["ok"]
    calls = broker.take_calls()
    lines = [json.dumps(to_json(made)) for made in calls]
    assert max(map(len, lines)) < 1.1 * (bounds.KEPT_CHARS + bounds.KEPT_RESULT)
    kept = [made.result for made in calls]
    same = [made.arguments["args"][0] == made.result for made in calls]  # type: ignore[index, call-overload]
    assert same == [True, True, True, False, True, True]  # more of a list's items fit in a result
    assert kept[0]["preview"] == "   a\n0  1\n1  2"  # type: ignore[index, call-overload]
    pd.testing.assert_frame_equal(decode(kept[0]), small)
    assert kept[1]["$"] == "left out"  # type: ignore[index, call-overload]
    assert kept[1]["size"] == "50,000 x 5"  # type: ignore[index, call-overload]
    assert "2,000,000 characters" in lines[2]
    assert "more items" in lines[3]
    assert kept[4]["size"] == "900,000 bytes"  # type: ignore[index, call-overload]
    assert decode(kept[5]) == (1, {"$": 2})


async def test_many_large_calls_of_a_cell_make_no_huge_line() -> None:
    broker = Broker([echo])
    for n in range(1, 301):
        await broker.answer(request(call("echo", "x" * 15_000), number=n))
    line = json.dumps(to_json(broker.take_calls()))
    assert len(line) < 1.5 * bounds.KEPT_CELL_CHARS


async def test_a_few_large_results_leave_room_for_small_ones() -> None:
    """One after another and side by side."""
    broker = Broker([echo])
    values = ["x" * 900_000] * 9 + [[n] * 1000 for n in range(9)]
    for number, calls in ((1, values[:5]), (2, values[5:])):
        await broker.answer(request(*(call("echo", value) for value in calls), number=number))
    kept = [made.result for made in broker.take_calls()]
    assert kept[:6] == values[:6]
    assert [form["$"] for form in kept[6:9]] == ["left out"] * 3  # type: ignore[index, call-overload]
    assert kept[9:] == values[9:]


def test_importing_the_broker_loads_neither_pydantic_nor_numpy() -> None:
    """They wait for the first call."""
    import subprocess

    probe = "import sys, kernel_agent.tools.broker; print({'pydantic', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
