"""Calls from the kernel to the host, over the kernel's own stdin channel.

The wire, which both sides hold to (the host's side is :mod:`kernel_agent.tools.broker`):

* an ``input_request`` whose prompt is ``kernel-agent/1 `` and one JSON object
  ``{"id": n, "calls": [{"name": …, "args": […], "kwargs": {…}}, …]}``;
* the ``input_reply``'s value is one JSON object
  ``{"id": n, "results": [{"ok": true, "value": …} | {"ok": false, "type": …, "message": …}, …]}``.

No port, no file, no polling, and it works without a network. One request is under way at a time;
a request may hold many calls, which the host runs side by side.
"""

from __future__ import annotations

import builtins
import inspect
import itertools
import json
import threading
from collections.abc import Callable, Iterable
from typing import Any

from .values import decode

PREFIX = "kernel-agent/1 "
WAKE_MS = 50  # how often a waiting call looks whether it was interrupted


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
        self._lock = threading.Lock()
        self._ids = itertools.count(1)

    def request(self, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Send calls and wait for their results; safe from any thread.

        Raises
        ------
        TypeError
            When an argument has no JSON form.
        """
        with self._lock:
            number = next(self._ids)
            prompt = PREFIX + json.dumps({"id": number, "calls": calls}, default=_refuse)
            kernel = self._kernel
            kernel.session.send(
                kernel.stdin_socket,
                "input_request",
                {"prompt": prompt, "password": False},
                kernel.get_parent("shell"),
                ident=kernel._get_shell_context_var(kernel._shell_parent_ident),
            )
            results: list[dict[str, Any]] = self._reply_to(number)
            return results

    def _reply_to(self, number: int) -> list[dict[str, Any]]:
        kernel = self._kernel
        while True:
            if not kernel.stdin_socket.poll(WAKE_MS):
                continue
            _, message = kernel.session.recv(kernel.stdin_socket)
            try:
                reply = json.loads(message["content"]["value"])
            except (TypeError, KeyError, ValueError):
                continue
            # A reply to a call that was interrupted comes late and belongs to nobody.
            if isinstance(reply, dict) and reply.get("id") == number:
                return list(reply["results"])


def _refuse(value: object) -> Any:
    if hasattr(value, "item") and getattr(value, "size", 0) == 1:  # a numpy scalar
        return value.item()
    raise TypeError(
        f"a {type(value).__name__} cannot be sent to a host tool: pass text, numbers, lists or "
        "dicts (for a table: df.to_dict('records'))"
    )


def value_of(result: dict[str, Any]) -> Any:
    """Return a result's value, or raise what the tool raised, under the same name."""
    if result.get("ok"):
        return decode(result.get("value"))
    kind, message = str(result.get("type")), str(result.get("message"))
    builtin = getattr(builtins, kind, None)
    if isinstance(builtin, type) and issubclass(builtin, Exception):
        raise builtin(message)
    raise ToolError(f"{kind}: {message}" if kind != "ToolError" else message)


def make_function(spec: dict[str, Any], channel: HostChannel) -> Callable[..., Any]:
    """Return a plain function that calls the host tool described by ``spec``.

    Parameters
    ----------
    spec
        ``name``, ``doc`` and ``parameters``: a list of ``[name, kind, default, annotation]`` with
        kind as :class:`inspect.Parameter` names it and default as source text or None.
    """
    name = spec["name"]

    def call(*args: Any, **kwargs: Any) -> Any:
        request = {"name": name, "args": list(args), "kwargs": kwargs}
        return value_of(channel.request([request])[0])

    def map_over(items: Iterable[Any]) -> list[Any]:
        """Call the tool once for each item, side by side on the host; results in order."""
        calls = [{"name": name, "args": [item], "kwargs": {}} for item in items]
        return [value_of(result) for result in channel.request(calls)] if calls else []

    call.__name__ = call.__qualname__ = name
    call.__doc__ = spec.get("doc") or ""
    call.__signature__ = _signature(spec.get("parameters", []))  # type: ignore[attr-defined]  # read by help()
    call.map = map_over  # type: ignore[attr-defined]  # a function may carry attributes
    return call


class _Source:
    """A default or annotation that shows as the source text that it was on the host."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _signature(parameters: list[list[Any]]) -> inspect.Signature:
    return inspect.Signature(
        [
            inspect.Parameter(
                name,
                getattr(inspect.Parameter, kind),
                default=inspect.Parameter.empty if default is None else _Source(default),
                annotation=inspect.Parameter.empty if annotation is None else _Source(annotation),
            )
            for name, kind, default, annotation in parameters
        ]
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
