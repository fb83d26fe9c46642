"""Calls from the kernel to the host, over the kernel's own stdin channel.

The wire, which both sides hold to (the host's side is :mod:`kernel_agent.tools.broker`):

* an ``input_request`` whose prompt is ``kernel-agent/1 `` and one JSON object
  ``{"id": n, "calls": [{"name": …, "args": […], "kwargs": {…}}, …]}``, with ids that only grow;
* the ``input_reply``'s value is one JSON object ``{"id": n, "results": […]}`` with one result a
  call, ``{"ok": true, "value": …}`` or ``{"ok": false, "type": …, "message": …, "args": […]}``;
  or ``{"results": [], "error": {"type": …, "message": …}}`` when the request was refused.

Arguments and values are in the forms of :mod:`kernel_agent.inkernel.values`. No port, no file, no
polling, and it works without a network.

Any thread may call, and many requests may be under way: eight threads with slow tools wait for the
slowest, not for the sum. Sockets belong to one thread, so one thread, the carrier, sends
and receives for all; it looks at the stdin socket only while somebody waits.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import itertools
import json
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any

import zmq

from .hints import explain
from .values import decode, encode

PREFIX = "kernel-agent/1 "
MAX_REQUEST = 32_000_000  # characters of one request, as on the host
UNDER_WAY = 128  # requests at a time; the host answers no more than that side by side
WAKE_S = 0.1  # how often a waiting call looks whether it was interrupted

_OURS = str(Path(__file__).parent)
_CELL_OVER = (
    "the host answers tools while a cell runs, and the cell of this call is over: "
    "wait for your threads before the cell ends"
)


class ToolError(Exception):
    """A host tool failed with an error that has no built-in type of the same name."""


class HostChannel:
    """The kernel's end of the wire.

    Parameters
    ----------
    kernel
        The running ``IPythonKernel``; its session signs, its stdin socket carries.
    """

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._ids = itertools.count(1)
        self._outbox: deque[tuple[str, Future[str]]] = deque()
        self._waiting: dict[str, Future[str]] = {}
        self._places = threading.Semaphore(UNDER_WAY)
        self._parent: dict[str, Any] = {}
        self._ident: Any = b""
        self._wake = -1  # the end of the pipe that wakes the carrier; made with the first call

    def begin(self, parent: dict[str, Any], ident: Any) -> None:
        """Begin a cell: calls are made in its name, from any thread.

        Calls of earlier cells that are still waiting are over.

        Parameters
        ----------
        parent
            The message that brought the cell.
        ident
            Where replies to it go.
        """
        with self._lock:
            left, self._waiting = list(self._waiting.values()), {}
            self._parent, self._ident = parent, ident
        for reply in left:
            _fail(reply)

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a host tool and wait for its result; safe from any thread.

        Raises
        ------
        Exception
            What the tool raised, under the same name.
        """
        return self._result(self.send(name, args, kwargs))

    def call_each(self, name: str, each: Iterable[tuple[Any, ...]]) -> list[Any]:
        """Call a host tool with each of these arguments, side by side; results in order.

        All of the calls are made; the first that failed, in order, raises.
        """
        sent = [self.send(name, args, {}) for args in each]
        results = [self.text(reply) for reply in sent]
        return [value_of(text) for text in results]

    def send(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Future[str]:
        """Hand a request to the carrier; wait when too many are under way."""
        if os.getpid() != self._pid:
            raise RuntimeError(
                "host tools are called in the kernel's own process, not in one that it started: "
                "call the tool here and pass on what it gives"
            )
        text = calls_of(name, args, kwargs)
        places = self._places
        while not places.acquire(timeout=WAKE_S):
            pass
        reply: Future[str] = Future()
        reply.add_done_callback(lambda _reply: places.release())
        with self._lock:
            if self._wake < 0:
                self._start_carrier()
            self._outbox.append((f'{PREFIX}{{"id": {next(self._ids)}, "calls": {text}}}', reply))
        os.write(self._wake, b"\0")
        return reply

    def _result(self, reply: Future[str]) -> Any:
        return value_of(self.text(reply))

    def text(self, reply: Future[str]) -> str:
        """Wait for the reply to what :meth:`send` sent; an interrupt ends the wait."""
        while True:  # in pieces: a signal that another thread received wakes nobody
            try:
                return reply.result(WAKE_S)
            except TimeoutError:
                if reply.done():
                    return reply.result()

    # --- the carrier's thread -----------------------------------------------------------------

    def _start_carrier(self) -> None:
        woken, self._wake = os.pipe()
        carrier = threading.Thread(
            target=self._carry, args=(woken,), name="kernel-agent-carrier", daemon=True
        )
        carrier.start()

    def _carry(self, woken: int) -> None:
        """Send what is in the outbox and hand out replies, for as long as the kernel lives."""
        socket = self._kernel.stdin_socket
        poller = zmq.Poller()
        poller.register(woken, zmq.POLLIN)
        listening = False
        while True:
            if listening != bool(self._waiting):
                listening = not listening
                if listening:
                    poller.register(socket, zmq.POLLIN)
                else:
                    poller.unregister(socket)
            try:
                ready = dict(poller.poll())
            except zmq.ZMQError:  # the kernel is being shut down
                return
            if woken in ready:
                os.read(woken, 4096)
            while self._outbox:
                self._post(socket, *self._outbox.popleft())
            if socket in ready:
                self._receive(socket)

    def _post(self, socket: Any, prompt: str, reply: Future[str]) -> None:
        session, content = self._kernel.session, {"prompt": prompt, "password": False}
        with self._lock:
            parent, ident = self._parent, self._ident
            message = session.msg("input_request", content, parent=parent)
            number = message["header"]["msg_id"]
            self._waiting[number] = reply
        try:
            session.send(socket, message, ident=ident)
        except Exception as error:  # any error must reach the caller
            with self._lock:
                self._waiting.pop(number, None)
            _fail(reply, f"the request could not be sent: {error}")

    def _receive(self, socket: Any) -> None:
        """Hand out the replies that are there; one that nobody waits for is dropped."""
        session = self._kernel.session
        while True:
            try:
                _, message = session.recv(socket)
            except zmq.ZMQError:
                return
            except Exception:  # noqa: S112 - not a message: the next one may be
                continue
            if message is None:
                return
            with self._lock:
                reply = self._waiting.pop(message["parent_header"].get("msg_id"), None)
            if reply is not None and not reply.done():
                reply.set_result(str(message["content"].get("value", "")))


def _fail(reply: Future[str], why: str = _CELL_OVER) -> None:
    if not reply.done():
        error = {"type": "RuntimeError", "message": why}
        reply.set_result(json.dumps({"results": [], "error": error}))


def calls_of(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Return the calls of a request, in JSON: one call.

    Raises
    ------
    TypeError
        An argument has no form in which it could be sent.
    ValueError
        The arguments are too large.
    """
    text = json.dumps([{"name": name, "args": _form(list(args)), "kwargs": _form(kwargs)}])
    if len(text) > MAX_REQUEST - 100:
        raise ValueError(
            f"the arguments of {name} are too large to send: {len(text):,} characters of at "
            f"most {MAX_REQUEST:,}; pass less, or in several calls"
        )
    return text


def _form(value: Any) -> Any:
    try:
        return encode(value)
    except TypeError as error:
        message = str(error).replace(" cannot be sent", " cannot be sent to a host tool", 1)
        raise TypeError(message) from None


# --- results and errors ---------------------------------------------------------------------------


def value_of(text: str) -> Any:
    """Return the value in a reply, or raise what the tool raised, under the same name.

    Parameters
    ----------
    text
        The reply; empty when the host had nobody to ask.
    """
    reply = json.loads(text) if text else {}
    results = reply.get("results") or []
    result = results[0] if results else reply.get("error") or {}
    if result.get("ok"):
        return decode(result.get("value"))
    raise error_of(result) if result else RuntimeError(_CELL_OVER)


def error_of(result: dict[str, Any]) -> Exception:
    """Return the exception that a result describes: a built-in one as it was, else a ToolError."""
    kind, message = str(result.get("type")), str(result.get("message"))
    builtin = getattr(builtins, kind, None)
    if isinstance(builtin, type) and issubclass(builtin, Exception):
        for args in (result.get("args"), [message]):
            if args is None:
                continue
            try:
                made = builtin(*args)
            except Exception:  # noqa: S112 - some take other arguments than they show
                continue
            if type(made) is builtin:
                return made
    return ToolError(f"{kind}: {message}" if kind != "ToolError" else message)


def cut_frames(error: BaseException) -> None:
    """Take our own frames out of an exception's traceback, and out of those that led to it.

    Called before a traceback is shown: the person and the model see their own line that called
    the tool, and nothing of how the call travelled.
    """
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        one.__traceback__ = _without_ours(one.__traceback__)
        left += [one.__cause__, one.__context__]


def _without_ours(traceback: TracebackType | None) -> TracebackType | None:
    kept = []
    while traceback is not None:
        if str(Path(traceback.tb_frame.f_code.co_filename).parent) != _OURS:
            kept.append(traceback)
        traceback = traceback.tb_next
    for one, following in itertools.pairwise([*kept, None]):
        if one is not None:
            one.tb_next = following
    return kept[0] if kept else None


def show_without_our_frames(shell: Any) -> None:
    """Make the shell cut our frames from every traceback that it shows, and add what helps.

    Called at the start.
    """
    tracebacks = shell.InteractiveTB
    show = tracebacks.structured_traceback

    @functools.wraps(show)
    def structured(etype: Any, value: Any, tb: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(value, BaseException):
            cut_frames(value)
            explain(value)
            tb = _without_ours(tb)
        return show(etype, value, tb, *args, **kwargs)

    tracebacks.structured_traceback = structured


# --- the functions that cells call ----------------------------------------------------------------


def make_function(spec: dict[str, Any], channel: HostChannel) -> Callable[..., Any]:
    """Return a plain function that calls the host tool described by ``spec``.

    Parameters
    ----------
    spec
        ``name``, ``doc``, ``returns`` and ``parameters``: a list of ``[name, kind, default,
        annotation]`` with kind as :class:`inspect.Parameter` names it and default, annotation and
        returns as source text or None.
    """
    name = spec["name"]

    def call(*args: Any, **kwargs: Any) -> Any:
        return channel.call(name, args, kwargs)

    def map_over(*iterables: Iterable[Any]) -> list[Any]:
        """Call the tool for each item (or each group of items, as ``map`` does), side by side.

        The calls run on the host at the same time; the results are in the order of the items.
        """
        return channel.call_each(name, zip(*iterables, strict=False))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = spec.get("doc") or ""
    call.__module__ = "host"
    call.__signature__ = _signature(spec)  # type: ignore[attr-defined]  # read by help()
    map_over.__name__, map_over.__qualname__ = "map", f"{name}.map"
    call.map = map_over  # type: ignore[attr-defined]  # a function may carry attributes
    return call


class _Source:
    """A default or annotation that shows as the source text that it was on the host."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _signature(spec: dict[str, Any]) -> inspect.Signature:
    def source(text: str | None) -> Any:
        return inspect.Parameter.empty if text is None else _Source(text)

    return inspect.Signature(
        [
            inspect.Parameter(
                name,
                getattr(inspect.Parameter, kind),
                default=source(default),
                annotation=source(annotation),
            )
            for name, kind, default, annotation in spec.get("parameters", [])
        ],
        return_annotation=source(spec.get("returns")),
    )


def refuse_input(*_: object, **__: object) -> str:
    """Stand in for ``input`` and ``getpass``: there is nobody to ask.

    Raises
    ------
    RuntimeError
        Always; the cell's code is at fault.
    """
    raise RuntimeError(
        "input() is not available here: nobody is at the keyboard. Put the value into the code."
    )
