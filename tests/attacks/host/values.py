"""Forged values for a tool whose parameters are numbers: what a name and a few digits can do.

The broker is asked as the kernel client asks it; a tool with an ``int`` parameter is what a user
writes every day.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import pydantic  # noqa: F401 - to load it is not what is measured

from attacks.score import either, grew, never_ended, stood_still
from attacks.words import host_attack
from kernel_agent.tools.broker import Broker
from kernel_agent.tools.definition import tool

EFFECT = either(stood_still(), grew(), never_ended)
ALIKE = (1 << 61) - 1  # ints that differ by a multiple of it have one hash


async def _sent(*texts: str) -> str:
    """Send requests side by side, each of one call with this text as its argument."""

    def square(number: int) -> int:
        """Return the square of a number."""
        return number * number

    def count(numbers: set[int]) -> int:
        """Return how many different numbers there are."""
        return len(numbers)

    def total(numbers: list[int]) -> int:
        """Return the sum of numbers."""
        return sum(numbers)

    broker = Broker([tool(square), tool(count), tool(total)])
    replies = [
        broker.answer(f'kernel-agent/1 {{"id": {number}, "calls": [{text}]}}')
        for number, text in enumerate(texts, 1)
    ]
    told = [json.loads(reply) for reply in await asyncio.gather(*replies)]
    after = '{"name": "square", "args": [12], "kwargs": {}}'
    last = await broker.answer(f'kernel-agent/1 {{"id": {len(texts) + 1}, "calls": [{after}]}}')
    assert json.loads(last)["results"][0]["value"] == 144
    return str(told[-1])[:200]


def _call(name: str, text: str) -> str:
    return f'{{"name": "{name}", "args": [{text}], "kwargs": {{}}}}'


@host_attack("host-resource", EFFECT, timeout_s=60)
async def a_decimal_of_millions_of_digits(folder: Path) -> str:
    """The decimal 1E+6000000, 119 characters, to a tool with an int parameter"""
    return await _sent(_call("square", json.dumps({"$": "decimal", "text": "1E+6000000"})))


@host_attack("host-resource", EFFECT, timeout_s=60)
async def numbers_with_one_hash(folder: Path) -> str:
    """40,000 numbers whose hashes are equal, to a tool that takes a set"""
    numbers: list[Any] = [ALIKE * n for n in range(1, 40_000)]
    return await _sent(_call("count", json.dumps(numbers)))


@host_attack("host-resource", EFFECT, timeout_s=60)
async def a_set_with_one_hash(folder: Path) -> str:
    """40,000 numbers whose hashes are equal, sent as a set"""
    numbers: list[Any] = [ALIKE * n for n in range(1, 40_000)]
    return await _sent(_call("count", json.dumps({"$": "set", "items": numbers})))


@host_attack("host-resource", EFFECT, timeout_s=60)
async def a_million_wrong_numbers(folder: Path) -> str:
    """A list of 900,000 texts where numbers belong: each is one line of the error"""
    return await _sent(_call("total", "[" + ",".join(['""'] * 900_000) + "]"))


@host_attack("host-resource", EFFECT, timeout_s=60)
async def a_kind_that_is_no_name(folder: Path) -> str:
    """Forms whose kind is no name but 450,000 lists, which an error would quote"""
    return await _sent(_call("square", '{"$": [' + ",".join(["[]"] * 450_000) + "]}"))
