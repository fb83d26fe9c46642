"""Cells in an interpreter that has nothing to reach out with: the kernel of its level.

``pydantic-monty`` (the extra ``interpreter``) interprets a part of Python and is written in Rust.
It is no Jupyter kernel and no CPython: there is no numpy, no import of anything but a few modules
of its own, and a cell reaches files, clocks and functions only where the host hands them in. It
works on any system and for any user, and starts in milliseconds.

A cell here ends as one in a kernel does: with printed text, the value of its last line, an error,
``final_answer`` and calls of host tools. Its process is a worker that can be killed at any moment:
the state before each cell is kept, so a cell that takes too long costs its own variables only.

The notebook of such a run is plain Python over plain files and re-runs in Jupyter.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_agent.errors import InputError, KernelDied, KernelStartError, UsageError, how_to_install
from kernel_agent.inkernel import decode, encode, no_answer
from kernel_agent.inkernel.delegate import delegate_call
from kernel_agent.kernel.collect import Collector, answer_of
from kernel_agent.kernel.interpreted import (
    MAX_CHARS,
    binds,
    describe,
    error_of,
    exception_of,
    form_of,
    text_of,
    without_libraries,
    write_value,
)
from kernel_agent.kernel.protocol import Kernel, OnOutput, OnRequest
from kernel_agent.kernel.worker import bound_processor
from kernel_agent.records import (
    ANSWER_MIME,
    Answer,
    CellError,
    CellResult,
    CellStatus,
    Json,
    OutputDict,
)
from kernel_agent.safe import one_line, room_for

if TYPE_CHECKING:
    from pydantic_monty import AsyncMontySession

MEMORY_BYTES = 512_000_000
MAX_KEPT = 64_000_000  # characters of all outputs that ``outputs[k]`` reopens
MAX_SUSPENSIONS = 1_000_000  # calls of the host in one session
MAX_SLEEP_S = 3600.0
GET_SECONDS = 120.0  # for a variable to be given
ROOT = "/work"  # what the cells see as their working directory
PREFIX = "kernel-agent/1 "  # the wire of host calls: kernel_agent.inkernel.rpc


@dataclass
class _Cell:
    """A cell under way, with its outputs so far."""

    step: int
    on_output: OnOutput
    on_request: OnRequest | None
    source: str
    collector: Collector = field(init=False)
    said: list[OutputDict] = field(default_factory=list)
    answer: Answer | None = None
    value: Any = None  # of the answer
    ended: asyncio.Future[None] = field(init=False)
    """Done when the host has ended the worker."""
    left_out: int = 0
    chars: int = 0

    def __post_init__(self) -> None:
        self.collector = Collector(self.on_output, step=self.step)
        self.ended = asyncio.get_running_loop().create_future()

    def take_text(self, stream: str, text: str) -> None:
        """Take a piece of printed text; called from the interpreter's own thread."""
        room = MAX_CHARS - self.chars
        self.left_out += max(len(text) - room, 0)
        if room > 0:
            self.chars += min(len(text), room)
            self.put({"output_type": "stream", "name": stream, "text": text[:room]})

    def put(self, output: OutputDict) -> None:
        """Take an output, within the bounds that hold for every cell."""
        self.collector.add(output)

    def say(self, line: str) -> None:
        """Add a line of the host's own at the end, however much the cell has put out."""
        self.said.append({"output_type": "stream", "name": "stderr", "text": line})
        self.on_output(dict(self.said[-1]))

    @property
    def outputs(self) -> list[OutputDict]:
        """What the cell has put out so far."""
        return [*self.collector.outputs(), *self.said]


class InterpreterSession(Kernel):
    """Cells in the interpreter, driven as :class:`~kernel_agent.kernel.process.KernelSession` is.

    Parameters
    ----------
    cwd
        The session's folder; cells see its ``data/``.
    tools
        Descriptions of the host tools that cells can call.
    max_operations
        Not available here: the interpreter counts no operations.

    Raises
    ------
    UsageError
        A cap on operations was asked for.

    Examples
    --------
    >>> async with InterpreterSession(cwd=Path(".")) as kernel:
    ...     result = await kernel.execute("1 + 1")
    """

    def __init__(
        self,
        *,
        cwd: Path,
        tools: Sequence[Mapping[str, Any]] = (),
        max_operations: int | None = None,
    ) -> None:
        if max_operations is not None:
            raise UsageError(
                "--max-operations does not work with --sandbox interpreter: use --cell-seconds"
            )
        self.cwd = cwd
        self.steps = 0
        """The number of the latest cell."""
        self.sandbox_report: dict[str, Any] = {}
        """Empty: it has no self-test."""
        self.epitaph = "the interpreter's process ended"
        self._tools = frozenset(str(tool["name"]) for tool in tools)
        self._texts: dict[int, str] = {}
        self._has_own_outputs = False  # a variable of a cell's
        self._ids = count(1)
        self._stack = AsyncExitStack()
        self._pool: Any = None
        self._session: AsyncMontySession | None = None
        self._mounts: list[Any] = []
        self._latest: Any = None  # answer
        self._state: bytes | None = None
        self._ending = ""  # why the worker is being killed
        self._running: _Cell | None = None
        self._keeping = asyncio.Lock()  # held while a state is kept
        self._requests: set[asyncio.Future[Any]] = set()  # some outlive their cells
        self.pid: int | None = None
        """The process id of the worker."""

    @property
    def alive(self) -> bool:
        """Whether cells can be run."""
        return self._session is not None

    # --- life ------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the worker.

        Raises
        ------
        KernelStartError
            The extra is not installed, or the worker does not start.
        """
        try:
            from pydantic_monty import AsyncMonty, MontyError, MountDir
        except ImportError:
            raise KernelStartError(
                f"--sandbox interpreter needs pydantic-monty: {how_to_install('interpreter')}"
            ) from None
        try:
            self._pool = await self._stack.enter_async_context(AsyncMonty(max_processes=1))
            data = self.cwd / "data"
            if data.is_dir() and not data.is_symlink():
                mount = MountDir(host_path=data, virtual_path=f"{ROOT}/data", mode="read-only")
                self._mounts = [self._stack.enter_context(mount)]
            await self._check_out()
        except (MontyError, OSError, RuntimeError) as error:
            await self.close()
            raise KernelStartError(f"the interpreter did not start: {error}") from None

    async def _check_out(self) -> None:
        limits = {"max_memory": MEMORY_BYTES, "max_suspensions": MAX_SUSPENSIONS}
        session = self._pool.checkout(limits=limits)
        await session.__aenter__()
        if self._state is not None:
            await session.load_session(self._state)
        self._session, self.pid = session, session.worker_pid

    async def close(self) -> None:
        """End the worker and what is still asked of the host. Safe to call twice."""
        for request in self._requests:
            request.cancel()
        await asyncio.gather(*self._requests, return_exceptions=True)
        await self._let_go()
        await self._stack.aclose()

    async def _let_go(self) -> None:
        from pydantic_monty import MontyError

        session, self._session, self.pid = self._session, None, None
        if session is not None:
            with contextlib.suppress(MontyError, RuntimeError):  # it has ended already
                await session.__aexit__(None, None, None)

    async def interrupt(self) -> None:
        """End the running cell; it ends as ``interrupted``, with the variables from before it."""
        async with self._keeping:
            if self._running is not None:
                self._end_worker("interrupted")

    async def kill(self) -> None:
        """End the worker at once; the running cell ends as ``dead``."""
        self._end_worker("dead")

    def _end_worker(self, why: str) -> None:
        if self.pid is not None:
            self._ending = self._ending or why
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            if self._running is not None and not self._running.ended.done():
                self._running.ended.set_result(None)

    async def get(self, names: Sequence[str]) -> dict[str, Any]:
        """Return variables, each as the answer of a cell; see :meth:`Kernel.get`."""
        return {name: await self._get(name) for name in names}

    async def get_answer(self) -> Json:
        """Return the latest answer; see :meth:`Kernel.get_answer`."""
        return form_of(self._latest)

    async def take_answer(self) -> Any:
        """Return the latest answer itself; see :meth:`Kernel.take_answer`."""
        return decode(form_of(self._latest))

    async def _get(self, name: str) -> Any:
        latest = self._latest  # which this cell is to leave alone
        try:
            result = await self.execute(f"final_answer({name})", step=0, timeout_s=GET_SECONDS)
            if result.status == "dead":
                raise KernelDied(f"the interpreter is gone: {self.epitaph}")
            if not result.ok or result.answer is None:
                raise InputError(f"there is no variable {name} in the kernel")
            return decode(form_of(self._latest))
        finally:
            self._latest = latest

    # --- cells -----------------------------------------------------------------------------

    async def execute(
        self,
        code: str,
        *,
        step: int | None = None,
        timeout_s: float | None = None,
        waited: Callable[[], float] = lambda: 0.0,
        on_output: OnOutput | None = None,
        on_request: OnRequest | None = None,
    ) -> CellResult:
        """Run one cell; see :meth:`Kernel.execute`."""
        session, loop = self._session, asyncio.get_running_loop()
        if session is None:
            raise KernelDied(f"the interpreter is gone: {self.epitaph}")

        def tell(output: OutputDict) -> None:
            if on_output is not None:
                loop.call_soon_threadsafe(on_output, output)

        async with self._keeping:
            self.steps = step if step is not None else self.steps + 1
            if lost := await self._keep_state(session):
                return CellResult(status="dead", error=lost)
            cell = _Cell(step=self.steps, on_output=tell, on_request=on_request, source=code)
            self._running, self._ending = cell, ""
        bound_processor(self.pid, timeout_s)
        began, waited_before = time.monotonic(), waited()

        def seconds() -> float:
            return time.monotonic() - began - (waited() - waited_before)

        running = asyncio.ensure_future(self._run(session, code, cell))
        try:
            while not running.done():
                left = None if timeout_s is None else timeout_s - seconds()
                if left is not None and left <= 0:
                    self._end_worker("timeout")
                    left = None
                await asyncio.wait([running], timeout=left)
        except asyncio.CancelledError:
            self._end_worker("interrupted")
            await asyncio.wait([running])
            await self._finish_cell(cell, running.result())
            raise
        finally:
            self._running = None
        await asyncio.sleep(0)  # what was printed last is told first
        status, error = await self._finish_cell(cell, running.result())
        self._remember(cell)
        if cell.answer is not None:
            self._latest = cell.value
        return CellResult(
            status=status,
            outputs=tuple(cell.outputs),
            error=error,
            seconds=seconds(),
            answer=cell.answer,
        )

    async def _keep_state(self, session: AsyncMontySession) -> CellError | None:
        """Keep the state before a cell, which takes memory; return why the worker ended, if so."""
        from pydantic_monty import MontyError

        try:
            self._state = await session.dump()
        except (MontyError, RuntimeError) as error:
            self.epitaph = one_line(str(error)) if isinstance(error, MontyError) else self.epitaph
            await self._let_go()
            return CellError(ename="KernelDied", evalue=self.epitaph)
        return None

    async def _run(
        self, session: AsyncMontySession, code: str, cell: _Cell
    ) -> tuple[CellStatus, CellError | None]:
        """Run a cell to its end, whatever that is."""
        from pydantic_monty import MontyCrashedError, MontyError

        try:
            value = await self._drive(session, code, cell)
        except MontyCrashedError as error:
            return "dead", CellError(ename="KernelDied", evalue=str(error))
        except MontyError as error:
            return "error", error_of(error)
        if value is not None and not code.rstrip().endswith(";"):
            cell.put(
                {
                    "output_type": "execute_result",
                    "execution_count": cell.step,
                    "data": {"text/plain": write_value(value)},
                    "metadata": {},
                }
            )
        return "ok", None

    async def _drive(self, session: AsyncMontySession, code: str, cell: _Cell) -> Any:
        """Feed the code and answer its calls of the host, until it is done."""
        from pydantic_monty import AsyncFunctionSnapshot, MontyComplete

        def named(*_: object, **__: object) -> None:
            """Stand for a host function; its calls are answered below."""

        names = dict.fromkeys(("display", *self._tools, "final_answer"), named)
        self._has_own_outputs |= binds(code, "outputs")
        anew = "outputs" in code and not self._has_own_outputs  # what was looked up once, it keeps
        snapshot: Any = await session.feed_start(
            code,
            inputs={"outputs": self._texts} if anew else {},
            external_lookup={**names, "outputs": self._texts},
            print_callback=cell.take_text,
            mount=self._mounts,
            cwd=ROOT,
        )
        while not isinstance(snapshot, MontyComplete):
            if not isinstance(snapshot, AsyncFunctionSnapshot):
                snapshot = await snapshot.resume_auto()
            elif snapshot.function_name == "system.sleep":
                seconds = min(max(float(snapshot.args[0]), 0.0), MAX_SLEEP_S)
                await asyncio.wait({cell.ended}, timeout=seconds)
                snapshot = await snapshot.resume({"return_value": None})
            elif snapshot.is_os_function:
                snapshot = await snapshot.resume_auto()
            else:
                answer = self._answer(
                    cell, str(snapshot.function_name), snapshot.args, snapshot.kwargs
                )
                snapshot = await snapshot.resume(await self._unless_ended(cell, answer))
        return snapshot.output

    async def _unless_ended(self, cell: _Cell, answer: Coroutine[Any, Any, Any]) -> Any:
        """Wait for an answer, but not longer than for the end of the worker that is to hear it.

        What it was asked for is given up by whoever answers, and at the latest as the kernel ends.
        """
        request = asyncio.ensure_future(answer)
        self._requests.add(request)
        request.add_done_callback(self._requests.discard)
        await asyncio.wait({request, cell.ended}, return_when=asyncio.FIRST_COMPLETED)
        return request.result() if request.done() else {"return_value": None}

    async def _answer(
        self, cell: _Cell, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """Answer one call of a host function: the answer of the run, or a tool's result."""
        if name == "final_answer":
            return _final(cell, args, kwargs)
        if name == "display" and name not in self._tools:
            return _display(cell, args)
        if name not in self._tools or cell.on_request is None:
            return {"exception": NameError(f"name {name!r} is not defined")}
        try:
            if name == "delegate":
                made = delegate_call(*args, **kwargs)
                args, kwargs = made["args"], made["kwargs"]
            call = {"name": name, "args": encode(list(args)), "kwargs": encode(dict(kwargs))}
        except (TypeError, ValueError, RecursionError) as error:
            return {"exception": TypeError(f"{name}: {error}")}
        request = PREFIX + json.dumps({"id": next(self._ids), "calls": [call]})
        reply = json.loads(await cell.on_request(request))
        result = reply["results"][0] if reply["results"] else reply["error"]
        if not result.get("ok"):
            return {"exception": exception_of(result)}
        value = decode(result.get("value"))
        if name == "delegate":  # it is in the forms of the agent's kernel
            with contextlib.suppress(ValueError, RecursionError, MemoryError):  # else plain JSON
                value = await asyncio.to_thread(lambda: decode(value, room_for(value)))
        return {"return_value": without_libraries(value)}

    async def _finish_cell(
        self, cell: _Cell, end: tuple[CellStatus, CellError | None]
    ) -> tuple[CellStatus, CellError | None]:
        """Report what was left out; after a kill, start again with the state before the cell."""
        status, error = end
        if cell.left_out:
            line = f"\n… {cell.left_out:,} more characters were printed and are left out …\n"
            cell.put({"output_type": "stream", "name": "stdout", "text": line})
        if status != "dead":
            return status, error
        await self._let_go()
        if self._ending not in ("timeout", "interrupted"):
            return "dead", error
        await self._check_out()
        line = "The interpreter went back to the state before this cell: what it had set is gone.\n"
        cell.say(line)
        return ("timeout" if self._ending == "timeout" else "interrupted"), CellError(
            ename="KeyboardInterrupt", evalue=""
        )

    def _remember(self, cell: _Cell) -> None:
        self._texts[cell.step] = text_of(cell.outputs)
        while sum(map(len, self._texts.values())) > MAX_KEPT:
            del self._texts[min(self._texts)]


# --- what cells call ------------------------------------------------------------------------------


def final_answer(value: Any, note: Any = "") -> tuple[Any, Any]:
    """Take the arguments of a cell's call; Python's own errors say what is wrong with them."""
    return value, note


def _final(cell: _Cell, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    try:
        value, note = final_answer(*args, **kwargs)
    except TypeError as error:
        return {"exception": error}
    if cell.answer is not None:
        told = "final_answer was called already; only the first call counts\n"
        cell.put({"output_type": "stream", "name": "stderr", "text": told})
        return {"return_value": None}
    if cell.step and (reason := no_answer(value, cell.source)):  # not of a cell of the host's own
        return {"exception": TypeError(reason)}
    text = value[:MAX_CHARS] if isinstance(value, str) else write_value(value)
    data = {"text/plain": text, ANSWER_MIME: {**describe(value), "note": str(note or "")}}
    cell.answer = answer_of(data)
    cell.value = value
    metadata = {"kernel_agent": {"role": "answer"}}
    cell.put({"output_type": "display_data", "data": data, "metadata": metadata})
    return {"return_value": None}


def _display(cell: _Cell, values: Sequence[Any]) -> Any:
    for value in values:
        data = {"text/plain": write_value(value)}
        cell.put({"output_type": "display_data", "data": data, "metadata": {}})
    return {"return_value": None}
