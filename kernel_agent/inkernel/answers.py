"""Reject values that are no answer, in kernel, interpreter level and exported notebook alike.

The exporter copies the function's source, so it stands alone: it imports inside, and only from
the standard library.
"""

from __future__ import annotations


def no_answer(value: object, source: str) -> str:
    """Say why a value is no answer; empty text when it is one.

    Such a value is what a cell was about to compute (a generator, a function), or nothing: None is
    what ``print(x)`` returns, so it is meant only where the cell's source says so.
    """
    import inspect
    import re
    from collections.abc import Awaitable, Iterator

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
        (type(value) in (object, type(...), type(NotImplemented)), "give a text, number or table"),
    )
    return next((f"{name} is no answer: {advice}" for is_one, advice in kinds if is_one), "")
