"""What the words of a question can be: marks from the vocabulary, and columns by their names.

A column is named by its whole name, by some of the name's words in any order, in the singular or
the plural, or in quotation marks. A word of the vocabulary alone names only a column that is called
exactly so. Every way to take every word is returned.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from kernel_agent.offline.table import Column, Table, split_words
from kernel_agent.offline.words import DERIVED, MONEY, PHRASES, SALES, SHORT

MOST_WAYS = 500
_LONGEST_NAME = 12  # words
_TOKEN = re.compile(r'"[^"]+"|“[^”]+”|\w+|[^\s\w.?!:;()\'\u2019"-]|-(?=\d)')


@dataclass(frozen=True, kw_only=True)
class Mark:
    """One way to take some words: a letter of the vocabulary, or ``c`` for a column."""

    letter: str
    text: str
    columns: tuple[Column, ...] = ()


_Option = tuple[int, tuple[Mark, ...]]  # how many words, and what they are


def tokens_of(question: str) -> list[str]:
    """Split a question into its words; a sign that is no punctuation is a word, too.

    Examples
    --------
    >>> tokens_of('Total "unit price", by best-selling region?')
    ['Total', '"unit price"', ',', 'by', 'best', 'selling', 'region']
    """
    return [match[0] for match in _TOKEN.finditer(question)]


def ways(tokens: Sequence[str], table: Table) -> list[tuple[Mark, ...]]:
    """Return every way to take all the words, up to :data:`MOST_WAYS` of them."""
    ends = {len(tokens)}  # from where a way leads to the end
    options: dict[int, list[_Option]] = {}
    for at in reversed(range(len(tokens))):
        options[at] = [one for one in _options(tokens[at:], table) if at + one[0] in ends]
        ends |= {at} if options[at] else set()

    def walk(at: int) -> Iterator[tuple[Mark, ...]]:
        if at == len(tokens):
            yield ()
        for size, marks in options.get(at, ()):
            for rest in walk(at + size):
                yield marks + rest

    return list(islice(walk(0), MOST_WAYS))


def left_over(tokens: Sequence[str], table: Table) -> str:
    """Return the first word that can be nothing; empty where each can be something."""
    known: set[int] = set()
    for at in range(len(tokens)):
        known |= {at + i for size, _ in _options(tokens[at:], table) for i in range(size)}
    return next((token for at, token in enumerate(tokens) if at not in known), "")


def _options(tokens: Sequence[str], table: Table) -> Iterator[_Option]:
    """Yield what the first of some words can be, alone and together with the next ones."""
    sold = tuple(c for c in table.columns if c.is_measure and _is_sold(set(c.words)))
    for size in range(1, min(len(tokens), _LONGEST_NAME) + 1):
        words = tokens[:size]
        text = " ".join(words).lower()
        if size > 1 and any(word[0] in '"“' for word in words):
            return
        for column in _named(words, table) if table.is_whole else ():
            yield size, (Mark(letter="c", text=text, columns=(column,)),)
        letters = PHRASES.get(text)
        if letters is not None and (sold or "Z" not in letters):
            columns = {"Z": sold}
            yield (
                size,
                tuple(Mark(letter=x, text=text, columns=columns.get(x, ())) for x in letters),
            )
        elif size == 1 and text.isdecimal() and 1 <= int(text[:6]) <= 1000:
            yield 1, (Mark(letter="N", text=text),)


def _is_sold(name: set[str]) -> bool:
    return bool(name & SALES) and name <= SALES | MONEY


def _named(words: Sequence[str], table: Table) -> list[Column]:
    """Return the columns that some words name: those called exactly so, else those in part."""
    if words[0][0] in '"“':
        return [column for column in table.columns if column.name == words[0][1:-1]]
    text = " ".join(words)
    if PHRASES.get(text.lower()) in ("", "A", "B", "O", "W", "b"):
        return []  # “in” is a column in quotation marks only
    said = split_words(text)
    same = [column for column in table.columns if column.name == text]
    same = same or [column for column in table.columns if column.words == said and said]
    if same or any(word.lower() in PHRASES or word.isdecimal() for word in (words[0], words[-1])):
        return same
    return [column for column in table.columns if said and _fits(said, column.words)]


def _fits(said: Sequence[str], name: Sequence[str]) -> bool:
    """Whether words are some of a name's, and the name without the others still means the same."""
    known = {SHORT[word] if SHORT.get(word) in name else word for word in said}
    return known <= set(name) and not DERIVED & (set(name) - known)
