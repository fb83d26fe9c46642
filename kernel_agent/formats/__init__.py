"""How an action is written down by a model: the formats by name, and ``parse``.

Importing this package imports no parser: a format is loaded when it is asked for.
"""

from __future__ import annotations

from kernel_agent.errors import UsageError
from kernel_agent.formats.base import Format
from kernel_agent.records import Action, Reply

FORMATS = ("auto", "fenced", "envelope")
"""The names that :func:`get_format` accepts; ``auto`` is ``fenced`` until models are measured."""

_PLANNED = ("tool", "json")


def get_format(name: str = "auto") -> Format:
    """Return a format by name.

    Raises
    ------
    UsageError
        There is no such format, or not yet. The caller's fault.
    """
    if name in ("auto", "fenced"):
        from kernel_agent.formats.fenced import Fenced

        return Fenced()
    if name == "envelope":
        from kernel_agent.formats.envelope import Envelope

        return Envelope()
    known = ", ".join(FORMATS)
    if name in _PLANNED:
        raise UsageError(f"the format {name!r} is not built yet; choose one of: {known}")
    raise UsageError(f"unknown format {name!r}; choose one of: {known}")


def parse(reply: str | Reply, format: str = "fenced") -> Action:  # noqa: A002  a public contract
    r"""Read a model's reply as one action.

    Parameters
    ----------
    reply
        A reply, or only its text when nothing is known about how it ended.
    format
        One of :data:`FORMATS`.

    Returns
    -------
    Action
        What the model asked for, with code that compiles. Nothing is run.

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
