"""``delegate`` as code in the kernel finds it: values go in and come out whole, typed.

The host tool of that name takes and gives the forms of :mod:`.values`; nothing is pickled on the
way from one kernel to another, and the host unpacks nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from .rpc import HostChannel, make_function, value_of
from .values import decode, encode

MAX_FORM = 30_000_000  # characters of one value; a request may have a little more


def make_delegate(spec: dict[str, Any], channel: HostChannel) -> Callable[..., Any]:
    """Return the function ``delegate``, with its ``map``.

    Parameters
    ----------
    spec
        The host tool, as :func:`.host.make_function` takes it.
    """
    plain: Any = make_function(spec, channel)

    def delegate(task: str, data: Any = None, **options: Any) -> Any:
        (outcome,) = _outcomes(channel, [delegate_call(task, data, **options)])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def map_over(tasks: Any, data: Any = None, **options: Any) -> list[Any]:
        """Delegate several tasks side by side, each with its own kernel and budget.

        Parameters
        ----------
        tasks
            A list of tasks, or one task for every item of ``data``.
        data
            A list with an item for each task, or one value for all of them.
        options
            As of ``delegate``.

        Returns
        -------
        list
            The answers, in order; in the place of an agent that gave none stands the exception
            (a RuntimeError) that says why.
        """
        orders = _orders(tasks, data)
        # What is left is divided evenly; one part stays with this run.
        options.setdefault("share", 1 / (len(orders) + 1))
        return _outcomes(channel, [delegate_call(task, item, **options) for task, item in orders])

    delegate.__doc__ = plain.__doc__
    delegate.__signature__ = plain.__signature__  # type: ignore[attr-defined]  # read by help()
    delegate.map = map_over  # type: ignore[attr-defined]  # a function may carry attributes
    return delegate


def _orders(tasks: Any, data: Any) -> list[tuple[Any, Any]]:
    if isinstance(tasks, str):
        items = data if isinstance(data, list | tuple) else [data]
        return [(tasks, item) for item in items]
    tasks = list(tasks)
    if not isinstance(data, list | tuple):
        return [(task, data) for task in tasks]
    if len(data) != len(tasks):
        raise ValueError(f"{len(tasks)} tasks, but {len(data)} items of data")
    return list(zip(tasks, data, strict=True))


def delegate_call(task: Any, data: Any = None, **options: Any) -> dict[str, Any]:
    """Return the call of the host tool, with the data in its forms."""
    given = {name: value for name, value in options.items() if value is not None}
    if data is not None:
        given["data"] = _as_variables(data)
    return {"name": "delegate", "args": [task], "kwargs": given}


def _as_variables(data: Any) -> dict[str, Any]:
    """Return variables: those of a dict whose keys are names, else the one variable ``data``."""
    names = isinstance(data, dict) and all(isinstance(k, str) and k.isidentifier() for k in data)
    return {name: form_of(value) for name, value in (data if names else {"data": data}).items()}


def form_of(value: Any) -> Any:
    """Return a value as it is handed from one kernel to another.

    Raises
    ------
    TypeError
        It has no such form.
    ValueError
        It is too large.
    """
    form = encode(value)
    if (size := len(json.dumps(form))) > MAX_FORM:
        raise ValueError(
            f"a {type(value).__name__} of {size:,} characters is too large to hand over (at most "
            f"{MAX_FORM:,}): pass less of it"
        )
    return form


def _outcomes(channel: HostChannel, calls: list[dict[str, Any]]) -> list[Any]:
    """Make calls side by side; return the result of each, or its exception."""
    sent = [channel.send(call["name"], tuple(call["args"]), call["kwargs"]) for call in calls]
    return [_outcome(channel.text(reply)) for reply in sent]


def _outcome(text: str) -> Any:
    try:
        return decode(value_of(text))
    except Exception as error:
        return error
