"""``make bench``: speed, memory and completeness, side by side with the peer in one run.

Every figure is a median with its spread; the machine and its load are recorded; results go to
``benchmarks/results/`` as JSON. Rounds of ours and theirs alternate, so that a machine that gets
slower meanwhile is slower for both.

Usage: python benchmarks/run.py [NAME ...] [--quick]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Any

from host_calls import host_calls, host_flood

HERE = Path(__file__).resolve().parent
Figures = dict[str, Any]


def spread(values: list[float], digits: int = 2) -> Figures:
    """Median, minimum, maximum and the count of some measurements."""
    return {
        "median": round(statistics.median(values), digits),
        "min": round(min(values), digits),
        "max": round(max(values), digits),
        "n": len(values),
    }


# --- round trip and start, against jupyter_client ------------------------------------------------


async def _time(work: Callable[[], Awaitable[Any]]) -> float:
    began = time.perf_counter()
    await work()
    return (time.perf_counter() - began) * 1000


def _folder() -> Path:
    """Return a folder for a kernel: one that is its own, as sandboxes ask for."""
    return Path(tempfile.mkdtemp(prefix="benchmark-"))


def _ignore(_message: dict[str, Any]) -> None:
    """Take the outputs of ``execute_interactive`` without printing them."""


async def round_trip(*, quick: bool) -> Figures:
    """`1+1` in a running kernel: our client, and jupyter_client's ``execute_interactive``."""
    from jupyter_client.manager import start_new_async_kernel

    from kernel_agent.kernel import KernelSession

    ours: list[float] = []
    theirs: list[float] = []
    manager, client = await start_new_async_kernel()
    async with KernelSession(cwd=_folder()) as kernel:
        for _ in range(3 if quick else 15):
            ours += [await _time(lambda: kernel.execute("1+1")) for _ in range(20)]
            theirs += [
                await _time(lambda: client.execute_interactive("1+1", output_hook=_ignore))
                for _ in range(20)
            ]
    client.stop_channels()
    await manager.shutdown_kernel(now=True)
    return {
        "ours_ms": spread(ours),
        "execute_interactive_ms": spread(theirs),
        "ratio_of_medians": round(statistics.median(ours) / statistics.median(theirs), 3),
        "at_most": 0.7,
    }


async def start(*, quick: bool) -> Figures:
    """From nothing to the result of the first cell: ours, and ``start_new_async_kernel``."""
    from jupyter_client.manager import start_new_async_kernel

    from kernel_agent.kernel import KernelSession

    async def ours() -> None:
        kernel = KernelSession(cwd=_folder())
        await kernel.start()
        await kernel.execute("1+1")
        closing.append(kernel.close)

    async def theirs() -> None:
        manager, client = await start_new_async_kernel()
        await client.execute_interactive("1+1", output_hook=_ignore)

        async def close() -> None:
            client.stop_channels()
            await manager.shutdown_kernel(now=True)

        closing.append(close)

    closing: list[Callable[[], Awaitable[None]]] = []
    figures: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(3 if quick else 10):
        for name, work in (("ours", ours), ("theirs", theirs)):
            figures[name].append(await _time(work))
            await closing.pop()()
    return {
        "ours_ms": spread(figures["ours"], 0),
        "start_new_async_kernel_ms": spread(figures["theirs"], 0),
        "ratio_of_medians": round(
            statistics.median(figures["ours"]) / statistics.median(figures["theirs"]), 3
        ),
        "at_most": 0.7,
    }


async def levels(*, quick: bool) -> Figures:
    """Each sandbox level that works here: start to first result, round trip, memory."""
    from kernel_agent.kernel import KernelOptions, make_kernel
    from kernel_agent.sandbox import MODULES, level_of, memory_mb, probe

    working = [name for name in MODULES if probe(name).works]
    starts: dict[str, list[float]] = {name: [] for name in working}
    trips: dict[str, list[float]] = {name: [] for name in working}
    memory: dict[str, list[float]] = {name: [] for name in working}
    slow = ("container", "gvisor", "microvm")  # seconds each: a few are enough
    for turn in range(3 if quick else 20):
        for name in working:
            if name in slow and turn >= 5:
                continue
            kernel: Any = make_kernel(level_of(name), KernelOptions(cwd=_folder()))

            async def first(kernel: Any = kernel) -> None:
                await kernel.start()
                await kernel.execute("1+1")

            starts[name].append(await _time(first))
            trips[name] += [await _time(lambda k=kernel: k.execute("1+1")) for _ in range(10)]
            if getattr(kernel, "pid", None) is not None:
                memory[name].append(memory_mb(kernel.pid))
            await kernel.close()
    memory = {name: values for name, values in memory.items() if values}
    return {
        "start_ms": {name: spread(values, 0) for name, values in starts.items()},
        "round_trip_ms": {name: spread(values) for name, values in trips.items()},
        "memory_mb": {name: spread(values, 1) for name, values in memory.items()},
        "start_bubblewrap_over_none": round(
            statistics.median(starts["bubblewrap"]) / statistics.median(starts["none"]), 3
        )
        if "bubblewrap" in starts
        else None,
        "at_most": 1.1,
    }


# --- the loop ------------------------------------------------------------------------------------


async def overhead(*, quick: bool) -> Figures:
    """What the loop adds to a cell: parsing, compiling, observing, the trace, the context."""
    from kernel_agent import Budget, ScriptedModel, Session

    steps = 50 if quick else 200
    replies = [f"Step {n}.\n\n```python\n{n} + 1\n```" for n in range(steps - 1)]
    replies.append("```python\nfinal_answer(1)\n```")
    with tempfile.TemporaryDirectory() as out:
        async with Session(
            model=ScriptedModel(replies), out=out, budget=Budget(max_steps=None)
        ) as session:
            bare = [await _time(lambda: session.execute("1 + 1")) for _ in range(steps)]
            marks = [time.perf_counter()]
            run = await session.run(
                "Count.",
                on_event=lambda e: (
                    marks.append(time.perf_counter()) if type(e).__name__ == "Step" else None
                ),
            )
    assert len(run.steps) == steps, run.message
    gaps = [(b - a) * 1000 for a, b in pairwise(marks)]
    cell = statistics.median(bare)
    added = [gap - cell for gap in gaps[1:]]
    third = len(added) // 3
    return {
        "steps": steps,
        "bare_cell_ms": spread(bare),
        "step_ms": spread(gaps[1:]),
        "overhead_ms": spread(added),
        "overhead_first_third_ms": round(statistics.median(added[:third]), 2),
        "overhead_last_third_ms": round(statistics.median(added[-third:]), 2),
        "at_most_ms": 10,
    }


# --- completeness --------------------------------------------------------------------------------


async def lost_outputs(*, quick: bool) -> Figures:
    """Many cells with one output each while other processes take the processors."""
    from kernel_agent.kernel import KernelSession

    cells = 1000 if quick else 20_000
    burners = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(2 * (os.cpu_count() or 1))
    ]
    began = time.perf_counter()
    lost = 0
    try:
        async with KernelSession(cwd=_folder()) as kernel:
            for number in range(cells):
                # Alternating kinds: a printed line, a value, a child's output, an error stream.
                code, expected = _one_output(number)
                result = await kernel.execute(code)
                seen = "".join(
                    o.get("text") or o.get("data", {}).get("text/plain", "") for o in result.outputs
                )
                lost += seen.strip() != expected
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()
    return {
        "cells": cells,
        "lost": lost,
        "seconds": round(time.perf_counter() - began, 1),
        "busy_processes": len(burners),
        "at_most": 0,
    }


def _one_output(number: int) -> tuple[str, str]:
    kinds = (
        f"print({number})",
        f"{number}",
        f"import os; _ = os.write(1, b'{number}\\n')",
        f"import sys; _ = sys.stderr.write('{number}\\n')",
    )
    return kinds[number % len(kinds)], str(number)


# --- what it costs to be there -------------------------------------------------------------------


def imports(*, quick: bool) -> Figures:
    """CPU seconds of ``import kernel_agent`` and of ``kernel-agent --help``."""
    commands = {
        "import_cpu_s": [sys.executable, "-c", "import kernel_agent"],
        "import_session_cpu_s": [sys.executable, "-c", "from kernel_agent import Session"],
        "help_cpu_s": [sys.executable, "-m", "kernel_agent", "--help"],
    }
    figures: Figures = {"at_most_s": 0.3}
    for name, command in commands.items():
        figures[name] = spread([_cpu(command) for _ in range(5 if quick else 15)], 3)
    return figures


def _cpu(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)


MEMORY_RUN = """
import asyncio, resource, sys, tempfile
from kernel_agent import Budget, ScriptedModel, Session
replies = ["```python\\nprint('x' * 20_000, %d)\\n```" % n for n in range(100)]
async def main():
    with tempfile.TemporaryDirectory() as out:
        model = ScriptedModel(replies + ["```python\\nfinal_answer(1)\\n```"])
        async with Session(
            model=model, out=out, budget=Budget(max_steps=None, max_seconds=None)
        ) as session:
            run = await session.run("Print.")
            assert len(run.steps) == 101, run.message
asyncio.run(main())
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def memory(*, quick: bool) -> Figures:
    """Peak memory of the host process over 100 steps with 20,000-character observations."""
    peaks = []
    for _ in range(1 if quick else 3):
        done = subprocess.run(
            [sys.executable, "-c", MEMORY_RUN], check=True, capture_output=True, text=True
        )
        peaks.append(int(done.stdout.split()[-1]) / 1024)
    return {"peak_mb": spread(peaks, 1), "at_most_mb": 120}


# --- the guard -----------------------------------------------------------------------------------

LOOP = "s = 0\nfor i in range(1_000_000):\n    s += i * i % 7"
IN_FUNCTION = (
    "def work(n):\n    s = 0\n    for i in range(n):\n        s += i * i % 7\n    return s\n"
    "s = work(1_000_000)"
)
CALLS = "def one(i):\n    return i\nfor i in range(1_000_000):\n    one(i)"


async def guard(*, quick: bool) -> Figures:
    """A loop of 1e6 turns in a cell: without a guard, and with the cap on operations; ms.

    ``imports_check`` is the look at the syntax tree of a cell of 40 lines before it runs.
    """
    from kernel_agent.agent import refusal
    from kernel_agent.kernel import KernelSession

    cells = {"loop": LOOP, "loop_in_function": IN_FUNCTION, "calls": CALLS}
    times: dict[str, list[float]] = {f"{n}_{w}": [] for n in cells for w in ("plain", "capped")}
    with tempfile.TemporaryDirectory() as folder:
        async with (
            KernelSession(cwd=Path(folder)) as plain,
            KernelSession(cwd=Path(folder), max_operations=10**9) as capped,
        ):
            for _ in range(3 if quick else 15):
                for name, source in cells.items():
                    for way, kernel in (("plain", plain), ("capped", capped)):
                        spent = await _time(lambda k=kernel, s=source: k.execute(s))
                        times[f"{name}_{way}"].append(spent)
    long = "import pandas as pd\n" + "df = pd.DataFrame({'a': [i for i in range(9)]}).head()\n" * 40
    checks = []
    for _ in range(30):
        began = time.perf_counter()
        refusal(long, ["pandas"])
        checks.append((time.perf_counter() - began) * 1000)
    return {name: spread(values) for name, values in {**times, "imports_check": checks}.items()}


# --- long runs -----------------------------------------------------------------------------------


async def long_run(*, quick: bool) -> Figures:
    """Steps with 20,000-character outputs: what is sent, what a prompt cache can keep, the time."""
    from kernel_agent import Budget, ScriptedModel, Session
    from kernel_agent.agent import BYTES_PER_TOKEN
    from kernel_agent.records import Condensation

    figures: Figures = {"allowance_tokens": 32_000}
    for steps in (50, 100) if quick else (100, 200, 400):
        code = (
            "rows = [f'{{n}},{{n * {k}}}\\n' for n in range(4000)]\nprint(''.join(rows)[:20_000])"
        )
        replies = [f"Part {k}.\n\n```python\n{code.format(k=k)}\n```" for k in range(steps - 1)]
        model = ScriptedModel([*replies, "```python\nfinal_answer(1)\n```"], keep_requests=True)
        shortened: list[Condensation] = []
        with tempfile.TemporaryDirectory() as out:
            async with Session(
                model=model, out=out, budget=Budget(max_steps=None, max_seconds=None)
            ) as session:
                began, cpu = time.perf_counter(), time.process_time()
                run = await session.run(
                    "Print.",
                    on_event=lambda e, to=shortened: (  # type: ignore[misc]  # a default binds it
                        to.append(e) if isinstance(e, Condensation) else None
                    ),
                )
                seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        assert len(run.steps) == steps, run.message
        texts = ["".join(f"{m.role}\0{m.content}\0" for m in asked) for asked in model.requests]
        figures[f"steps_{steps}"] = {
            "characters_sent": sum(map(len, texts)),
            "unchanged_share": round(_unchanged(texts), 3),
            "max_prompt_tokens": round(max(len(t.encode()) for t in texts) / BYTES_PER_TOKEN),
            "strides": len(shortened),
            "seconds": round(seconds, 2),
            "host_cpu_s": round(cpu, 2),
        }
    return figures


def _unchanged(texts: list[str]) -> float:
    """Return how much of each prompt stood at the start of the one before, over all of them."""
    common = os.path.commonprefix
    same = sum(len(common(pair)) for pair in pairwise(texts))
    return same / sum(map(len, texts[1:]))


def look(*, quick: bool) -> Figures:
    """What it costs to find out which variables a cell has changed, in CPU milliseconds a cell."""
    import pandas as pd

    from kernel_agent.inkernel.variables import Variables

    frame = pd.DataFrame({f"c{n}": range(1000) for n in range(10)})
    text = pd.DataFrame({f"s{n}": [f"row {i}" for i in range(50_000)] for n in range(4)})
    spaces: dict[str, dict[str, Any]] = {
        "nothing": {},
        "frame_1000_x_10": {"df": frame},
        "frame_100,000_x_10_80_MB_in_10": {
            f"df{n}": pd.concat([frame] * 100, ignore_index=True) for n in range(10)
        },
        "text_50,000_x_4": {"df": text},
        "200_variables": {f"v{n}": [n, str(n)] for n in range(200)},
        "dict_of_100,000": {"d": {n: str(n) for n in range(100_000)}},
    }
    figures: Figures = {"at_most_ms": 5}
    for name, space in spaces.items():
        namespace: dict[str, Any] = {}
        variables = Variables(namespace)
        namespace |= space
        costs = []
        for _ in range(20 if quick else 200):
            began = time.thread_time()
            variables.look("df.head()")
            costs.append((time.thread_time() - began) * 1000)
        figures[name] = spread(costs)
    return figures


# --- running them --------------------------------------------------------------------------------

BENCHMARKS: dict[str, Callable[..., Any]] = {
    "imports": imports,
    "start": start,
    "levels": levels,
    "round_trip": round_trip,
    "overhead": overhead,
    "memory": memory,
    "long_run": long_run,
    "look": look,
    "lost_outputs": lost_outputs,
    "guard": guard,
    "host_calls": host_calls,
    "host_flood": host_flood,
}


def machine() -> Figures:
    """What the figures were measured on."""
    packages = ("kernel-agent", "jupyter_client", "ipykernel", "ipython", "pyzmq")
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "system": platform.platform(),
        "processors": os.cpu_count(),
        "python": platform.python_version(),
        "load_at_start": [round(x, 2) for x in os.getloadavg()],
        "packages": {name: metadata.version(name) for name in packages},
    }


def main() -> None:
    """Run the named benchmarks, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*BENCHMARKS, []], metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="fewer rounds: to try it out")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "latest.json")
    arguments = parser.parse_args()
    results: Figures = {"machine": machine()}
    print(json.dumps(results["machine"], indent=2))
    for name in arguments.names or BENCHMARKS:
        work = BENCHMARKS[name](quick=arguments.quick)
        results[name] = asyncio.run(work) if asyncio.iscoroutine(work) else work
        print(f"\n{name}: {BENCHMARKS[name].__doc__}")
        for key, value in results[name].items():
            print(f"  {key:28} {_line(value)}")
    arguments.out.write_text(json.dumps(results, indent=2) + "\n")
    print(f"\nWritten to {arguments.out}")


def _line(value: Any) -> str:
    if isinstance(value, dict):
        if "median" not in value:
            return "".join(f"\n    {name:26} {_line(inner)}" for name, inner in value.items())
        return "median {median}  (min {min}, max {max}, n {n})".format(**value)
    return str(value)


if __name__ == "__main__":
    main()
