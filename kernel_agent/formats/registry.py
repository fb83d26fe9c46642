"""The formats by name, and ``parse``. A format is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module

from kernel_agent.errors import UsageError
from kernel_agent.formats.base import Format
from kernel_agent.records import Action, Reply

_FORMATS: dict[str, str | Callable[[], Format]] = {  # ours, by name, are given the example
    "fenced": "fenced:Fenced",
    "envelope": "envelope:Envelope",
    "tool": "tool_call:NativeTool",
    "json": "json_calls:ParallelCalls",
}
AUTO = "auto"
"""The name that leaves the choice to :mod:`kernel_agent.formats.auto`."""

DEFAULT = "fenced"
"""The format of ``auto`` for a model that was not measured: every model can write it."""


def register(name: str, make: Callable[[], Format]) -> None:
    """Add a format, or replace one. Everything else finds it by its name.

    Parameters
    ----------
    name
        What ``--format`` and ``Session(format=…)`` call it; the format's own ``name``.
    make
        Called without arguments each time the format is asked for.
    """
    _FORMATS[name] = make


def format_names() -> tuple[str, ...]:
    """Return the names that :func:`get_format` accepts."""
    return (AUTO, *_FORMATS)


def get_format(name: str = AUTO, *, look: str | None = None) -> Format:
    """Return a format by name.

    Parameters
    ----------
    name
        One of :func:`format_names`.
    look
        The cell that its examples hold, in the prompt and in what is said of an unreadable reply:
        a first look at the run's own data (:mod:`kernel_agent.session.first_look`).

    Raises
    ------
    UsageError
        There is no such format. The caller's fault.
    """
    made = _FORMATS.get(DEFAULT if name == AUTO else name)
    if made is None:
        known = ", ".join(format_names())
        near = "".join(
            f" Did you mean {word}?" for word in get_close_matches(name, format_names(), 1)
        )
        raise UsageError(f"unknown format {name!r}; choose one of: {known}.{near}")
    if isinstance(made, str):
        module, _, kind = made.partition(":")
        ours = getattr(import_module(f"kernel_agent.formats.{module}"), kind)
        own: Format = ours(look) if look else ours()
        return own
    return made()


def parse(reply: str | Reply, format: str = DEFAULT) -> Action:  # noqa: A002  a public contract
    r"""Read a model's reply as one action.

    Parameters
    ----------
    reply
        A reply, or only its text when nothing is known about how it ended.
    format
        One of :func:`format_names`.

    Returns
    -------
    Action
        What the model asked for; code compiles. Nothing is run.

    Raises
    ------
    FormatError
        The reply cannot be read; its ``feedback`` is the text for the model. The model's fault.
    UsageError
        There is no such format. The caller's fault.

    Examples
    --------
    >>> parse("Look first.\n```python\nprint(1 + 1)\n```").source
    'print(1 + 1)'
    """
    if isinstance(reply, str):
        reply = Reply(content=reply)
    return get_format(format).parse(reply)
