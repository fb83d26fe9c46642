"""Host tools called from real cells: threads, asyncio, interrupts, errors, tables, hostile code."""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import itertools
import os
import threading
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import pytest_asyncio
from support.examples import examples

from kernel_agent.kernel.process import KernelSession
from kernel_agent.notebook.tracebacks import cut_traceback
from kernel_agent.records.cell import CellResult
from kernel_agent.safe.text import plain
from kernel_agent.tools.broker import Broker
from kernel_agent.tools.definition import tool

pytestmark = pytest.mark.asyncio(loop_scope="module")
RELEASE = threading.Event()
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@tool
def echo(value: object, note: str = "") -> object:
    """Return the value.

    The note is ignored: a second paragraph.
    """
    return value


@tool
def bounds(table: pd.DataFrame) -> dict[str, object]:
    """Return the first rows and the number of rows of a table."""
    return {"head": table.head(1), "rows": len(table)}


@tool
def fail(kind: str) -> None:
    """Raise an error."""
    if kind == "file":
        Path("/no/such/file").read_text()
    raise {"key": KeyError("kiwis"), "odd": asyncio.InvalidStateError("odd")}[kind]


@tool
async def forever(n: int = 0) -> None:
    """Wait for ever."""
    await asyncio.sleep(3600)


@tool
def stuck() -> None:
    """Wait in a thread."""
    RELEASE.wait(120)


TOOLS = [echo, bounds, fail, forever, stuck]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kernel(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[KernelSession]:
    level = os.environ.get("KERNEL_AGENT_TEST_SANDBOX", "auto")
    folder = tmp_path_factory.mktemp("work")
    RELEASE.clear()  # set, if these tests have run before in this process
    async with KernelSession(cwd=folder, sandbox=level, tools=[t.spec for t in TOOLS]) as started:
        yield started
    RELEASE.set()


async def run(
    kernel: KernelSession, code: str, *, broker: Broker | None = None, timeout_s: float = 120
) -> CellResult:
    broker = broker or Broker(TOOLS)
    result = await kernel.execute(code, on_request=broker.answer, timeout_s=timeout_s)
    await broker.end_cell()
    return result


def text(result: CellResult) -> str:
    assert result.error is None, result.error
    return plain(
        "".join(o.get("text", "") or o["data"]["text/plain"] for o in result.outputs)
    ).strip()


async def test_eight_threads_make_thousands_of_calls_and_nothing_is_lost_or_reordered(
    kernel: KernelSession,
) -> None:
    broker, each = Broker(TOOLS), examples(750)
    code = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        f"numbers = range({each})\n"
        "def many(t): return [echo([t, n]) for n in numbers] == [[t, n] for n in numbers]\n"
        "with ThreadPoolExecutor(8) as pool: print(list(pool.map(many, range(8))))"
    )
    assert text(await run(kernel, code, broker=broker, timeout_s=300)) == str([True] * 8)
    calls = broker.take_calls()
    assert [c.number for c in calls] == list(range(1, 8 * each + 1))
    for thread in range(8):  # each thread's calls are in its own order
        mine = [c for c in calls if isinstance(c.result, list) and c.result[:1] == [thread]]
        assert [c.result[1] for c in mine if isinstance(c.result, list)] == list(range(len(mine)))


async def test_slow_calls_from_threads_and_asyncio_wait_side_by_side(
    kernel: KernelSession,
) -> None:
    """A hundred calls that wait for one another: none of them waits for its turn."""
    together = asyncio.Barrier(24)

    @tool
    async def meet(n: int) -> int:
        """Wait for the others."""
        await asyncio.wait_for(together.wait(), 60)
        return n

    async with KernelSession(cwd=kernel.cwd, tools=[meet.spec]) as other:
        code = (
            "import asyncio\nfrom concurrent.futures import ThreadPoolExecutor\n"
            "asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(8))\n"
            "pool = ThreadPoolExecutor(8)\n"
            "threads = [pool.submit(meet, n) for n in range(8)]\n"
            "tasks = [asyncio.create_task(asyncio.to_thread(meet, n)) for n in range(8)]\n"
            "await asyncio.sleep(0.1)\n"
            "mapped = meet.map(range(8))\n"
            "[t.result() for t in threads], await asyncio.gather(*tasks), mapped"
        )
        shown = text(await run(other, code, broker=Broker([meet])))
    assert " ".join(shown.split()) == repr((list(range(8)),) * 3)


async def test_map_takes_several_iterables_as_the_built_in_does(kernel: KernelSession) -> None:
    code = "echo.map(iter(range(300)), ['note'] * 200) == list(range(200)), echo.map([])"
    assert text(await run(kernel, code)) == "(True, [])"
    code = "try: fail.map(['key', 'file'])\nexcept KeyError as error: print(repr(error))"
    assert text(await run(kernel, code)) == "KeyError('kiwis')"


async def test_a_call_inside_a_coroutine_blocks_but_does_not_hang(kernel: KernelSession) -> None:
    code = "async def f(): return echo(3)\nawait f()"
    assert text(await run(kernel, code)) == "3"


async def test_tables_dates_and_bytes_cross_as_what_they_are(kernel: KernelSession) -> None:
    code = (
        "import pandas as pd, datetime as dt\n"
        "table = pd.DataFrame({'when': pd.date_range('2024', periods=3), 'n': [1, 2, 3]})\n"
        "got = bounds(table)\n"
        "print(got['head'].equals(table.head(1)), got['rows'])\n"
        "values = [dt.date(2024, 2, 29), b'x', (1, {2}), {1: None}]\n"
        "echo(values) == values"
    )
    assert text(await run(kernel, code)).split() == ["True", "3", "True"]
    result = await run(kernel, "bounds([1])")
    assert result.error is not None
    assert (result.error.ename, "DataFrame" in result.error.evalue) == ("TypeError", True)


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("key", "KeyError", "'kiwis'"),
        ("file", "FileNotFoundError", "[Errno 2] No such file or directory: '/no/such/file'"),
        ("odd", "ToolError", "InvalidStateError: odd"),
    ],
)
async def test_an_error_arrives_as_what_it_was_with_the_callers_lines_only(
    kernel: KernelSession, kind: str, name: str, message: str
) -> None:
    result = await run(kernel, f"def mine():\n    return fail({kind!r})\n\nmine()")
    assert result.error is not None
    assert (result.error.ename, result.error.evalue) == (name, message)
    shown = plain("\n".join(result.error.traceback))
    assert f"fail({kind!r})" in shown
    for ours in ("host.py", "channel", "hidden frame", "kernel_agent/"):
        assert ours not in shown
    assert "library frame" not in cut_traceback(result.error).before


async def test_help_and_the_question_mark_show_signature_and_the_whole_description(
    kernel: KernelSession,
) -> None:
    shown = text(await run(kernel, "help(echo)"))
    assert "echo(value: object, note: str = '') -> object" in shown
    assert "a second paragraph" in shown
    shown = text(await run(kernel, "echo?"))
    assert "echo(value: object, note: str = '') -> object" in shown
    assert "a second paragraph" in shown


@pytest.mark.parametrize("call", ["forever()", "stuck()", "forever.map(range(200))"])
async def test_a_waiting_call_is_interrupted_and_given_up_on_the_host(
    kernel: KernelSession, call: str
) -> None:
    broker = Broker(TOOLS)
    result = await run(kernel, call, broker=broker, timeout_s=1)
    assert (result.status, kernel.alive) == ("timeout", True)
    assert result.error is not None
    assert result.error.ename == "KeyboardInterrupt"
    calls = broker.take_calls()
    assert calls
    assert {c.error for c in calls} == {"RuntimeError: the cell was over before the call was"}
    assert broker.take_counted() == ({"abandoned": 1} if "stuck" in call else {})
    assert text(await run(kernel, "echo('again')")) == "'again'"


async def test_a_thread_that_outlives_its_cell_is_told_so(kernel: KernelSession) -> None:
    """Whether it waits for a call when the cell ends, or makes one afterwards."""
    code = (
        "import threading, time\nseen = []\n"
        "def later(call, wait):\n"
        "    time.sleep(wait)\n"
        "    try: call()\n"
        "    except RuntimeError as error: seen.append(str(error))\n"
        "ts = [threading.Thread(target=later, args=a) for a in ((forever, 0), (lambda: echo(1), 1))]\n"  # noqa: E501
        "for t in ts: t.start()\ntime.sleep(0.3)"
    )
    assert (await run(kernel, code)).ok
    await asyncio.sleep(1.5)  # a moment: in which no cell runs
    shown = text(await run(kernel, "for t in ts: t.join(20)\nlen(seen), seen"))
    assert shown.startswith("(2,")
    assert "the cell was over" in shown
    assert "wait for your threads" in " ".join(shown.split())


async def test_another_process_is_told_that_it_cannot_call(kernel: KernelSession) -> None:
    code = (
        "import os\nread, write = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    try: echo(1)\n"
        "    except RuntimeError as error: os.write(write, str(error).encode())\n"
        "    os._exit(0)\n"
        "os.wait(); os.read(read, 999).decode()"
    )
    assert "in the kernel's own process" in text(await run(kernel, code))


@pytest.mark.parametrize("call", ["input('Name? ')", "import getpass; getpass.getpass()"])
async def test_input_is_refused_with_a_clear_message(kernel: KernelSession, call: str) -> None:
    result = await run(kernel, call)
    assert result.error is not None
    assert "nobody is at the keyboard" in result.error.evalue


async def test_what_is_too_large_is_refused_in_the_cell(kernel: KernelSession) -> None:
    result = await run(kernel, "echo('x' * 40_000_000)")
    assert result.error is not None
    assert result.error.ename == "ValueError"
    assert "too large to send" in result.error.evalue


async def test_a_kernel_that_is_killed_in_mid_call_leaves_nothing_under_way(
    tmp_path: Path,
) -> None:
    ended = asyncio.Event()
    begun = asyncio.Event()

    @tool
    async def wait() -> None:
        """Wait for ever."""
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    broker = Broker([wait])
    async with KernelSession(cwd=tmp_path, tools=[wait.spec]) as kernel:
        running = asyncio.create_task(run(kernel, "wait()", broker=broker))
        await asyncio.wait_for(begun.wait(), 30)
        await kernel.kill()
        result = await running
    assert result.status == "dead"
    assert ended.is_set()
    assert [c.ok for c in broker.take_calls()] == [False]


def fuzz() -> Any:
    spec = importlib.util.spec_from_file_location("host_calls", BENCHMARKS / "host_calls.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_hostile_requests_leave_no_memory_taken_on_the_host(kernel: KernelSession) -> None:
    """Of what was allocated since, nothing is left: the allocators' own heaps come and go."""
    code, left = fuzz().FUZZ, [0.0]
    tracemalloc.start()
    try:
        for seed in range(4):
            assert (
                await run(kernel, code.format(seed=seed, count=examples(100)), timeout_s=300)
            ).ok
            told, looks = [], 12 if seed else 3  # at first there is nothing to come back to
            while len(told) < looks and not (told and told[-1] < left[-1] + 0.5):
                gc.collect()  # what was still on its way when the cell ended is answered at once
                told.append(tracemalloc.get_traced_memory()[0] / 1e6)
                await asyncio.sleep(0.3)
            left.append(min(told))
    finally:
        tracemalloc.stop()
    # Each round sends megabytes of texts and of lists. Modules are imported once, in some round.
    more = sorted(after - before for before, after in itertools.pairwise(left[1:]))
    assert more[1] < 0.5, left


async def test_hundreds_of_hostile_requests_cost_the_host_nothing(kernel: KernelSession) -> None:
    """Counted by kind, no task left, and the next cell works as ever."""
    module = fuzz()
    for seed in range(3):
        broker = Broker(TOOLS)
        code = module.FUZZ.format(seed=seed, count=examples(500))
        assert (await run(kernel, code, broker=broker, timeout_s=300)).ok
        counted = broker.take_counted()
        assert {"input", "malformed", "replayed", "too large"} <= set(counted)
    for _ in range(100):  # what was still on its way when the cell ended is answered at once
        if len(asyncio.all_tasks()) < 10:
            break
        await asyncio.sleep(0.1)
    assert len(asyncio.all_tasks()) < 10
    async with KernelSession(cwd=kernel.cwd, tools=[echo.spec]) as fresh:
        assert text(await run(fresh, "echo.map(range(3))")) == "[0, 1, 2]"
