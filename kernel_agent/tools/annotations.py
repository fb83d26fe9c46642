"""Annotations as text: a union is ``X | None`` on every Python, however it was written.

Until 3.14, Python shows a union as it was made: ``Optional[X]``, ``Union[X, Y]`` or ``X | Y``.
"""

import inspect
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin


def written(annotation: Any) -> str:
    """Return an annotation as a person would write it.

    Examples
    --------
    >>> written(dict[str, Union[int, None]])
    'dict[str, int | None]'
    """
    if isinstance(annotation, str):
        return annotation
    if annotation is NoneType:
        return "None"
    if isinstance(annotation, list):  # the parameters of a Callable
        return f"[{', '.join(map(written, annotation))}]"
    if _is_union(annotation):
        return " | ".join(map(written, get_args(annotation)))
    text = inspect.formatannotation(annotation)
    if not _holds_union(annotation):
        return text
    parts = ["..." if part is ... else written(part) for part in get_args(annotation)]
    return f"{text.partition('[')[0]}[{', '.join(parts)}]"


def _is_union(annotation: Any) -> bool:
    return get_origin(annotation) in (Union, UnionType)


def _holds_union(annotation: Any) -> bool:
    """Whether there is one within it, where types stand."""
    if isinstance(annotation, list):
        return any(_is_union(part) or _holds_union(part) for part in annotation)
    if get_origin(annotation) in (Literal, Annotated):
        return False
    return _holds_union(list(get_args(annotation)))
