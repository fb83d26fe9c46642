"""The first cell of a delegated run: the variables that it was handed, read from files of its own.

Values come from another kernel, in the forms of :mod:`kernel_agent.inkernel.values`, and go to one:
the host unpacks none of them. Tables, arrays and pictures become files in the run's ``data/``, and
the cell that reads them is ordinary code, so that the run's notebook re-runs in plain Jupyter.
"""

from __future__ import annotations

import base64
import json
import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernel_agent.inkernel import FORMS, Form
from kernel_agent.records import FINAL_ANSWER, Json

MAX_LITERAL = 500  # characters of plain JSON that stand in the cell; more is a file
MAX_SOURCE = 20_000  # characters of the cell
MAX_DEPTH = 50
RESERVED = frozenset({FINAL_ANSWER, "outputs", "delegate", "llm"})

_DTYPE = re.compile(r"[<>|=][biufcSUmM]\d{1,9}(\[\w{1,8}\])?")


@dataclass(frozen=True, kw_only=True)
class Opening:
    """The cell, its files (by name in ``data/``), and a description of each variable."""

    source: str
    files: Mapping[str, bytes]
    described: Mapping[str, str]


def opening_of(data: Mapping[str, Json]) -> Opening:
    """Return the cell that binds variables.

    Parameters
    ----------
    data
        Values as :func:`kernel_agent.inkernel.values.encode` writes them, by the variable's name.

    Raises
    ------
    ValueError
        A name that no variable can have, or a value in none of the forms.
    """
    writing = _Writing()
    lines = []
    described = {}
    for name, value in data.items():
        if not name.isidentifier() or keyword.iskeyword(name) or name in RESERVED:
            raise ValueError(f"{name[:80]!r} cannot be the name of a variable")
        before = len(writing.files)
        lines.append(f"{name} = {writing.expression(name, value)}")
        files = ", ".join(f"data/{file}" for file in list(writing.files)[before:])
        described[name] = _kind(value) + (f" in {files}" if files else "")
    shown = ", ".join(data)
    last = shown if len(data) == 1 else f"display({shown})"
    source = "\n".join([*sorted(writing.imports), "", *lines, last]).strip()
    if len(source) > MAX_SOURCE:
        raise ValueError("the data is made of too many small values: pass a table")
    return Opening(source=source, files=writing.files, described=described)


def _kind(value: Json) -> str:
    if isinstance(value, dict) and "$" in value:
        return str(value["$"])[:40]
    return type(value).__name__


@dataclass
class _Writing:
    """Writes values as expressions, and collects their imports and files."""

    files: dict[str, bytes] = field(default_factory=dict)
    imports: set[str] = field(default_factory=set)

    def expression(self, name: str, value: Json, depth: int = 0) -> str:
        if depth > MAX_DEPTH:
            raise ValueError("the data is nested too deeply")
        if isinstance(value, dict) and "$" in value:
            return self._write_typed(name, value, depth + 1)
        if _is_plain(value):
            return self._plain(name, value)
        if isinstance(value, list):
            return f"[{self._items(name, value, depth + 1)}]"
        pairs = (f"{k!r}: {self.expression(name, v, depth + 1)}" for k, v in value.items())
        return f"{{{', '.join(pairs)}}}"

    def _items(self, name: str, values: list[Json], depth: int) -> str:
        return ", ".join(self.expression(name, value, depth) for value in values)

    def _plain(self, name: str, value: Json) -> str:
        if len(literal := repr(value)) <= MAX_LITERAL:
            return literal
        self.imports.add("import json")
        file = self._path(name, "json", json.dumps(value).encode())
        return f"json.loads({file}.read_text())"

    def _write_typed(self, name: str, value: dict[str, Any], depth: int) -> str:
        kind = value["$"]
        form = FORMS.get(kind) if isinstance(kind, str) else None
        if form is None:
            raise ValueError(f"{str(kind)[:40]!r} is no kind of value")
        try:
            parts = self._parts(name, value, form, depth)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a value of kind {kind!r}: {error}") from None
        if "literal" in parts:
            return parts["literal"]
        self.imports |= set(form.imports)
        return form.source.format(**parts)

    def _parts(self, name: str, value: dict[str, Any], form: Form, depth: int) -> dict[str, str]:
        """Return the parts for the gaps of a kind's source, or the literal of a few bytes."""
        if form.data:
            content = _bytes(value[form.data])
            if form.kind is bytes and len(content) <= MAX_LITERAL:
                return {"literal": repr(content)}
            about = _array_type(value) if "dtype" in value else {}
            return {"file": self._file(name, form.suffix, content), **about}
        if "items" not in form.source:
            return {"text": repr(_text(value))}
        if value["$"] == "dict":
            pairs = ((self.expression(name, x, depth) for x in pair) for pair in value["items"])
            return {"items": ", ".join(f"{key}: {item}" for key, item in pairs)}
        return {"items": self._items(name, value["items"], depth)}

    def _path(self, name: str, suffix: str, content: bytes) -> str:
        self.imports.add("from pathlib import Path")
        return f"Path({self._file(name, suffix, content)})"

    def _file(self, name: str, suffix: str, content: bytes) -> str:
        same = sum(file.startswith((f"{name}.", f"{name}-")) for file in self.files)
        file = f"{name}-{same + 1}.{suffix}" if same else f"{name}.{suffix}"
        self.files[file] = content
        return f'"data/{file}"'


def _array_type(value: dict[str, Any]) -> dict[str, str]:
    dtype, shape = value["dtype"], tuple(value["shape"])
    if not _DTYPE.fullmatch(dtype) or not all(type(size) is int for size in shape):
        raise ValueError("the array has no plain type and shape")
    return {"dtype": dtype, "shape": str(shape)}


def _is_plain(value: Json) -> bool:
    """Whether a value is of JSON's own types all the way down, and can be written as it is."""
    if isinstance(value, dict):
        return "$" not in value and all(map(_is_plain, value.values()))
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return True


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _text(value: dict[str, Any]) -> str:
    if not isinstance(value["text"], str):
        raise ValueError("its text is not a string")  # noqa: TRY004 - damage, not a type
    return value["text"]
