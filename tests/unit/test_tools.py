"""Host tools are checked when they are made and when they are called; the broker never raises."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_agent.errors import UsageError
from kernel_agent.tools.broker import PREFIX, Broker
from kernel_agent.tools.tool import Tool, as_tools, load_tools, tool


@tool
def price(item: str, count: int = 1) -> float:
    """Return what so many of an item cost.

    Not shown in the stub.
    """
    if item == "moon":
        raise LookupError("not for sale")
    return 2.5 * count


@tool
async def later(value: int) -> int:
    """Return the value, after a moment."""
    return value


@tool
def slow(value: int) -> int:
    """Return the value, slowly."""
    time.sleep(0.1)
    return value


def request(*calls: dict[str, Any], number: int = 1) -> str:
    return PREFIX + json.dumps({"id": number, "calls": list(calls)})


def call(name: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    return {"name": name, "args": list(args), "kwargs": kwargs}


async def results(*calls: dict[str, Any]) -> list[dict[str, Any]]:
    reply = json.loads(await Broker([price, later, slow]).answer(request(*calls, number=9)))
    assert reply["id"] == 9
    return list(reply["results"])


def test_a_tool_is_still_the_function_that_it_was() -> None:
    assert price("pen", count=2) == 5.0
    assert price.__name__ == "price"


def test_the_stub_shows_signature_and_first_paragraph() -> None:
    assert price.stub == (
        "def price(item: str, count: int = 1) -> float:\n"
        '    """Return what so many of an item cost."""'
    )


def test_a_tool_that_a_model_could_not_use_is_refused() -> None:
    def no_doc(x: int) -> int:
        return x

    def no_annotation(x) -> int:  # type: ignore[no-untyped-def]  # that is the point
        """Do it."""
        return int(x)

    with pytest.raises(UsageError, match="docstring"):
        Tool(no_doc)
    with pytest.raises(UsageError, match="annotate the parameter x"):
        Tool(no_annotation)
    with pytest.raises(UsageError, match="price"):
        as_tools([price, price])


async def test_calls_give_values_in_the_order_of_the_calls() -> None:
    assert await results(call("price", "pen", count=4), call("later", 7)) == [
        {"ok": True, "value": 10.0},
        {"ok": True, "value": 7},
    ]


async def test_calls_of_one_request_run_side_by_side() -> None:
    began = time.monotonic()
    values = await results(*(call("slow", n) for n in range(8)))
    assert [v["value"] for v in values] == list(range(8))
    assert time.monotonic() - began < 0.6  # one after the other would take 0.8 s


@pytest.mark.parametrize(
    ("made", "kind", "message"),
    [
        (call("price", "moon"), "LookupError", "not for sale"),
        (call("price"), "TypeError", "item"),
        (call("price", "pen", count="many"), "TypeError", "count"),
        (call("price", "pen", color="red"), "TypeError", "color"),
        (call("no_such_tool"), "NameError", "no_such_tool"),
        (call("__import__", "os"), "NameError", "__import__"),
        ({"name": 5}, "ValueError", "not well-formed"),
    ],
)
async def test_what_goes_wrong_is_an_answer(made: dict[str, Any], kind: str, message: str) -> None:
    [result] = await results(made)
    assert (result["ok"], result["type"]) == (False, kind)
    assert message in result["message"]


@given(st.one_of(st.text(), st.text().map(PREFIX.__add__), st.recursive(
    st.none() | st.integers() | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.sampled_from(
        ["id", "calls", "name", "args", "kwargs"]), children), max_leaves=8,
).map(lambda value: PREFIX + json.dumps(value))))  # fmt: skip
async def test_whatever_the_kernel_sends_is_answered(prompt: str) -> None:
    reply = json.loads(await Broker([price]).answer(prompt))
    assert set(reply) >= {"id", "results"}


async def test_the_calls_are_kept_for_the_trace() -> None:
    broker = Broker([price])
    await broker.answer(request(call("price", "pen"), call("price", "moon")))
    good, bad = broker.take_calls()
    assert (good.name, good.arguments, good.result) == (
        "price",
        {"args": ["pen"], "kwargs": {}},
        2.5,
    )
    assert (bad.ok, bad.error) == (False, "LookupError: not for sale")
    assert broker.take_calls() == ()


def test_tools_come_from_a_file_by_its_path(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text(
        "from kernel_agent import tool\n\n"
        "@tool\ndef f(x: int) -> int:\n    'Do it.'\n    return x\n"
    )
    assert [t.name for t in load_tools(str(file))] == ["f"]
    file.write_text("x = 1\n")
    with pytest.raises(UsageError, match="@tool"):
        load_tools(str(file))
    file.write_text("1/0\n")
    with pytest.raises(UsageError, match="ZeroDivisionError"):
        load_tools(str(file))
    with pytest.raises(UsageError, match="no_such_module"):
        load_tools("no_such_module")
