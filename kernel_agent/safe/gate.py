"""Count what comes from a kernel or a server before decoding it: one gate for all of it.

For any request of n characters the host uses at most :data:`BASE` + :data:`EACH` n bytes, and its
event loop turns while they are made:

* lists, objects and items of JSON are counted first, :data:`NODES` at most: each costs many times
  its length, and pydantic names all that is wrong in one step of 2 µs an item;
* long texts in JSON are read in pieces, and what a typed form stands for is charged before a
  library unfolds it (:mod:`kernel_agent.inkernel.values`, :mod:`kernel_agent.inkernel.room`);
* all that is done in a thread; a thread keeps the loop turning only because no single step of it
  is long, since a step in C lets nothing else of the program run;
* a :class:`Pot` holds what is under way: one that would be too much waits for the others.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from json import decoder
from typing import Any

from kernel_agent.inkernel import Room, TooMuch
from kernel_agent.safe.text import json_items

Read = Callable[[str, int], tuple[Any, int]]
BASE = 64_000_000  # bytes that a request may become, however small it is
EACH = 20  # and for each of its characters
NODES = 150_000  # lists, objects and items; all of them wrong take pydantic 45 ms in one step
NODE_BYTES = 350  # a dict of one entry as it was read, as it was decoded, and as it was checked
QUICK_CHARS = 1_000_000  # of JSON without typed forms: read in a millisecond
QUICK_NODES = 500
QUICK_BYTES = 1_000_000  # of typed forms that need no library
WHOLE = 2_000_000  # characters of JSON that are read in one step; more text by text
SLICE = 1_000_000  # characters of one text that are read in one step

_INSIDE = re.compile(r'(?:[^"\\]++|\\u[0-9a-fA-F]{4}|\\[^u])*+')
_HALF = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\Z")  # the first half of a character
_SPACE = re.compile(r"[ \t\n\r]{0,1000000}+")
_NUMBER = re.compile(
    r"(-?(?:0|[1-9][0-9]{0,4299}+))(\.[0-9]{1,4299}+)?([eE][-+]?[0-9]{1,9}+)?(?![0-9])"
)
_WORDS = {
    "true": True, "false": False, "null": None,
    "NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf"),
}  # fmt: skip
_WORD = re.compile("|".join(_WORDS))
_scan_string: Callable[[str, int, bool], tuple[str, int]] = vars(decoder)["scanstring"]


def limit_of(chars: int) -> int:
    """Return how many bytes a request of so many characters may become."""
    return BASE + EACH * chars


def is_quick(text: str, nodes: int) -> bool:
    """Whether any JSON of this length is read, decoded and checked in a few milliseconds."""
    return len(text) <= QUICK_CHARS and nodes <= QUICK_NODES


def count(text: str | bytes) -> int:
    """Return the lists, objects and items of JSON.

    Raises
    ------
    ValueError
        They are more than anything is read with.
    """
    nodes = json_items(text, NODES)
    if nodes > NODES:
        raise ValueError(f"more than {NODES:,} items: send an array or a table")
    return nodes


def room_for(value: Any) -> Room:
    """Return the room for a value that was read already, charged with its JSON.

    Raises
    ------
    TooMuch
        No room: it is nearly all lists and objects.
    """
    chars = nodes = 0
    left = [value]
    while left:
        item = left.pop()
        nodes += isinstance(item, (list, dict))
        if isinstance(item, dict):
            left.extend(item)
            left.extend(item.values())
        elif isinstance(item, list):
            left.extend(item)
        chars += len(item) + 2 if isinstance(item, str) else 3
    room = Room(limit_of(chars))
    room.take(NODE_BYTES * nodes)
    return room


# --- JSON in short steps -------------------------------------------------------------------------


def read_json(text: str) -> Any:
    """Parse JSON; called in a thread where the text is long.

    Raises
    ------
    ValueError
        It is not JSON; RecursionError when it has no bottom.
    """
    if len(text) <= WHOLE:
        return json.loads(text)
    value, end = _value(text, _skip(text, 0))
    if _skip(text, end) != len(text):
        raise ValueError("more than one value")
    return value


def _value(text: str, at: int) -> tuple[Any, int]:
    """Read the value that begins here; the standard library does it in one step."""
    first = text[at : at + 1]
    if first == '"':
        return _string(text, at + 1)
    if first == "[":
        return _items(text, at + 1, "]", _value)
    if first == "{":
        pairs, end = _items(text, at + 1, "}", _pair)
        return dict(pairs), end
    if word := _WORD.match(text, at):
        return _WORDS[word[0]], word.end()
    number = _NUMBER.match(text, at)
    if number is None:
        raise ValueError("neither a value nor a number of a usual length")
    whole = number[2] is None and number[3] is None
    return (int if whole else float)(number[0]), number.end()


def _items(text: str, at: int, close: str, read: Read) -> tuple[list[Any], int]:
    """Read what stands between commas."""
    items: list[Any] = []
    at = _skip(text, at)
    if text.startswith(close, at):
        return items, at + 1
    while True:
        item, at = read(text, at)
        items.append(item)
        at = _skip(text, at)
        if text.startswith(close, at):
            return items, at + 1
        if not text.startswith(",", at):
            raise ValueError("no comma between two values")
        at = _skip(text, at + 1)


def _pair(text: str, at: int) -> tuple[tuple[str, Any], int]:
    if not text.startswith('"', at):
        raise ValueError("a name that is no text")
    name, at = _string(text, at + 1)
    at = _skip(text, at)
    if not text.startswith(":", at):
        raise ValueError("no colon after a name")
    value, at = _value(text, _skip(text, at + 1))
    return (name, value), at


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _string(text: str, at: int) -> tuple[str, int]:
    """Read a text, a slice at a time; a step over 32 million escapes would take 55 ms."""
    end = _pause(text, at)
    if text[end : end + 1] == '"':
        return _scan_string(text, at, True)  # noqa: FBT003 - strict; its place in the library
    pieces = []
    while end > at:
        pieces.append(_scan_string(f'{text[at:end]}"', 0, True)[0])  # noqa: FBT003
        at, end = end, _pause(text, end)
    if text[at : at + 1] != '"':
        raise ValueError("a text without an end")
    return "".join(pieces), at + 1


def _pause(text: str, at: int) -> int:
    """Return where a text can be cut: its end, or about a slice on, between two characters."""
    end = _inside(text, at, SLICE)
    while _HALF.search(text, max(at, end - 6), end) and text[end : end + 1] == "\\":
        end = _inside(text, end, 6)
    return end


def _inside(text: str, at: int, most: int) -> int:
    found = _INSIDE.match(text, at, at + most)
    return found.end() if found else at


# --- what is under way ---------------------------------------------------------------------------


class Charge:
    """A request's share of a pot; returned when the last holder lets go.

    A tool that was given up works on in its thread with what it was given: it holds the charge,
    too. Used on the event loop only.
    """

    def __init__(self, pot: Pot, chars: int) -> None:
        self._pot = pot
        self.chars = chars
        self.size = 0
        self._held = 1

    def hold(self) -> None:
        """Keep the charge until :meth:`drop`."""
        self._held += 1

    def drop(self) -> None:
        """Release the charge."""
        self._held -= 1
        if not self._held:
            self._pot.give_back(self)


HELD: ContextVar[Charge | None] = ContextVar("held", default=None)
"""The charge of the request that is being answered."""


class Pot:
    """Memory that a kernel's requests under way use together.

    They share :data:`BASE`, and each brings :data:`EACH` for its own characters. What does not fit
    waits until others are answered, in the order of arrival; that is never for each other, because
    a request is charged as a whole, and alone it fits or is refused.
    """

    def __init__(self) -> None:
        self._used = 0
        self._limit = BASE
        self._in_line = asyncio.Lock()
        self._changed = asyncio.Event()

    @property
    def used(self) -> int:
        """Bytes that are charged now."""
        return self._used

    def charge(self, chars: int) -> Charge:
        """Begin a request's charge; it is the caller's to drop."""
        self._limit += EACH * chars
        return Charge(self, chars)

    def give_back(self, charge: Charge) -> None:
        """Take a charge back; called by the charge."""
        self._used -= charge.size
        self._limit -= EACH * charge.chars
        self._changed.set()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait until earlier requests have taken what they need."""
        async with self._in_line:
            yield

    def room(self, charge: Charge, *, quick: bool = False) -> Room:
        """Return the room that a request has now, beside the others."""
        limit = min(limit_of(charge.chars), self._limit - self._used)
        return Room(min(limit, QUICK_BYTES) if quick else limit, quick=quick)

    def keep(self, charge: Charge, room: Room) -> None:
        """Charge the used part of a room."""
        charge.size += room.used
        self._used += room.used

    async def wait_for(self, charge: Charge, refused: TooMuch) -> None:
        """Wait until there is as much room as was wanted.

        Raises
        ------
        TooMuch
            There never will be: it is more than a request of this length may become.
        """
        if refused.wanted > limit_of(charge.chars):
            raise TooMuch(refused.wanted, limit_of(charge.chars))
        while self.room(charge).limit < refused.wanted:
            self._changed.clear()
            await self._changed.wait()
