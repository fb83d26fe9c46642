"""Find the blocks of code in a reply that mixes thought and code.

One pass over the marks, left to right. Outside of a block marks have meaning; inside of a block
they are text, so that ``"</code>"``, ```` ``` ```` or ``Output:`` in a string cuts nothing:

- ``<think>`` and its kin hide everything up to their end, or to the end of the reply; a closing
  tag alone hides everything before it. Blocks inside ``<thought>…</thought>`` are drafts.
- A tag such as ``<execute>``, ``<code>``, ``<python>``, or a fence, opens a block. It ends at the
  first closer with which it compiles, or else at the first closer. Closing fences
  follow CommonMark (same character, at least as long, nothing else on the line), and a fence at
  the end of a line of code is a closer of last resort.
- A call whose arguments are tags (``<function=python>…``) is no block, and nothing in it is one.
- After a block or a call, a line that begins with ``Observation:``, ``Output:`` or a role such as
  ``User:``, a fence tagged ``output`` and a template's end of turn are invented: the reply ends
  there.

A block that never closes is **open**, unless something shows that its code was finished: another
mark or a sentence of prose follows, and the code before it compiles; or its closer was begun
(``</execute`` at the very end). What is left of an open block often compiles although it was cut
off (``total += g``, ``return``, ``plt``): of the recorded turns, every one that ends in an open
block had run into a token limit, and half of them compile.

Guesses are paid from an allowance and marks are counted, so that the work is linear in the length
of the reply.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kernel_agent.formats.reading.delimiters import (
    PYTHON_CHANNEL,
    TAG_SPACE,
    TEMPLATE_PYTHON,
    Mark,
    find_marks,
)
from kernel_agent.formats.reading.prose import is_prose, without_first_label, without_labels
from kernel_agent.formats.reading.source import (
    MAX_CODE_CHARS,
    PLACEHOLDERS,
    Trials,
    is_blank,
    is_evidently_code,
    makes_a_call,
    tidy,
    unwrap,
)

RANK_MARKED = 3
"""The rank of a block that a fence or a tag marks as Python."""

_MAX_ENDS = 8  # ends tried for one block: no string literal seen held more closers than two


@dataclass(frozen=True, kw_only=True)
class Block:
    """A block of code: its source, its place, and how much its delimiters promise.

    ``rank`` is 3 for what is marked as code, 2 for an untagged fence, 1 for code inside an answer
    or quoted in a sentence: a lower rank is read only when there is no higher one. Quoted without
    a call (``<code>E = m * c ** 2</code>``) is a formula and no block. ``open`` means
    that nothing shows that the code was written to its end.
    """

    source: str
    start: int
    end: int
    rank: int = RANK_MARKED
    open: bool = False


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """The parts of a reply.

    ``hidden`` are the spans of reasoning and drafts, ``thoughts`` those of ``<thought>``,
    ``turns`` the places where an invented turn begins, ``end`` the place of the one that ends the
    reply (or its length), ``languages`` those of the fences that are not Python, ``calls`` the
    spans of calls whose arguments are tags.
    """

    text: str
    blocks: tuple[Block, ...]
    hidden: tuple[tuple[int, int], ...]
    thoughts: tuple[tuple[int, int], ...]
    turns: tuple[int, ...]
    end: int
    languages: tuple[str, ...]
    calls: tuple[tuple[int, int], ...]

    @property
    def chosen(self) -> Block | None:
        """The block to run: the last one of the highest rank."""
        return max(self.blocks, key=lambda b: (b.rank, b.start), default=None)

    @property
    def complete(self) -> Block | None:
        """The last block that is marked as code and was written to its end."""
        marked = (b for b in self.blocks if b.rank == RANK_MARKED and not b.open)
        return max(marked, key=lambda b: b.start, default=None)

    def prose(self, end: int) -> str:
        """Return the visible text before ``end``, without blocks, reasoning and role labels."""
        blocks = ((block.start, block.end) for block in self.blocks)
        return without_labels(self._without([*self.hidden, *blocks], end))

    def outside_thoughts(self, end: int) -> str:
        """Return the visible text before ``end`` that is not marked as a thought."""
        return without_first_label(self._without([*self.hidden, *self.thoughts], end))

    def marked_thoughts(self, end: int) -> str:
        """Return the visible text before ``end`` that is marked as a thought."""
        spans = (span for span in self.thoughts if span[1] <= end)
        return without_labels("\n\n".join(self.text[start:stop] for start, stop in spans))

    def _without(self, spans: list[tuple[int, int]], end: int) -> str:
        pieces, at = [], 0
        for start, stop in sorted(spans):
            pieces.append(self.text[at : min(start, end)])
            at = max(at, min(stop, end))
        return "".join([*pieces, self.text[at:end]])


def find_blocks(text: str) -> Blocks:
    """Find every block of a reply.

    Raises
    ------
    FormatError
        ``malformed``, when there are more delimiters than a reply can mean. The model's fault.
    """
    return _Scanner(text).scan()


class _Scanner:
    """The pass. Each reader takes the index of a mark and returns the index to go on with."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.marks = find_marks(text)
        self.index = _Index(self.marks)
        self.trials = Trials()
        self.blocks: list[Block] = []
        self.hidden: list[tuple[int, int]] = []
        self.thoughts: list[tuple[int, int]] = []
        self.languages: list[str] = []
        self.calls: list[tuple[int, int]] = []
        self.end = len(text)
        self.thought_from: tuple[int, int] | None = None
        self.in_answer = False

    def scan(self) -> Blocks:
        readers = {
            "reasoning": self.reasoning, "thought": self.thought, "answer": self.answer,
            "turn": self.turn, "code": self.tag, "fence": self.fence, "midline": self.fence,
            "call": self.call,
        }  # fmt: skip
        i = 0
        while i < len(self.marks):
            i = readers[self.marks[i].kind](i)
        return Blocks(
            text=self.text,
            blocks=tuple(self.blocks),
            hidden=tuple(self.hidden),
            thoughts=tuple(self.thoughts),
            turns=tuple(m.start for m in self.marks if m.kind == "turn" and m.name != "#"),
            end=self.end,
            languages=tuple(self.languages),
            calls=tuple(self.calls),
        )

    def reasoning(self, i: int) -> int:
        if self.marks[i].closing:
            self.blocks.clear()
            self.calls.clear()
            self.thought_from = None
            self.hidden.append((0, self.marks[i].end))
            return i + 1
        closer = next(self.index.after("reasoning end", i), None)
        if closer is None:
            self.hidden.append((self.marks[i].start, self.end))
            return len(self.marks)
        opens = self.marks[closer].kind == "code"
        end = self.marks[closer].start if opens else self.marks[closer].end
        self.hidden.append((self.marks[i].start, end))
        return closer if opens else closer + 1

    def thought(self, i: int) -> int:
        if not self.marks[i].closing:
            self.thought_from = (self.marks[i].start, len(self.blocks))
        elif self.thought_from is not None:
            start, drafts_from = self.thought_from
            self.hidden += [(block.start, block.end) for block in self.blocks[drafts_from:]]
            del self.blocks[drafts_from:]
            self.calls = [call for call in self.calls if call[0] < start]
            self.thoughts.append((start, self.marks[i].end))
            self.thought_from = None
        return i + 1

    def answer(self, i: int) -> int:
        opens = not self.marks[i].closing
        self.in_answer = opens and next(self.index.after("answer end", i), None) is not None
        return i + 1

    def turn(self, i: int) -> int:
        if not self.blocks and not self.calls:
            return i + 1
        if (closer := self.index.headless_end(i)) is not None:
            return closer  # it was invented while thinking, and the reply is still to come
        self.end = self.marks[i].start
        return len(self.marks)

    def call(self, i: int) -> int:
        """Read a call whose arguments are tags; one that never closes runs to the end."""
        mark = self.marks[i]
        closer = None if mark.closing else next(self.index.after(f"</{mark.name}>", i), None)
        if mark.closing or (closer is None and not _ARGUMENT_NEXT.match(self.text, mark.end)):
            return i + 1
        stop = len(self.text) if closer is None else self.marks[closer].end
        self.calls.append((mark.start, stop))
        self.hidden.append((mark.start, stop))
        return len(self.marks) if closer is None else closer + 1

    def tag(self, i: int) -> int:
        mark = self.marks[i]
        if mark.closing:
            return i + 1
        ends = "token" if mark.name in TEMPLATE_PYTHON else f"</{mark.name}>"
        closers = list(self.index.after(ends, i, limit=_MAX_ENDS))
        if closers and self.text.find("\n", mark.end, self.marks[closers[0]].start) >= 0:
            # A closer on its own line is the likelier one: it is not inside of a comment.
            closers.sort(key=lambda j: not self.begins_line(self.marks[j].start))
        first = min(closers, default=len(self.marks))
        if (end := self.first_end(i, closers)) is not None:
            return self.add(i, end, end + 1)
        if (end := self.first_end(i, self.endings(i, before=first))) is not None:
            return self.add(i, end, end)
        return self.read_broken_tag(i, first if closers else None)

    def read_broken_tag(self, i: int, closer: int | None) -> int:
        """Read a tag with whose content no end compiles: perhaps it opens no block at all."""
        mark = self.marks[i]
        if closer is not None and (inner := self.index.last("opener", i, before=closer)):
            return inner
        if _FENCE_NEXT.match(self.text, mark.end):
            return i + 1
        if closer is not None:
            return self.add(i, closer, closer + 1)
        mentioned = mark.name != PYTHON_CHANNEL and self.is_mention(mark)
        return i + 1 if mentioned else self.read_unclosed(i)

    def fence(self, i: int) -> int:
        mark = self.marks[i]
        if mark.kind == "fence" and mark.fence[0] == "`" and "`" in mark.name:
            return self.one_line(i)
        if mark.kind == "midline" and mark.language == "none":
            return i + 1
        closers = list(self.closing_fences(i))
        if mark.language == "python":
            return self.python_fence(i, closers)
        if mark.invents and (self.blocks or self.calls):
            return self.turn(i)
        if mark.language == "other":
            self.languages.append(mark.name.split()[0])
            return closers[0] + 1 if closers else len(self.marks)
        return self.read_untagged_fence(i, closers)

    def read_untagged_fence(self, i: int, closers: list[int]) -> int:
        """Read a fence that may hold code, output or anything else; its first closer ends it."""
        if not closers:
            return self.read_unclosed(i, rank=RANK_MARKED - 1)
        source = self.source(self.marks[i], self.marks[closers[0]].start)
        if self.trials.compiles(source) and is_evidently_code(source):
            return self.add(i, closers[0], closers[0] + 1, rank=RANK_MARKED - 1)
        return closers[0] + 1

    def python_fence(self, i: int, closers: list[int]) -> int:
        first = min(closers, default=len(self.marks))
        if (end := self.first_end(i, closers)) is not None:
            return self.add(i, end, end + 1)
        if (end := self.first_end(i, self.index.after("line end", i))) is not None:
            return self.add(i, end, end + 1)
        if (end := self.first_end(i, self.endings(i, before=first))) is not None:
            return self.add(i, end, end)
        if next(self.index.after("reasoning end", i, before=first), None) is not None:
            return i + 1  # a draft that was given up: the reasoning it stands in ends later
        if closers:
            return self.add(i, first, first + 1)
        return self.read_unclosed(i)

    def endings(self, i: int, *, before: int) -> Iterator[int]:
        """Yield marks that show where the code ended although its own closer is missing."""
        for j in self.index.after("ending", i, before=before):
            mark = self.marks[j]
            anywhere = (mark.kind == "code" and mark.closing) or mark.name == "token"
            if anywhere or self.begins_line(mark.start):
                yield j

    def closing_fences(self, i: int) -> Iterator[int]:
        opener, found = self.marks[i], 0
        for j in self.index.after("bare fence", i, limit=None):
            if self.marks[j].fence.startswith(opener.fence):
                yield j
                found += 1
            if found == _MAX_ENDS:
                return

    def one_line(self, i: int) -> int:
        """Read ```` ```python print(1)``` ````; any other fence with backticks is no fence."""
        mark = self.marks[i]
        language, _, rest = mark.name.removesuffix(mark.fence).partition(" ")
        opener = Mark(kind="fence", start=0, end=0, name=language)
        complete = mark.name.endswith(mark.fence) and opener.language == "python"
        if complete and "`" not in rest and not is_blank(rest):
            self.blocks.append(Block(source=tidy(rest), start=mark.start, end=mark.end))
        return i + 1

    def read_unclosed(self, i: int, rank: int = RANK_MARKED) -> int:
        """Read the block that runs to the end of the reply; nothing can follow it."""
        mark = self.marks[i]
        body = self.text[mark.end :]
        begun = _begun_closer(body, mark)
        if begun or rank < RANK_MARKED or (finished := self.before_prose(body)) is None:
            source = unwrap(_outdent(body[: len(body) - begun], mark))
            is_open = not begun
        else:
            source, is_open = finished, False
        if rank == RANK_MARKED or (source and not is_prose(source.partition("\n")[0])):
            self.append(mark, source, len(self.text), rank=rank, is_open=is_open)
        return len(self.marks)

    def before_prose(self, body: str) -> str | None:
        """Return the code before the first sentence of prose, when it compiles there."""
        at = tries = 0
        for line in body.splitlines(keepends=True):
            # The last word may be cut short: "a and b o" is not yet prose.
            if is_prose(line if line.endswith("\n") else line.rpartition(" ")[0]):
                source = unwrap(body[:at])
                tries += 1
                if self.trials.compiles(source):
                    return source
            if tries == _MAX_ENDS or at > MAX_CODE_CHARS:
                return None
            at += len(line)
        return None

    def first_end(self, i: int, candidates: Iterable[int]) -> int | None:
        """Return the first of some marks at which the block that opens at mark i compiles."""
        for j in candidates:
            start, stop = self.marks[i].end, self.marks[j].start
            if self.trials.affords(stop - start) and self.trials.compiles(
                self.source(self.marks[i], stop)
            ):
                return j
        return None

    def add(self, i: int, end: int, go_on: int, *, rank: int = RANK_MARKED) -> int:
        """Add the block from mark i to mark ``end``, unless there is nothing in it."""
        mark, closer = self.marks[i], self.marks[end]
        stop = closer.end if go_on > end else closer.start
        source = self.source(mark, closer.start)
        if rank == RANK_MARKED and self.is_quoted(mark, closer):
            if not makes_a_call(source):
                return go_on
            rank = 1
        if source and source not in PLACEHOLDERS:  # "<execute>...</execute>" only shows the form
            self.append(mark, source, stop, rank=rank, is_open=False)
        return go_on

    def append(self, mark: Mark, source: str, stop: int, *, rank: int, is_open: bool) -> None:
        if self.in_answer:
            if rank < RANK_MARKED:
                return
            rank = 1
        self.blocks.append(
            Block(source=source, start=mark.start, end=stop, rank=rank, open=is_open)
        )

    def source(self, opener: Mark, stop: int) -> str:
        return unwrap(_outdent(self.text[opener.end : stop], opener))

    def begins_line(self, at: int) -> bool:
        before = self.text[max(at - _MAX_INDENT, 0) : at]
        blank = not before.rpartition("\n")[2].strip()
        return blank and ("\n" in before or at <= _MAX_INDENT)

    def is_quoted(self, opener: Mark, closer: Mark) -> bool:
        """Whether this is HTML's ``<code>`` in a sentence rather than a block of code."""
        one_line = self.text.find("\n", opener.end, closer.start) < 0
        return one_line and opener.name in {"code", "py"} and not self.begins_line(opener.start)

    def is_mention(self, mark: Mark) -> bool:
        """Whether a tag that never closes is spoken about: a sentence goes on after it."""
        rest = self.text[mark.end : mark.end + _MAX_INDENT].partition("\n")[0]
        return not self.begins_line(mark.start) and bool(rest.strip())


class _Index:
    """Indices of marks by the role that they can play, to find the next one without a search."""

    def __init__(self, marks: list[Mark]) -> None:
        self._roles: dict[str, list[int]] = {}
        for i, mark in enumerate(marks):
            for role in _roles(mark):
                self._roles.setdefault(role, []).append(i)

    def after(
        self, role: str, i: int, *, before: int | None = None, limit: int | None = _MAX_ENDS
    ) -> Iterator[int]:
        """Yield the next marks of a role after mark i, at most ``limit``."""
        places = self._roles.get(role, [])
        start = bisect_right(places, i)
        stop = len(places) if before is None else bisect_right(places, before - 1)
        if limit is not None:
            stop = min(stop, start + limit)
        for at in range(start, stop):
            yield places[at]

    def headless_end(self, i: int) -> int | None:
        """Return the mark that ends reasoning in which mark i stands, when none begins after it."""
        closer = next(self.after("reasoning end", i), None)
        opener = next(self.after("reasoning start", i), None)
        return None if closer is None or (opener is not None and opener < closer) else closer

    def last(self, role: str, i: int, *, before: int) -> int | None:
        """Return the last mark of a role after mark i and before another."""
        places = self._roles.get(role, [])
        at = bisect_right(places, before - 1) - 1
        return places[at] if at >= 0 and places[at] > i else None


def _roles(mark: Mark) -> Iterator[str]:
    if mark.kind in {"code", "call"} and mark.closing:
        yield f"</{mark.name}>"
    if mark.kind == "code" and not mark.closing:
        yield "opener"
    if mark.kind == "reasoning":
        yield "reasoning end" if mark.closing else "reasoning start"
    if mark.name == "token":
        yield "token"
    if mark.name == PYTHON_CHANNEL:
        yield "reasoning end"
    if mark.kind == "fence" and not mark.name:
        yield "bare fence"
    if mark.kind == "midline" and not mark.name:
        yield "line end"
    if mark.kind == "answer" and mark.closing:
        yield "answer end"
    speaks = mark.kind in {"thought", "answer"} or (mark.kind == "turn" and mark.name != "#")
    if mark.closing or speaks or (mark.kind == "fence" and not mark.name):
        yield "ending"


_ARGUMENT_NEXT = re.compile(rf"\s{{0,200}}(?:\{{|<{TAG_SPACE}(?:parameter|arg_key)\b)")
_FENCE_NEXT = re.compile(r"\s{0,200}(?:```|~~~)")
_MAX_INDENT = 200


def _outdent(body: str, opener: Mark) -> str:
    """Take the indent of an indented fence from each line, as CommonMark does."""
    if not opener.indent:
        return body
    return re.sub(rf"^[^\S\n]{{1,{min(opener.indent, 80)}}}", "", body, flags=re.MULTILINE)


def _begun_closer(body: str, opener: Mark) -> int:
    """Return the length of a closing tag that the end of the reply cut short, or 0."""
    stripped = body.rstrip()
    at = stripped.rfind("</", -20)
    begun = opener.kind == "code" and at >= 0 and len(stripped) - at > 2
    return len(body) - at if begun and f"</{opener.name}>".startswith(stripped[at:].lower()) else 0
