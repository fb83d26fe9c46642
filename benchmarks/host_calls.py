"""Host calls: how long one takes, how many go at a time, and what a hostile kernel costs the host.

Part of ``benchmarks/run.py`` (names ``host_calls`` and ``host_flood``); each runs in a kernel at
the level bubblewrap where that works, else at ``auto``.
"""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from kernel_agent.kernel import KernelSession
from kernel_agent.records import CellResult
from kernel_agent.sandbox import probe
from kernel_agent.tools import Broker, Tool, tool

Figures = dict[str, Any]


@tool
def echo(value: object) -> object:
    """Return the value."""
    return value


@tool
async def nothing() -> None:
    """Do nothing, without a thread."""


@tool
def size(text: str) -> int:
    """Return how long a text is."""
    return len(text)


@tool
async def slow(seconds: float) -> float:
    """Wait so long."""
    await asyncio.sleep(seconds)
    return seconds


@tool
def slow_plain(seconds: float) -> float:
    """Wait so long in a thread."""
    time.sleep(seconds)
    return seconds


TOOLS: tuple[Tool, ...] = (echo, nothing, size, slow, slow_plain)

_TIMED = """
import time
def processor(work, rounds):
    began = time.process_time()
    for _ in range(rounds): work()
    return (time.process_time() - began) * 1000 / rounds
def timed(work, rounds):
    figures = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        figures.append((time.perf_counter() - began) * 1000)
    return figures
"""

_THREADS = """
from concurrent.futures import ThreadPoolExecutor
def many(thread):
    return [echo([thread, n]) for n in range({each})] == [[thread, n] for n in range({each})]
began = time.perf_counter()
with ThreadPoolExecutor(8) as pool: right = all(pool.map(many, range(8)))
took = time.perf_counter() - began
"""

_TABLE = """
import numpy as np, pandas as pd
table = pd.DataFrame(np.zeros((25_000, 5)))
"""

FUZZ = """
import json, random, string
rng = random.Random({seed})
kernel = get_ipython().kernel
parent = kernel.get_parent("shell")
ident = kernel._get_shell_context_var(kernel._shell_parent_ident)
good = {{"id": 0, "calls": [{{"name": "echo", "args": [1], "kwargs": {{}}}}]}}

def junk(depth=0):
    kind = rng.randrange(14)
    if depth < 4 and kind < 3: return [junk(depth + 1) for _ in range(rng.randrange(6))]
    if depth < 4 and kind < 6:
        keys = "$ id calls name args kwargs items arrow png text dtype".split()
        return {{rng.choice(keys): junk(depth + 1) for _ in range(rng.randrange(5))}}
    return rng.choice([None, True, -1, 2**70, 1e308, float("nan"), "", "x" * rng.randrange(2000),
                       "echo", "table", "array", "dict", "\\ud800", "__import__", "[" * 50])

def damaged(text):
    at = rng.randrange(len(text))
    noise = rng.choice(string.printable) * rng.randrange(3)
    return text[:at] + noise + text[at + rng.randrange(3):]

def hostile(n):
    kind, fresh = n % 10, 10**6 + n
    if kind == 0: return "x" * rng.choice([0, 10, 10**6])
    if kind == 1: return prefix + damaged(json.dumps({{**good, "id": fresh}}))
    if kind == 2: return prefix + json.dumps(junk())
    if kind == 3: return prefix + json.dumps({{"id": fresh, "calls": [junk()]}})
    if kind == 4: return prefix + json.dumps({{"id": fresh, "calls": junk()}})
    if kind == 5: return prefix + json.dumps({{**good, "id": rng.choice([0, -5, 1, 5])}})
    if kind == 6: return prefix + "[" * rng.choice([100, 100_000])
    if kind == 7:
        call = {{"name": "echo", "args": [junk()], "kwargs": {{"value": junk()}}}}
        return prefix + json.dumps({{"id": fresh, "calls": [call] * rng.choice([1, 50])}})
    if kind == 8: return prefix + json.dumps({{"id": fresh, "calls": [{{}}] * 5000}})
    many = ",".join(["[]"] * rng.choice([1, 400_000]))
    call = '{{"name": "echo", "args": [[%s]], "kwargs": {{}}}}' % many
    return prefix + '{{"id": %d, "calls": [%s]}}' % (fresh, call)

prefix = "kernel-agent/1 "
for n in range({count}):
    content = {{"prompt": hostile(n), "password": False}}
    kernel.session.send(kernel.stdin_socket, "input_request", content, parent, ident=ident)
    while kernel.stdin_socket.poll(0 if n % 50 else 100):
        kernel.stdin_socket.recv_multipart()
import time; time.sleep(1)
while kernel.stdin_socket.poll(200):
    kernel.stdin_socket.recv_multipart()
"""


def level() -> str:
    """Return the level that the figures are for."""
    return "bubblewrap" if probe("bubblewrap").works else "auto"


def kernel() -> KernelSession:
    """Return a kernel with the tools of this module, not yet started."""
    return KernelSession(
        cwd=Path(tempfile.mkdtemp(prefix="benchmark-")),
        sandbox=level(),
        tools=[t.spec for t in TOOLS],
    )


async def host_calls(*, quick: bool) -> Figures:
    """Tools called from cells: one call, large values, side by side, from threads."""
    each = 125 if quick else 1250
    async with kernel() as started:
        ask = _asking(started)
        await ask(_TIMED + _TABLE)
        rounds = 20 if quick else 200
        figures: Figures = {"level": started.sandbox_report.get("level", level())}
        figures["call_ms"] = _spread(await ask(f"timed(lambda: echo(1), {rounds})"))
        figures["async_call_ms"] = _spread(await ask(f"timed(nothing, {rounds})"))
        few = rounds // 10
        figures["text_1_mb_ms"] = _spread(await ask(f"timed(lambda: size('x' * 10**6), {few})"))
        began = time.process_time()
        inside = await ask(f"processor(lambda: size('x' * 10**6), {few})")
        figures["text_1_mb_processor_ms"] = {
            "in_the_kernel": round(inside, 1),
            "on_the_host": round((time.process_time() - began) * 1000 / few, 1),
        }
        figures["quotes_1_mb_ms"] = _spread(await ask(f"timed(lambda: size('\"' * 10**6), {few})"))
        figures["table_1_mb_there_and_back_ms"] = _spread(
            await ask(f"timed(lambda: echo(table), {few})")
        )
        delays = "[0.2 + 0.002 * (n % 50) for n in range(100)]"
        for name in ("slow", "slow_plain"):
            (took,) = await ask(f"timed(lambda: {name}.map({delays}), 1)")
            figures[f"map_of_100_{name}_ms"] = round(took, 1)
        figures["slowest_of_them_ms"] = 298.0
        (took,) = await ask("timed(lambda: echo.map(range(10_000)), 1)")
        figures["map_of_10000_ms"] = round(took)
        right, took = await ask(_THREADS.format(each=each) + "(right, took)")
        figures["calls_from_8_threads"] = 8 * each
        figures["nothing_lost_or_reordered"] = bool(right)
        figures["calls_per_second"] = round(8 * each / took)
    return figures


def _asking(started: KernelSession) -> Any:
    """Return a function that runs a cell and gives the value of its last line."""

    async def ask(code: str) -> Any:
        broker = Broker(TOOLS)
        *before, last = code.strip().split("\n")
        told = "\n".join([*before, "import json as _json", f"print('=', _json.dumps({last}))"])
        if code.startswith("\n") and not last.startswith("("):
            told = code
        broker.fresh_kernel()
        result = await started.execute(told, timeout_s=300, on_request=broker.answer)
        await broker.end_cell()
        return _value(result)

    return ask


def _value(result: CellResult) -> Any:
    if not result.ok:
        raise RuntimeError(f"a cell of the benchmark failed: {result.error}")
    text = "".join(output.get("text", "") for output in result.outputs)
    return json.loads(text.rpartition("= ")[2]) if "= " in text else None


def _spread(values: list[float]) -> Figures:
    return {
        "median": round(statistics.median(values), 2),
        "min": round(min(values), 2),
        "max": round(max(values), 2),
        "n": len(values),
    }


async def host_flood(*, quick: bool) -> Figures:
    """Fuzzed hostile requests from inside the sandbox: what they cost this process."""
    count = 200 if quick else 1000
    memory = []
    async with kernel() as started:
        turns: list[dict[str, int]] = []
        for seed in range(4):
            broker = Broker(TOOLS)
            code = FUZZ.format(seed=seed, count=count)
            result = await started.execute(code, timeout_s=300, on_request=broker.answer)
            await broker.end_cell()
            if not result.ok:
                raise RuntimeError(f"the kernel did not survive it: {result.error}")
            turns.append(broker.take_counted())
            del broker
            gc.collect()
            memory.append(_resident_mb())
    return {
        "requests": 4 * count,
        "counted_in_the_last_round": turns[-1],
        "resident_mb_after_each_round": memory,
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "tasks_left": len(asyncio.all_tasks()) - 1,
    }


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * resource.getpagesize() / 1e6, 1)
