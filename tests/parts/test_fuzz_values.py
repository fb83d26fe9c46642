"""Whatever a kernel or a server sends, the host answers, stays small, and its loop turns.

Valid requests are mutated in structure, types, sizes, base64, and the bytes of Arrow and PNG. The
suite sends a few hundred; ``KERNEL_AGENT_FUZZ=100000`` in the environment sends as many, and
``KERNEL_AGENT_FUZZ_SEED`` begins elsewhere. The figures are printed (``pytest -s``): the longest
work that one step of the process did, in its own processor time, and the growth of its memory.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

COUNT = int(os.environ.get("KERNEL_AGENT_FUZZ", "300"))
SEED = int(os.environ.get("KERNEL_AGENT_FUZZ_SEED", "1"))
BOUND_MS = 50  # on a quiet machine; in the suite nothing is asserted of time
BASE_MB = 64

Json = Any
SIZES = (0, 1, -1, 7, 2**31, 2**53, 2**61 - 1, 10**30, 1e308, -1e-308)
TEXTS = ("", "$", "nan", "1E+9999999", "9" * 5000, "\ud800", "x" * 70_000, "a,[{" * 999, "=", "%")
NUMBERS = (b"\xff\xff\xff\x7f", b"\x40\x42\x0f\x00", b"\0\0\0\0")  # of four bytes
KINDS = ("table", "series", "image", "array", "bytes", "decimal", "float", "dict", "set", "tuple",
         "timedelta", "datetime", "frozenset", "date", "time", "no", "")  # fmt: skip


def valid() -> list[Json]:
    """Return values of every form, as a kernel sends them."""
    import datetime as dt
    from decimal import Decimal

    import numpy as np
    import pandas as pd
    from PIL import Image

    from kernel_agent.inkernel.values import encode

    table = pd.DataFrame(
        {"a": [1, None, 3], "b": ["x", "é", None], "c": pd.Categorical(["u", "v", "u"]),
         "d": pd.date_range("2024-01-01", periods=3, tz="UTC"), "e": [[1], [2, 3], []]}
    )  # fmt: skip
    values = [
        table, table["a"], Image.new("RGB", (30, 20), (1, 2, 3)), np.arange(12.0).reshape(3, 4),
        np.array(["a", "bc"]), b"bytes", Decimal("1.5"), float("inf"), {1: 2, "$": 3}, {1, 2},
        (1, "2"), dt.timedelta(seconds=3), dt.datetime(2024, 2, 29), [1, "two", None, {"a": []}],
    ]  # fmt: skip
    return [encode(value) for value in values]


def mutated(value: Json, dice: random.Random, depth: int = 0) -> Json:
    """Return a value with something changed in it, somewhere."""
    if depth > 6 or dice.random() < 0.15:
        return _other(value, dice)
    if isinstance(value, list) and value:
        changed = list(value)
        place = dice.randrange(len(value))
        changed[place] = mutated(value[place], dice, depth + 1)
        return changed * dice.choice((1, 1, 1, 1, 50)) if len(changed) < 9 else changed
    if isinstance(value, dict) and value:
        key = dice.choice(list(value))
        return {**value, key: mutated(value[key], dice, depth + 1)}
    if isinstance(value, str) and len(value) > 40:
        return _damaged(value, dice)
    return _other(value, dice)


def _other(value: Json, dice: random.Random) -> Json:
    makers: list[Callable[[], Json]] = [
        lambda: dice.choice(SIZES), lambda: dice.choice(TEXTS), lambda: None, list,
        lambda: {"$": dice.choice(KINDS), "text": dice.choice(TEXTS)}, lambda: [value] * 40,
        lambda: {"$": dice.choice(KINDS), "items": [[value, value]]}, lambda: {"$": value},
        lambda: [dice.choice(SIZES)] * 3000, lambda: {str(n): value for n in range(30)},
        lambda: {"$": "array", "dtype": dice.choice(("S9999999", "<f8", "U0", "M8[ns]", "O")),
                 "shape": [dice.choice(SIZES)], "base64": ""},
    ]  # fmt: skip
    return dice.choice(makers)()


def _damaged(text: str, dice: random.Random) -> str:
    """Change bytes of what is base64, as a flipped bit, a large number, a cut or a repetition."""
    try:
        data = bytearray(base64.b64decode(text))
    except ValueError:
        return text[: dice.randrange(len(text))]
    for _ in range(dice.choice((1, 1, 2, 8))):
        if not data:
            break
        at = dice.randrange(max(len(data) - 8, 1))
        match dice.randrange(4):
            case 0:
                data[at] ^= 1 << dice.randrange(8)
            case 1:
                data[at : at + 4] = dice.choice(
                    (b"\xff\xff\xff\x7f", b"\x40\x42\x0f\x00", b"\0" * 4)
                )
            case 2:
                del data[at : at + dice.randrange(1, 40)]
            case _:
                data[at:at] = data[at : at + 200] * dice.choice((1, 1, 100))
    return base64.b64encode(bytes(data)).decode()


def message(number: int, values: list[Json], dice: random.Random) -> str:
    """Return a request, most of the time one that can be read."""
    call = {"name": dice.choice(("echo", "table", "numbers", "no")),
            "args": [mutated(dice.choice(values), dice)], "kwargs": {}}  # fmt: skip
    if dice.random() < 0.1:
        call = mutated(call, dice)
    body: Json = {"id": number, "calls": [call] * dice.choice((1, 1, 1, 3))}
    if dice.random() < 0.05:
        body = mutated(body, dice)
    text = json.dumps(body)
    if dice.random() < 0.05:
        text = text[: dice.randrange(len(text))] + dice.choice(("", "[" * 5000, "9" * 9000))
    return f"kernel-agent/1 {text}"


class Watched:
    """The longest step of the process in its own processor time, and its highest memory."""

    def __init__(self) -> None:
        self.worst_ms = 0.0
        self.over_mb = -float("inf")

    async def tick(self) -> None:
        """Look every two milliseconds how much was done since; called as a task."""
        import time

        before, worked = time.monotonic(), time.process_time()
        while True:
            await asyncio.sleep(0.002)
            now, done = time.monotonic(), time.process_time()
            self.worst_ms = max(self.worst_ms, 1000 * min(now - before - 0.002, done - worked))
            before, worked = now, done

    def remember(self, chars: int, first_mb: float) -> None:
        """Take in the highest memory since it was reset, beside what was allowed."""
        allowed = BASE_MB + 20 * chars / 1e6
        self.over_mb = max(self.over_mb, high_mb() - first_mb - allowed)


def high_mb() -> float:
    """Return the most memory that the process had, since the kernel was told to forget it."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1000


async def send(count: int, seed: int) -> Watched:
    """Send so many requests and take so many values; nothing may raise what is not expected."""
    import pandas as pd

    from kernel_agent.errors import InputError
    from kernel_agent.kernel.transfer import _read
    from kernel_agent.tools.broker import Broker
    from kernel_agent.tools.definition import tool

    def echo(value: object) -> object:
        """Return the value."""
        return value

    def table(value: pd.DataFrame) -> int:
        """Return the rows."""
        return len(value)

    def numbers(value: list[int]) -> int:
        """Return how many there are."""
        return len(value)

    dice, values, watched = random.Random(seed), valid(), Watched()
    broker = Broker([tool(echo), tool(table), tool(numbers)])
    await broker.answer(message(1, values, random.Random(0)))  # libraries are there now
    gc.collect()
    gc.freeze()  # what they hold takes Python 30 ms and more to go through, whatever was sent
    ticking = asyncio.create_task(watched.tick())
    number = 1
    while number < count:
        worst = watched.worst_ms  # to make the requests is not what is measured
        prompts = [message(number + n + 1, values, dice) for n in range(10)]
        await asyncio.sleep(0.004)
        watched.worst_ms = 0.0
        Path("/proc/self/clear_refs").write_text("5")
        first = high_mb()
        for reply in await asyncio.gather(*map(broker.answer, prompts)):
            told = json.loads(reply)
            assert told["results"] or "error" in told or told["results"] == []
        with contextlib.suppress(InputError):
            await asyncio.to_thread(_read, "x", {"value": mutated(dice.choice(values), dice)})
        await asyncio.sleep(0.004)
        watched.remember(sum(map(len, prompts)), first)
        watched.worst_ms = max(watched.worst_ms, worst)
        number += 10
        if number % 500 == 1:
            await broker.end_cell()
            broker.take_calls(), broker.take_counted()
            broker.fresh_kernel()
    ticking.cancel()
    assert broker._pot.used == 0
    return watched


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_mutated_requests_and_values_neither_break_nor_fill_the_host() -> None:
    """In a process of its own, whose memory is compared with what the property allows."""
    done = subprocess.run(
        [sys.executable, __file__, str(COUNT), str(SEED)],
        capture_output=True, text=True, check=False, timeout=120 + COUNT,
        env=os.environ | {"PYTHONWARNINGS": "ignore"},
    )  # fmt: skip
    print(done.stdout)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout)["over_mb"] <= 32  # of the allocator's and the libraries' own


if __name__ == "__main__":
    seen = asyncio.run(send(int(sys.argv[1]), int(sys.argv[2])))
    print(json.dumps({"worst_ms": round(seen.worst_ms), "over_mb": round(seen.over_mb)}))
