"""Reject values that are no answer, in kernel, interpreter level and exported notebook alike.

The exporter copies the function's source, so it stands alone: it imports inside, and only from
the standard library.
"""

from __future__ import annotations


def no_answer(value: object, source: str) -> str:
    """Say why a value is no answer; empty text when it is one.

    Such a value is what a cell was about to compute (a generator, a function), what nobody can read
    (``<A object at 0x7f…>``), or nothing: None is what ``print(x)`` returns, so it is meant only
    where the cell's source says so.
    """
    import inspect
    import re
    from collections.abc import Awaitable, Iterable, Iterator
    from itertools import islice

    def mute(each: object) -> bool:
        made = type(each)
        plain = made.__repr__ is object.__repr__ and made.__str__ is object.__str__
        return plain and not any(n.startswith(("_repr_", "_ipython_")) for n in dir(made))

    members: Iterable[object] = ()
    if isinstance(value, dict | list | tuple | set):
        members = value.values() if isinstance(value, dict) else value
    unread = next((each for each in (value, *islice(members, 1000)) if mute(each)), None)
    name = f"a {type(value).__name__}"
    if value is None:
        meant = re.search(r"final_answer\(\s*(?:value\s*=\s*)?None\s*[,)]", source)
        told = "give the value, not what print() returns; write final_answer(None) if it is meant"
        return "" if meant else f"None is no answer: {told}"
    if isinstance(value, str):
        return "" if value.strip() else "empty text is no answer: say what was found"
    kinds = (
        (isinstance(value, Iterator), "give what comes out of it, such as list(...)"),
        (isinstance(value, Awaitable), "await it"),
        (inspect.isroutine(value) or isinstance(value, type), "call it and give what it returns"),
        (inspect.ismodule(value), "give something that it computes"),
        (type(value) in (type(...), type(NotImplemented)), "give a text, number or table"),
        (unread is value, "give a text, number or table"),
        (unread is not None, f"give texts or numbers in it, not a {type(unread).__name__}"),
    )
    return next((f"{name} is no answer: {advice}" for is_one, advice in kinds if is_one), "")
