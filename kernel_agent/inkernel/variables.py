"""Find the variables that a cell added, changed or removed, without running their code.

No ``__repr__``, ``__eq__``, ``__len__`` or property of a value is called: types are asked through
``type`` itself, contents are read through the C functions of built-in types and the buffers of
arrays and tables, attributes out of instance dictionaries. So a value that raises, sleeps or is
huge costs nothing and cannot lie about itself by accident.

Each value has two fingerprints. The *light* one is always taken: type, shape, and of each buffer
a sample of at most 128 kB. The *deep* one reads everything, as far as the bytes and items of one
look last (:data:`DEEP_BYTES`, :data:`DEEP_ITEMS`); the variables that the cell's source names come
first. What a deep look cannot afford is taken for changed when the source writes to it:
``big.loc[3, "x"] = 1`` is noticed, whatever its size.
"""

from __future__ import annotations

import ast
import re
import sys
import types
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

DEEP_BYTES = 4_000_000  # of buffers read whole in one look: 1.5 ms at the 2.6 GB/s of crc32
DEEP_ITEMS = 5_000  # items of lists, dicts and attributes visited in one look: 1-3 ms
PIECES = 32  # samples of a buffer
PIECE_BYTES = 4096
MAX_DEPTH = 4  # of containers within containers
MAX_VARIABLES = 1000  # looked at; a namespace with more is a table that missed its calling
MAX_REPORTED = 100  # of each kind of change in one report
IMPORTED = "imported"  # what is told as the type of a function or class of a module's
SHORT = 1000  # characters of text that are compared themselves

_NAME: Callable[[type], str] = type.__dict__["__name__"].__get__
_MODULE: Callable[[type], Any] = type.__dict__["__module__"].__get__
_MRO: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__
_DICT: Callable[[type], Any] = type.__dict__["__dict__"].__get__
_CONTAINERS = (list, tuple, set, frozenset, deque)
_IN_PLACE = frozenset({
    "append", "extend", "insert", "pop", "remove", "clear", "update", "setdefault", "add",
    "discard", "sort", "reverse", "fill", "resize", "itemset", "put", "partition", "byteswap",
    "setflags", "fit", "partial_fit",
})  # fmt: skip


class Seen(NamedTuple):
    """Fingerprint of a variable between two looks."""

    kind: str
    shape: str
    identity: int
    light: Any  # None: it has more items than could be visited
    deep: Any  # None: it was too much to read


class Variables:
    """The variables of a namespace, as they were at the last look.

    Parameters
    ----------
    namespace
        The kernel's ``user_ns``. What is in it now is the kernel's own and not reported, for as
        long as it is the same object.
    """

    def __init__(self, namespace: dict[str, Any]) -> None:
        self._namespace = namespace
        self._own = {name: id(value) for name, value in namespace.items()}
        self._seen: dict[str, Seen] = {}

    def look(self, source: str = "") -> dict[str, Any]:
        """Return the changes since the last look; called after each cell with its source.

        Returns
        -------
        dict
            ``added`` and ``changed``: lists of ``[name, type, shape]``; ``removed``: names;
            ``more``: how many changes are left out because there are too many.
        """
        before, now = self._seen, self._look(source)
        written = _Lazy(lambda: written_names(source))
        touched = {now[name].identity for name in written.of(now, before)}
        added = [name for name in now if name not in before]
        changed = [
            name
            for name, seen in now.items()
            if name in before and _differ(before[name], seen, touched)
        ]
        removed = [name for name in before if name not in now]
        self._seen = now
        left_out = sum(max(len(names) - MAX_REPORTED, 0) for names in (added, changed, removed))
        return {
            "added": [[n, now[n].kind, now[n].shape] for n in added[:MAX_REPORTED]],
            "changed": [[n, now[n].kind, now[n].shape] for n in changed[:MAX_REPORTED]],
            "removed": removed[:MAX_REPORTED],
            "more": left_out,
        }

    def _look(self, source: str) -> dict[str, Seen]:
        own = self._own
        names = [
            name
            for name, value in list(self._namespace.items())
            if type(name) is str and not name.startswith("_") and own.get(name) != id(value)
        ][:MAX_VARIABLES]
        allowance = _Allowance()
        # A name in the source may be in it by chance ("a" in "max"): that only changes the order.
        order = sorted(names, key=lambda name: name not in source)
        seen = {name: _see(self._namespace.get(name), allowance) for name in order}
        return {name: seen[name] for name in names}


class _Lazy:
    """The names that a cell writes to, parsed only when a value could not be read whole."""

    def __init__(self, find: Callable[[], set[str]]) -> None:
        self._find = find

    def of(self, now: dict[str, Seen], before: dict[str, Seen]) -> set[str]:
        unread = {n for n, seen in now.items() if n in before and _is_unread(before[n], seen)}
        return self._find() & set(now) if unread else set()


def _is_unread(before: Seen, now: Seen) -> bool:
    return before.deep is None or now.deep is None


def _differ(before: Seen, now: Seen, touched: set[int]) -> bool:
    if (before.kind, before.shape) != (now.kind, now.shape):
        return True
    if before.light is not None and now.light is not None and before.light != now.light:
        return True
    if _is_unread(before, now):
        return before.identity != now.identity or now.identity in touched
    return bool(before.deep != now.deep)


class _Allowance:
    """Reading allowance of one look."""

    def __init__(self) -> None:
        self.bytes = DEEP_BYTES
        self.items = DEEP_ITEMS


def _see(value: Any, allowance: _Allowance) -> Seen:
    kind, identity = IMPORTED if _is_imported(value) else _NAME(type(value)), id(value)
    reader = _Reader(allowance)
    light: Any
    deep: Any
    try:
        shape = _shape(value)
        structure = reader.walk(value, 0)
        light = (structure, reader.light()) if reader.affordable else None
        deep = reader.deep()
    except Exception:  # a library's internals may have changed: the object itself is left
        shape, light, deep = "", identity, None
    return Seen(kind, shape, identity, light, deep)


def _is_imported(value: Any) -> bool:
    """Whether it is a function or class that no cell has made."""
    cls = type(value)
    if issubclass(cls, type):
        return bool(_MODULE(value) != "__main__")
    if cls in (types.FunctionType, types.BuiltinFunctionType):
        return value.__module__ not in ("__main__", None)
    return False


# --- shape ---------------------------------------------------------------------------------


def _shape(value: Any) -> str:
    cls = type(value)
    table = _table_class(cls)
    if table is not None:
        axes = _attribute(value, "_mgr").axes  # the columns first
        return " x ".join(str(len(axis)) for axis in reversed(axes))
    numpy = sys.modules.get("numpy")
    if numpy is not None and cls is numpy.ndarray:
        return " x ".join(map(str, value.shape)) + f" {value.dtype.name}"
    if cls is str:
        return f"{len(value)} characters"
    if cls in (bytes, bytearray):
        return f"{len(value)} bytes"
    for base in (*_CONTAINERS, dict):
        if issubclass(cls, base):
            return f"{base.__len__(value)} items"
    return ""


# --- fingerprints --------------------------------------------------------------------------


class _Reader:
    """Collects the parts of a value: a structure of plain values, and buffers."""

    def __init__(self, allowance: _Allowance) -> None:
        self._allowance = allowance
        self._buffers: list[Any] = []
        self._on_path: set[int] = set()
        self.affordable = True
        """Whether every item could be visited."""

    def light(self) -> tuple[int, ...]:
        """Return checksums of samples of the buffers."""
        return tuple(_sample(buffer) for buffer in self._buffers)

    def deep(self) -> tuple[int, ...] | None:
        """Return checksums of the whole buffers, or None when that is too much to read."""
        size = sum(buffer.nbytes for buffer in self._buffers)
        if not self.affordable or size > self._allowance.bytes:
            return None
        self._allowance.bytes -= size
        return tuple(_checksum(buffer) for buffer in self._buffers)

    def walk(self, value: Any, depth: int) -> Any:  # noqa: PLR0911 - one line a kind of value
        """Return the value's structure, which can be compared without calling its code."""
        self._allowance.items -= 1
        if self._allowance.items < 0:
            self.affordable = False
            return None
        cls = type(value)
        if value is None or cls in (bool, float, complex, range, type(...)):
            return (_NAME(cls), repr(value))  # of these types the repr is Python's own
        if cls is int:
            return value if value.bit_length() < 10_000 else (value.bit_length(), id(value))
        if cls in (str, bytes):
            if len(value) <= SHORT:
                return value
            whole = hash(value) if len(value) < DEEP_BYTES else id(value)
            return (len(value), value[:SHORT], value[-SHORT:], whole)
        if cls is bytearray:
            self._buffers.append(memoryview(value))
            return len(value)
        if cls is types.FunctionType:
            return ("function", hash(value.__code__))
        if issubclass(cls, type | types.ModuleType | types.BuiltinFunctionType):
            return ("object", id(value))
        if depth >= MAX_DEPTH or id(value) in self._on_path:
            return ("object", id(value))
        self._on_path.add(id(value))
        try:
            return self._walk_inside(value, cls, depth + 1)
        finally:
            self._on_path.discard(id(value))

    def _walk_inside(self, value: Any, cls: type, depth: int) -> Any:  # noqa: PLR0911 - as above
        numpy = sys.modules.get("numpy")
        if numpy is not None and cls is numpy.ndarray:
            return self._array(value)
        if numpy is not None and issubclass(cls, numpy.generic):
            return (_NAME(cls), numpy.generic.tobytes(value))
        if _table_class(cls) is not None:
            return self._table(value)
        if str(_MODULE(cls)).startswith("pyarrow."):
            return self._arrow(value)
        if issubclass(cls, dict):
            return [
                (self.walk(k, depth), self.walk(v, depth))
                for k, v in self._affordable(dict.items(value))
            ]
        for base in _CONTAINERS:
            if issubclass(cls, base):
                return [self.walk(item, depth) for item in self._affordable(base.__iter__(value))]
        inside = _instance_dict(value, cls)
        if inside is None:
            return ("object", id(value))
        return (
            id(value),
            [(k, self.walk(v, depth)) for k, v in self._affordable(dict.items(inside))],
        )

    def _affordable(self, items: Any) -> Iterator[Any]:
        for item in items:
            if not self.affordable:
                return
            yield item

    def _array(self, array: Any) -> Any:
        self._buffers.append(array)
        return ("array", array.dtype.str, array.shape)

    def _table(self, table: Any) -> Any:
        """Walk a DataFrame or Series through its block manager."""
        manager = _attribute(table, "_mgr")
        axes = [self._column(axis) for axis in manager.axes]
        return (axes, [self._column(block.values) for block in manager.blocks])

    def _column(self, values: Any) -> Any:
        """Walk an index, or a block's content: an array or one of the extension arrays."""
        cls = type(values)
        numpy = sys.modules["numpy"]
        if cls is numpy.ndarray:
            return self._array(values)
        if cls in (range, str, type(None)):
            return str(values)
        if str(_MODULE(cls)).startswith("pyarrow"):
            return self._arrow(values)
        if issubclass(cls, list | tuple):
            return [self._column(value) for value in values]
        names = ("_range", "_name") if type(getattr(values, "_range", None)) is range else _PARTS
        parts = [getattr(values, name, None) for name in names]  # a range would make its "_data"
        parts.append(getattr(getattr(values, "_dtype", None), "_categories", None))
        found = [self._column(part) for part in parts if part is not None]
        return (_NAME(cls), found or id(values))

    def _arrow(self, values: Any) -> Any:
        """Walk an arrow array, chunked or not; a table is immutable and identified by itself."""
        chunks = getattr(values, "chunks", None)
        if chunks is None:
            return ("object", id(values))
        for chunk in chunks:
            self._buffers += [memoryview(b) for b in chunk.buffers() if b is not None]
        return [(len(chunk), chunk.offset) for chunk in chunks]


# Where pandas' index and extension array classes keep their data, of all its versions since 2.0.
_PARTS = ("_range", "_ndarray", "_data", "_mask", "_codes", "_pa_array", "_levels",
          "_left", "_right", "_sparse_values", "_name", "_names")  # fmt: skip


def _checksum(buffer: Any) -> int:
    return zlib.crc32(_bytes_of(buffer))


def _sample(buffer: Any) -> int:
    """Return a checksum of pieces from all over a buffer; of all of it when it is small."""
    if buffer.nbytes <= PIECES * PIECE_BYTES:
        return _checksum(buffer)
    flat = _flat(buffer)
    length = len(flat)
    piece = max(PIECE_BYTES * length // buffer.nbytes, 1)
    starts = [(length - piece) * i // (PIECES - 1) for i in range(PIECES)]
    checksum = 0
    for start in starts:
        checksum = zlib.crc32(_bytes_of(flat[start : start + piece]), checksum)
    return checksum


def _flat(buffer: Any) -> Any:
    if isinstance(buffer, memoryview):
        return buffer.cast("B")
    if buffer.flags.forc:
        return buffer.ravel(order="K")
    return buffer  # a strided one: its rows are its pieces


def _bytes_of(buffer: Any) -> Any:
    """Return the memory of an array as bytes, without a copy where that is possible."""
    if isinstance(buffer, memoryview):
        return buffer
    if buffer.dtype.hasobject or not buffer.flags.forc or not buffer.size:
        return buffer.tobytes()  # of objects: their addresses
    return buffer.ravel(order="K").view("u1")


# --- reading without asking ----------------------------------------------------------------


def _table_class(cls: type) -> type | None:
    """Return pandas' own class when this is a DataFrame or Series, or derived from one."""
    pandas = sys.modules.get("pandas")
    for name in ("DataFrame", "Series"):
        base = getattr(pandas, name, None)
        if type(base) is type and issubclass(cls, base):
            return base
    return None


def _attribute(value: Any, name: str) -> Any:
    """Return an instance's own attribute, or raise where a class could answer in its place."""
    if any(name in _DICT(cls) for cls in _MRO(type(value))):
        raise AttributeError(name)
    return object.__getattribute__(value, name)


def _instance_dict(value: Any, cls: type) -> dict[Any, Any] | None:
    for base in _MRO(cls):
        descriptor = _DICT(base).get("__dict__")
        if descriptor is not None:
            if type(descriptor) is not types.GetSetDescriptorType:
                return None  # a property: somebody's code
            inside = descriptor.__get__(value)
            return inside if type(inside) is dict else None
    return None


# --- what a cell writes to -----------------------------------------------------------------


def written_names(source: str) -> set[str]:
    """Return the variables that a cell's source assigns, or changes in place, as far as it shows.

    Examples
    --------
    >>> sorted(written_names("df.loc[3, 'x'] = 1; rows.append(2); big.drop(3, inplace=True)"))
    ['big', 'df', 'rows']
    """
    # Magics and shell commands are no Python, and write to no variable in place.
    source = re.sub(r"^[ \t]*[%!].*$", "pass", source, flags=re.MULTILINE)
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # nonsense, or a cell magic
        return set()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
            if not isinstance(node.ctx, ast.Load):
                names |= _root(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            in_place = any(
                k.arg in ("inplace", "out") and getattr(k.value, "value", True)
                for k in node.keywords
            )
            if in_place or node.func.attr in _IN_PLACE:
                names |= _root(node.func)
    return names


def _root(node: ast.expr) -> set[str]:
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return {node.id} if isinstance(node, ast.Name) else set()
