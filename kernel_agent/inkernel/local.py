"""Cells without a kernel's process: they run in a thread of the process that asks for them.

:mod:`kernel_agent.kernel.fake` is the host's side. What cells find (``final_answer``, ``outputs``,
host tools), how values are shown, and the report of changed variables are the kernel's own parts;
in the place of IPython's shell stand the few functions here: its display hook is one for the whole
process, and of two shells side by side each showed the other's values. There are no magics, and
nothing is kept apart: a cell that ends the process ends its host.
"""

from __future__ import annotations

import ast
import asyncio
import ctypes
import inspect
import io
import itertools
import json
import linecache
import os
import sys
import threading
import time
import traceback
import types
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from IPython.core.formatters import DisplayFormatter

from .delegate import make_delegate
from .display import DisplayCap, FinalAnswer, install
from .hints import explain
from .opcount import Counting
from .outputs import Memory
from .rpc import PREFIX, HostChannel, calls_of, cut_frames, make_function, refuse_input
from .stream import HEAD, Cut
from .transfer import Answered, Taken, taken_answer
from .variables import Variables

CLONE_FS = 0x200  # linux/sched.h
NAP_S = 0.05  # the longest sleep in one piece, between which a cell can be interrupted
AROUND = 2  # lines of source around the one that raised

# Side by side it may end in a SystemError before CPython 3.11.8 (its issue 106905).
_parsing = threading.Lock()

Emit = Callable[[str, dict[str, Any]], None]
"""Takes the kind and content of an output message."""


class LocalChannel(HostChannel):
    """Carries host calls as a function call; ``ask`` is set for as long as a cell runs."""

    def __init__(self) -> None:
        self._ids = itertools.count(1)
        self.ask: Callable[[str], Future[str]] | None = None

    def send(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Future[str]:
        """Hand a request to the host."""
        calls = calls_of(name, args, kwargs)
        if self.ask is None:
            raise RuntimeError("the host answers tools while a cell runs, and that cell is over")
        return self.ask(f'{PREFIX}{{"id": {next(self._ids)}, "calls": {calls}}}')


class Shell:
    """The parts of IPython's shell that cells need: a formatter, and a publisher of displays."""

    def __init__(self) -> None:
        self.display_formatter = DisplayFormatter()
        self.display_pub = self
        self.emit: Emit = lambda _kind, _content: None
        self.cap = DisplayCap(lambda _text: None)
        install(self)  # type: ignore[arg-type]  # it is like one

    def publish(self, data: dict[str, Any], metadata: dict[str, Any] | None = None) -> None:
        """Put out a display."""
        self.emit("display_data", {"data": self.cap.bound(data), "metadata": metadata or {}})

    def display(self, *values: Any) -> None:
        """Show values; what cells find as ``display``."""
        for value in values:
            self.publish(*self.display_formatter.format(value))


class Cells:
    """A namespace, with the hooks around each cell that runs in it.

    Parameters
    ----------
    folder
        The working directory of the cells.
    tools
        Descriptions of the host tools.
    max_operations
        A cap on what one cell computes; None for none.
    """

    def __init__(
        self, folder: str, tools: Sequence[dict[str, Any]], max_operations: int | None
    ) -> None:
        self._folder = folder
        self._shell, self._memory = Shell(), Memory()
        self._shell.cap = DisplayCap(self._memory.append)
        self._final_answer: Any = FinalAnswer(self._shell)  # type: ignore[arg-type]  # as above
        self._counting = None if max_operations is None else Counting(max_operations)
        self.channel = LocalChannel()
        self.namespace: dict[str, Any] = types.ModuleType("__main__").__dict__
        self.namespace |= {
            "final_answer": self._final_answer, "outputs": self._memory,
            "display": self._shell.display, "input": refuse_input, "exit": sys.exit,
            "quit": sys.exit,
        }  # fmt: skip
        for spec in tools:
            make = make_delegate if spec["name"] == "delegate" else make_function
            self.namespace[spec["name"]] = make(spec, self.channel)
        self._variables = Variables(self.namespace)
        self._numbers: dict[str, int] = {}  # by the file names that tracebacks have
        self._lock = threading.Lock()
        self._aim()
        self._apart = False  # the thread has a working directory of its own

    def run(self, source: str, number: int, emit: Emit) -> BaseException | None:
        """Run a cell in this thread; return what it raised."""
        streams = {name: Stream(name, emit, self._memory) for name in ("stdout", "stderr")}

        def put_out(kind: str, content: dict[str, Any]) -> None:
            for stream in streams.values():
                stream.flush()
            emit(kind, content)

        self._shell.emit = put_out
        self._memory.begin(number, source)
        self._shell.cap.begin()
        self._final_answer.begin(source)
        self.namespace["final_answer"] = self._final_answer
        self.namespace.setdefault("outputs", self._memory)
        with routed(streams["stdout"], streams["stderr"]), self._within():
            raised = self._raised_by(source, number)
        if raised is not None:
            error = self._describe_error(raised)
            self._memory.append("\n".join(error["traceback"]) + "\n")
        for stream in streams.values():
            stream.end(number)
        if raised is not None:
            emit("error", error)
        return raised

    def changes(self, source: str) -> dict[str, Any]:
        """Return the report of the variables that changed."""
        with _parsing:
            return self._variables.look(source)

    def take_variables(self, names: Sequence[str]) -> dict[str, Any]:
        """Return variables as the wire has them."""
        return _through_json(Taken(names, self.namespace)._repr_mimebundle_())

    def get_answer(self) -> dict[str, Any]:
        """Return the latest answer as the wire has it."""
        return _through_json(Answered(self._final_answer.value)._repr_mimebundle_())

    def take_answer(self) -> dict[str, Any]:
        """Return the latest answer as a variable is given."""
        return _through_json(taken_answer(self._final_answer.value)._repr_mimebundle_())

    def interrupt(self) -> None:
        """Raise KeyboardInterrupt in the cell when it comes back to Python; from any thread."""
        with self._lock:
            if self._task is not None:
                self._task.get_loop().call_soon_threadsafe(self._task.cancel)
            elif self._thread is not None:
                _raise_in(self._thread, KeyboardInterrupt)

    # --- the code ------------------------------------------------------------------------------

    def _raised_by(self, source: str, number: int) -> BaseException | None:
        try:
            try:
                self._aim(threading.get_ident())
                value = self._evaluate(source, number)
                if value is not None and not source.rstrip().endswith(";"):
                    data, metadata = self._shell.display_formatter.format(value)
                    shown = {"data": self._shell.cap.bound(data), "metadata": metadata}
                    self._shell.emit("execute_result", shown)
            finally:
                self._aim()
                forget_interrupts()
        except BaseException as error:
            return error
        return None

    def _evaluate(self, source: str, number: int) -> Any:
        """Run the statements; return the value of the last one if it is an expression."""
        place = zlib.crc32(f"{number}:{source}".encode())
        file = f"/ipykernel_{os.getpid()}/{place}.py"  # as cells are called in tracebacks
        self._numbers[file] = number
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        with _parsing:
            flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
            tree: Any = compile(source, file, "exec", flags)
        if self._counting is not None:
            self._counting.begin()
            tree = ast.fix_missing_locations(self._counting.visit(tree))
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        self._do(compile(tree, file, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))
        if last is None:
            return None
        expression = ast.Expression(last.value)
        return self._do(compile(expression, file, "eval", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))

    def _do(self, code: types.CodeType) -> Any:
        if not code.co_flags & inspect.CO_COROUTINE:
            return eval(code, self.namespace)  # noqa: S307 - to run code is what it is for
        self._aim()  # an interrupt within asyncio would leave a loop half made
        _sleep(0)  # one that came before is raised here at the latest
        try:
            return asyncio.run(self._await_in_loop(eval(code, self.namespace)))  # noqa: S307
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        finally:
            self._aim(threading.get_ident())

    async def _await_in_loop(self, coroutine: Any) -> Any:
        task = asyncio.ensure_future(coroutine)
        self._aim(task=task)
        try:
            return await task
        finally:
            self._aim()

    def _aim(self, thread: int | None = None, task: asyncio.Task[Any] | None = None) -> None:
        """Say what an interrupt is to end from now on; nothing, if neither is given."""
        with self._lock:
            self._thread, self._task = thread, task

    @contextmanager
    def _within(self) -> Iterator[None]:
        """Work in the folder: this thread alone where the system can do that, else the process."""
        if not self._apart and sys.platform == "linux":
            self._apart = ctypes.CDLL(None).unshare(CLONE_FS) == 0
        before = None if self._apart else Path.cwd()
        if before is not None or not self._numbers:
            os.chdir(self._folder)
        try:
            yield
        finally:
            if before is not None:
                os.chdir(before)

    # --- errors --------------------------------------------------------------------------------

    def _describe_error(self, error: BaseException) -> dict[str, Any]:
        cut_frames(error)
        explain(error)
        ename = type(error).__name__
        return {"ename": ename, "evalue": str(error), "traceback": self._traceback(error)}

    def _traceback(self, error: BaseException) -> list[str]:
        """Return the strings that IPython would show."""
        name = type(error).__name__
        message = "".join(traceback.format_exception_only(error)).rstrip()
        if isinstance(error, SyntaxError) and error.filename in self._numbers:
            number = self._numbers[str(error.filename)]
            head = f"  Cell In[{number}], line {error.lineno}"
            return [message.replace(f'  File "{error.filename}", line {error.lineno}', head)]
        before: list[str] = []
        if error.__cause__ is not None:
            told = "The above exception was the direct cause of the following exception:"
            before = [*self._traceback(error.__cause__), told]
        elif error.__context__ is not None and not error.__suppress_context__:
            told = "During handling of the above exception, another exception occurred:"
            before = [*self._traceback(error.__context__), told]
        stack = traceback.extract_tb(error.__traceback__)
        ours = itertools.dropwhile(lambda frame: frame.filename not in self._numbers, stack)
        frames = [self._frame(frame) for frame in ours]
        head = f"{name}{'Traceback (most recent call last)':>{75 - len(name)}}"
        return [*before, "-" * 75, head, *frames, message]

    def _frame(self, frame: traceback.FrameSummary) -> str:
        at = frame.lineno or 1
        inside = "" if frame.name == "<module>" else f", in {frame.name}()"
        number = self._numbers.get(frame.filename)
        if number is None:
            head = f"File {frame.filename}:{at}{inside}"
        else:
            head = f"Cell In[{number}], line {at}{inside}"
        lines = linecache.getlines(frame.filename)
        shown = [
            f"{'---->' if n == at else '     '} {n} {lines[n - 1].rstrip()}".rstrip()
            for n in range(max(at - AROUND, 1), min(at + AROUND, len(lines)) + 1)
        ]
        return "\n".join([head, *shown])


def _through_json(bundle: dict[str, Any]) -> dict[str, Any]:
    return dict(json.loads(json.dumps(bundle)))


def _raise_in(thread: int, kind: type[BaseException]) -> None:
    """Raise an exception in a thread when it comes back to Python."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(kind))


class _Forgotten(BaseException):
    """Takes the place of an interrupt that came too late."""


def forget_interrupts() -> None:
    """Take back an interrupt that this thread, or one that was given up, has not noticed.

    CPython keeps one mark for all threads ("somebody is to raise something") and takes it away only
    when an exception is raised in its thread; without one to raise it stays. Then every jump of
    every thread takes the slow way, and CPython 3.11 hangs at the next call under a profiler or a
    debugger. So an exception of our own is raised here, and caught.
    """
    try:
        _raise_in(threading.get_ident(), _Forgotten)
        while True:
            pass
    except _Forgotten:
        pass


# --- what is put out, by threads ---------------------------------------------------------------


class Stream(io.TextIOBase):
    """One stream of one cell, cut as a kernel cuts it; put out line by line."""

    def __init__(self, name: str, emit: Emit, memory: Memory) -> None:
        self._name, self._emit, self._memory = name, emit, memory
        self._cut, self._line = Cut(), ""

    def write(self, text: str, /) -> int:
        """Put out the text, or hold it back when the cell has printed enough."""
        if not isinstance(text, str):
            raise TypeError(f"write() takes text, not {type(text).__name__}")
        self._memory.append(text)
        room = max(HEAD - self._cut.sent, 0)
        if len(text) > room:
            self._cut.hold(text[room:])
        self._cut.sent += min(len(text), room)
        self._line += text[:room]
        if "\n" in text:
            self.flush()
        return len(text)

    def flush(self) -> None:
        """Put out text that waits for the end of its line."""
        text, self._line = self._line, ""
        if text:
            self._emit("stream", {"name": self._name, "text": text})

    def end(self, step: int) -> None:
        """Put out the rest, and say what was held back, with its end."""
        if self._cut.held_back:
            self._line += self._cut.ending(step, whole=self._memory.is_whole(step))
        self.flush()


class _Routed:
    """``sys.stdout`` or ``sys.stderr`` while cells run: each thread of a cell has its own."""

    def __init__(self, usual: Any) -> None:
        self.usual = usual
        self.of_threads: dict[int, Stream] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.of_threads.get(threading.get_ident(), self.usual), name)


_sleep = time.sleep
_routing = threading.Lock()
_cell_threads: set[int] = set()


def _sleep_lightly(seconds: float) -> None:
    """Stand in for ``time.sleep`` while cells run: theirs can be interrupted."""
    end = time.monotonic() + seconds
    while threading.get_ident() in _cell_threads and (left := end - time.monotonic()) > NAP_S:
        _sleep(min(left, NAP_S))
    _sleep(max(end - time.monotonic(), 0) if seconds >= 0 else seconds)


@contextmanager
def routed(out: Stream, err: Stream) -> Iterator[None]:
    """Send what this thread prints to these streams; other threads print where they did."""
    thread = threading.get_ident()
    with _routing:
        _cell_threads.add(thread)
        time.sleep = _sleep_lightly  # type: ignore[assignment]  # numbers are what it takes
        for name, stream in (("stdout", out), ("stderr", err)):
            if type(getattr(sys, name)) is not _Routed:
                setattr(sys, name, _Routed(getattr(sys, name)))
            getattr(sys, name).of_threads[thread] = stream
        ours: tuple[Any, Any] = (sys.stdout, sys.stderr)
    try:
        yield
    finally:
        with _routing:
            _cell_threads.discard(thread)
            if not _cell_threads:
                time.sleep = _sleep
            for name, one in zip(("stdout", "stderr"), ours, strict=True):
                one.of_threads.pop(thread, None)
                if not one.of_threads and getattr(sys, name) is one:
                    setattr(sys, name, one.usual)
