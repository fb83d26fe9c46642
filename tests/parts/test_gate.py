"""What comes is counted before it is decoded; what is under way shares one pot."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import threading
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from support.examples import examples

from kernel_agent.inkernel.room import Room, TooMuch
from kernel_agent.inkernel.values import decode, encode
from kernel_agent.safe import gate
from kernel_agent.safe.gate import BASE, Pot, limit_of, read_json
from kernel_agent.safe.text import json_items
from kernel_agent.tools.broker import PREFIX, Broker
from kernel_agent.tools.definition import Tool, tool

ALIKE = (1 << 61) - 1


def in_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def stream(table: Any) -> dict[str, str]:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return {"$": "table", "arrow": in_base64(sink.getvalue())}


def one_colour(side: int) -> dict[str, str]:
    sink = io.BytesIO()
    Image.new("L", (side, side)).save(sink, "png")
    return {"$": "image", "png": in_base64(sink.getvalue())}


def request(*calls: Any, number: int = 1) -> str:
    return PREFIX + json.dumps({"id": number, "calls": list(calls)})


def call(name: str, *args: Any) -> dict[str, Any]:
    return {"name": name, "args": list(args), "kwargs": {}}


@tool
def echo(value: object) -> object:
    """Return nothing of the value."""
    return None


@tool
def number(value: int) -> int:
    """Return the number."""
    return value


# --- forms ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "form",
    [
        stream(pa.table({"a": pa.nulls(9_000_000)})),
        stream(pa.table({"a": pa.array([[]] * 500_000, pa.list_(pa.int8()))})),
        stream(pa.table({"a": pa.array([None] * 9_000_000, pa.bool_())})),
        one_colour(5000),
        {"$": "bytes", "base64": "A" * 80_000_000},
    ],
    ids=["nulls", "empty lists", "truths", "one colour", "bytes"],
)  # fmt: skip
def test_a_form_is_charged_before_anything_is_made_of_it(form: dict[str, str]) -> None:
    room = Room(BASE)
    with pytest.raises(TooMuch):
        decode(form, room)
    assert room.used <= BASE


@pytest.mark.parametrize(
    "form",
    [
        {"$": "decimal", "text": "1E+6001"}, {"$": "decimal", "text": "1E-6000000"},
        {"$": "decimal", "text": "0E+999999999"}, {"$": "decimal", "text": "1" * 10_001},
        {"$": "decimal", "text": [0, [1], 999_999]}, {"$": "float", "text": "1" * 20_000},
        {"$": "float", "text": 5}, {"$": "timedelta", "text": "1" * 20_000},
        {"$": ["x"] * 1000}, {"$": {}}, {"$": "array", "dtype": "f8", "shape": "11", "base64": ""},
        {"$": "set", "items": [ALIKE * n for n in range(2000)]},
        {"$": "dict", "items": [[ALIKE * n, 1] for n in range(2000)]},
        [ALIKE * n for n in range(2000)], [str(ALIKE * n) for n in range(2000)],
    ],
)  # fmt: skip
def test_what_costs_more_than_its_length_is_refused(form: Any) -> None:
    with pytest.raises(ValueError, match=r"not a value of kind|collide"):
        decode(form)


def test_a_picture_of_countless_parts_is_refused() -> None:
    sink = io.BytesIO()
    Image.new("L", (2, 2)).save(sink, "png")
    data = sink.getvalue()
    part = b"\0\0\0\0tEXt\0\0\0\0"
    for parts in (part * 20_001, b"\0\0\0\0zTXt\0\0\0\0"):
        forged = {"$": "image", "png": in_base64(data[:33] + parts + data[33:])}
        with pytest.raises(ValueError, match="too many parts"):
            decode(forged)


@pytest.mark.long
def test_a_large_table_of_objects_comes_back_as_a_small_one_does() -> None:
    """It is made a few rows at a time; the index and the types are those of the whole."""
    import datetime as dt

    import pandas as pd

    table = pd.DataFrame(
        {"d": [dt.date(2024, 1, 1), None] * 40_000, "n": [1, None] * 40_000,
         "c": pd.Categorical(["a", "b"] * 40_000)}
    )  # fmt: skip
    for index in (table.index, pd.RangeIndex(5, 80_005, name="k"), table.index.astype(str)):
        given_ = table.set_axis(index)
        expected = pa.Table.from_pandas(given_).to_pandas()
        pd.testing.assert_frame_equal(decode(encode(given_)), expected)


# --- JSON ----------------------------------------------------------------------------------------

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
texts = st.builds(json.dumps, values, ensure_ascii=st.booleans(), indent=st.sampled_from([None, 1]))
halves = st.text(alphabet='\U0001f600\ud83d\ude00"\\a\n', max_size=40).map(json.dumps)
broken = st.text(alphabet='[]{},:"\\ntrue1.e-+ud8\n a', max_size=30)


@settings(max_examples=examples(300))
@given(texts | halves | broken)
def test_json_in_short_steps_says_what_it_says_in_one(text: str) -> None:
    """Also where it is cut between the two halves of a character, and where it is none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gate, "WHOLE", 0)
        patch.setattr(gate, "SLICE", 13)
        try:
            expected = repr(json.loads(text))
        except ValueError:
            with pytest.raises(ValueError):  # noqa: PT011 - whichever
                read_json(text)
        else:
            assert repr(read_json(text)) == expected


@settings(max_examples=examples(200))
@given(texts | broken)
def test_items_are_counted_alike_in_one_window_and_in_many(text: str) -> None:
    from kernel_agent.safe import text as counting

    whole = json_items(text, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "_WINDOW", 7)
        assert (json_items(text, 0) > 0) == (whole > 0)
        assert json_items(text, 10**6) <= sum(map(text.count, "[{,"))


# --- what is under way ---------------------------------------------------------------------------


async def test_an_unknown_tool_decodes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernel_agent.tools import requests

    decoded: list[Any] = []
    monkeypatch.setattr(requests, "decode", lambda value, _room: decoded.append(value))
    reply = json.loads(await Broker([echo]).answer(request(call("nobody", one_colour(10)))))
    assert reply["results"][0]["type"] == "NameError"
    assert decoded == []


async def test_a_request_over_its_bound_is_refused_and_the_next_one_answered() -> None:
    broker = Broker([echo, number])
    reply = json.loads(await broker.answer(request(call("echo", one_colour(7000)))))
    assert reply["error"]["type"] == "ValueError"
    assert "stands for" in reply["error"]["message"]
    reply = json.loads(await broker.answer(request(call("number", 5), number=2)))
    assert reply["results"] == [{"ok": True, "value": 5}]
    assert broker._pot.used == 0
    assert broker.refused == 1


async def test_requests_below_the_bound_wait_for_each_other_and_are_all_answered() -> None:
    """However many come at once, what they have become together stays within the pot."""
    held: list[int] = []

    @tool
    async def keep(value: object) -> int:
        """Say how much is charged while this one works."""
        await asyncio.sleep(0.01)  # a moment: that the work takes
        held.append(broker._pot.used)
        return 1

    broker = Broker([keep])
    form = one_colour(2900)  # 34 MB as it is charged
    prompts = [request(call("keep", form), number=n) for n in range(1, 9)]
    replies = await asyncio.gather(*map(broker.answer, prompts))
    assert [json.loads(reply)["results"][0]["ok"] for reply in replies] == [True] * 8
    assert max(held) <= limit_of(sum(map(len, prompts)))
    assert broker._pot.used == 0


async def test_a_small_request_overtakes_one_that_waits_for_room() -> None:
    go_on = asyncio.Event()

    @tool
    async def keep(value: object) -> int:
        """Hold the value."""
        await go_on.wait()
        return 1

    broker = Broker([keep, number])
    form = one_colour(3500)
    large = [asyncio.create_task(broker.answer(request(call("keep", form), number=n)))
             for n in (1, 2)]  # fmt: skip
    while not broker._pot.used:
        await asyncio.sleep(0.01)
    reply = await asyncio.wait_for(broker.answer(request(call("number", 5), number=3)), 30)
    assert json.loads(reply)["results"][0]["value"] == 5
    go_on.set()
    for reply in await asyncio.gather(*large):
        assert json.loads(reply)["results"][0]["ok"]


async def test_what_is_cancelled_gives_its_charge_back_when_its_thread_has_ended() -> None:
    """A plain function cannot be stopped: until it ends, what it was given is charged."""
    entered, leave = threading.Event(), threading.Event()

    @tool
    def stubborn(value: object) -> int:
        """Work on for nobody."""
        entered.set()
        leave.wait(30)
        return 1

    broker = Broker([stubborn, number])
    answer = asyncio.create_task(broker.answer(request(call("stubborn", one_colour(3000)))))
    await asyncio.to_thread(entered.wait, 30)
    await broker.end_cell()
    assert json.loads(await answer)["results"][0]["ok"] is False
    assert broker._pot.used > 30_000_000
    leave.set()
    while broker._pot.used:
        await asyncio.sleep(0.01)
    reply = json.loads(await broker.answer(request(call("number", 5), number=2)))
    assert reply["results"][0]["value"] == 5


async def test_a_cell_that_ends_while_its_request_is_read_calls_nothing() -> None:
    called: list[int] = []

    @tool
    def note(value: object) -> None:
        """Note the call."""
        called.append(1)

    broker = Broker([note])
    answer = asyncio.create_task(broker.answer(request(call("note", "x" * 3_000_000))))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await broker.end_cell()
    reply = json.loads(await answer)
    assert not called
    assert reply.get("error") or not reply["results"][0]["ok"]
    assert broker._pot.used == 0


async def test_the_loop_turns_while_a_long_request_is_read() -> None:
    """It is read in a thread: the loop does other things meanwhile."""
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    broker = Broker([Tool(echo.function)])
    turning = asyncio.create_task(turn())
    reply = await broker.answer(request(call("echo", "x," * 5_000_000)))
    turning.cancel()
    assert json.loads(reply)["results"][0]["ok"]
    assert turns > 20


async def test_a_tool_that_is_given_too_many_wrong_values_says_how_many() -> None:
    @tool
    def total(numbers: list[int]) -> int:
        """Return the sum."""
        return sum(numbers)

    reply = json.loads(await Broker([total]).answer(request(call("total", [""] * 5000))))
    assert reply["results"][0]["type"] == "TypeError"
    assert "5,000 values" in reply["results"][0]["message"]


async def test_a_pot_is_empty_after_whatever_was_charged() -> None:
    pot = Pot()
    charge = pot.charge(10)
    room = pot.room(charge)
    room.take(1000)
    pot.keep(charge, room)
    charge.hold()
    charge.drop()
    assert pot.used == 1000
    charge.drop()
    assert pot.used == 0
    assert pot.room(pot.charge(0)).limit == BASE
