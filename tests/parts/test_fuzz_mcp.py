"""Whatever an MCP server answers, the host says what it is, stays small, and its loop turns.

``servers/mcp_mutated.py`` changes valid answers in every way. They are read twice: by the
functions that make values and tools of them, which is quick, and by the real client at the other
end of a real server's pipes. The suite does a few hundred and a few dozen;
``KERNEL_AGENT_FUZZ_MCP=20000`` in the environment does as many and a tenth of that,
``KERNEL_AGENT_FUZZ_SEED`` begins elsewhere. The figures are printed (``pytest -s``).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import random
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Awaitable, Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the extra mcp is not installed")

from parts.test_fuzz_values import Watched, high_mb
from servers.mcp_mutated import answer, lists, results
from support.examples import examples

from kernel_agent.errors import ToolError, UsageError
from kernel_agent.tools.mcp.answers import fit
from kernel_agent.tools.mcp.connected import Servers
from kernel_agent.tools.mcp.foreign import ForeignTool
from kernel_agent.tools.mcp.pipes import MESSAGE_MAX, _read, excess
from kernel_agent.tools.mcp.servers import Server
from kernel_agent.tools.threads import in_thread

COUNT = int(os.environ.get("KERNEL_AGENT_FUZZ_MCP", "400"))
SEED = int(os.environ.get("KERNEL_AGENT_FUZZ_SEED", "1"))
TESTS = Path(__file__).parents[1]
SERVER = TESTS / "servers" / "mcp_mutated.py"
CALLS = 40  # of one server, then another is started
BATCH = 20


class Figures(Watched):
    """What was seen: also how many messages, and how their reading ended."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.ends: dict[str, int] = {}
        self.slowest = ""
        self.surprises: dict[str, int] = {}  # exceptions that nobody expects, and where

    def note(self, end: str) -> None:
        """Count one end."""
        self.ends[end] = self.ends.get(end, 0) + 1

    def surprised(self, error: Exception) -> None:
        """Count an exception that nobody expects."""
        at = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{type(error).__name__} at {Path(at.filename).name}:{at.lineno}: {error}"[:300]
        self.surprises[said] = self.surprises.get(said, 0) + 1

    @property
    def public(self) -> dict[str, Any]:
        """The figures as they are printed."""
        return {"count": self.count, "worst_ms": round(self.worst_ms, 1),
                "over_mb": round(self.over_mb), "ends": self.ends, "slowest": self.slowest,
                "surprises": self.surprises}  # fmt: skip


def forget_high() -> float:
    """Let the kernel forget how much memory the process had; return what it has."""
    Path("/proc/self/clear_refs").write_text("5")
    return high_mb()


# --- what is made of an answer -------------------------------------------------------------------


class Reader:
    """Reads lines as the client does, and makes of them what the session makes of them."""

    def __init__(self) -> None:
        from mcp_types import Tool

        self._servers = Servers([Server(name="s", command=("none",))], lambda _event: None)
        described = Tool.model_validate({"name": "ask", "inputSchema": {"type": "object"}})
        self._ask = ForeignTool("s", described, "ask", self._send)
        self._result: Any = None

    async def _send(self, _name: str, _arguments: dict[str, Any]) -> Any:
        return self._result

    async def read(self, line: bytes, *, listed: bool) -> str:
        """Read one line, and say how that ended."""
        from mcp.shared.message import SessionMessage
        from mcp_types import CallToolResult, JSONRPCResponse, ListToolsResult

        if len(line) > MESSAGE_MAX or await excess(line):
            return "too much"
        try:
            message = getattr(await fit(SessionMessage(_read(line))), "message", None)
            if not isinstance(message, JSONRPCResponse):
                return "another message"
            kind = ListToolsResult if listed else CallToolResult
            result = kind.model_validate(message.result, by_name=False)
        except ValueError:
            return "malformed"
        if isinstance(result, ListToolsResult):
            return await self._listed(result.tools)
        self._result = result
        try:
            await self._ask.call([], {})
        except ToolError:
            return "tool error"
        return "value"

    async def _listed(self, described: list[Any]) -> str:
        tools = await self._servers._make_tools(self._servers._connections[0], described, ())
        for tool in tools:
            await in_thread(_checked, tool)  # the check's own work is not what is measured
            with contextlib.suppress(TypeError, ToolError):
                await tool.call([], {"text": "said", "x": [1, None]})
        return "tools"


def _checked(tool: ForeignTool) -> None:
    assert tool.name.isidentifier()
    compile(tool.stub(), "stub", "exec")
    json.dumps([tool.schema, tool.line, tool.doc])


async def made(count: int, seed: int, seen: Figures) -> None:
    """Read so many lines, one after the other."""
    dice, reader = random.Random(seed), Reader()
    while seen.count < count:
        worst = seen.worst_ms  # to make the answers is not what is measured
        lines = [_line(dice) for _ in range(BATCH)]
        await asyncio.sleep(0.004)
        seen.worst_ms = 0.0
        for line, listed in lines:
            first = forget_high()
            try:
                seen.note(await reader.read(line, listed=listed))
            except Exception as error:
                seen.surprised(error)
            seen.remember(len(line), first)
            if seen.worst_ms > worst:
                seen.slowest = f"{len(line):,} bytes, {line[:60]!r}, a list: {listed}"
        await asyncio.sleep(0.004)
        seen.worst_ms = max(seen.worst_ms, worst)
        seen.count += BATCH


def _line(dice: random.Random) -> tuple[bytes, bool]:
    listed = dice.random() < 0.3
    return answer(1, (lists if listed else results)(dice), dice)[0], listed


# --- over pipes ----------------------------------------------------------------------------------


async def piped(count: int, seed: int, seen: Figures) -> None:
    """Call tools of servers, one server after the other, until so many answers were changed."""
    with tempfile.TemporaryDirectory() as folder:
        while seen.count < count:
            seed += 1
            await _one_server(seed, Path(folder) / f"{seed}", seen)


async def _one_server(seed: int, tally: Path, seen: Figures) -> None:
    command = (sys.executable, str(SERVER), str(seed), str(tally))
    server = Server(name="s", command=command, start_seconds=5, call_seconds=1)
    servers = Servers([server], lambda _event: None)
    first = forget_high()
    try:
        tools = await servers.open([])
        seen.remember(_sent(tally)[0], first)
        for number in range(CALLS if tools else 0):
            before, first, worst = _sent(tally)[0], forget_high(), seen.worst_ms
            end = "surprise"
            try:
                end = await _called(tools[number % len(tools)])
            except Exception as error:
                seen.surprised(error)
            seen.note(end)
            if seen.worst_ms > worst:
                seen.slowest = f"{end} of {_sent(tally)[0] - before:,} bytes, seed {seed}"
            seen.remember(max(_sent(tally)[0] - before, 0), first)
    except UsageError as error:
        seen.note("not started" if "\n" not in str(error) else "lines")
    except Exception as error:
        seen.surprised(error)
    finally:
        await servers.close()
    seen.count += max(_sent(tally)[1], 1)
    assert len(asyncio.all_tasks()) <= 2  # this one, and the one that looks at the time


async def _called(tool: ForeignTool) -> str:
    try:
        await tool.call([], {})
    except ToolError as error:
        return (error.kind or "tool error") if "\n" not in str(error) else "lines"
    except TypeError:
        return "not sent"
    return "value"


def _sent(tally: Path) -> tuple[int, int]:
    """Return how many bytes, and how many changed messages; a server that was started again began
    anew.
    """
    size, changed = (tally.read_text().split() if tally.exists() else None) or (0, 0)
    return int(size), int(changed)


# --- the test ------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
@pytest.mark.parametrize(
    ("how", "share"), [("made", 1), pytest.param("piped", 10, marks=pytest.mark.long)]
)
def test_changed_answers_of_a_server_neither_break_nor_fill_the_host(how: str, share: int) -> None:
    """In a process of its own, whose memory is compared with what the property allows."""
    count = examples(COUNT, least=100) // share
    done = subprocess.run(
        [sys.executable, __file__, how, str(count), str(SEED)],
        capture_output=True, text=True, check=False, timeout=120 + count,
        env=os.environ | {"PYTHONPATH": str(TESTS), "PYTHONWARNINGS": "ignore"},
    )  # fmt: skip
    print(done.stdout)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr == ""  # nothing that a server says is logged to a terminal
    assert json.loads(done.stdout)["surprises"] == {}
    assert "lines" not in json.loads(done.stdout)["ends"]  # each error is one
    assert json.loads(done.stdout)["over_mb"] <= 32  # of the allocator's and the libraries' own


async def main(
    do: Callable[[int, int, Figures], Awaitable[None]], count: int, seed: int
) -> Figures:
    """Do it, while the loop is looked at; a little of it before, which is not counted."""
    for name in ("mcp", "jsonschema", "httpx2", "PIL.Image"):
        import_module(name)
    await do(BATCH, 0, Figures())
    gc.collect()
    gc.freeze()  # what libraries hold takes Python 30 ms and more to go through
    seen = Figures()
    ticking = asyncio.create_task(seen.tick())
    await do(count, seed, seen)
    ticking.cancel()
    return seen


if __name__ == "__main__":
    chosen = {"made": made, "piped": piped}[sys.argv[1]]
    print(json.dumps(asyncio.run(main(chosen, int(sys.argv[2]), int(sys.argv[3]))).public))
