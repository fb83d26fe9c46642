"""What the words of a question can be: marks from the vocabulary, and columns by their names.

A column is named by its whole name, by some of the name's words in any order, in the singular or
the plural, or in quotation marks. Words of the vocabulary alone name only a column that is called
exactly so. Every way to take every word is returned; a word that can be nothing is left over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from kernel_agent.offline.table import Column, Table, split_words
from kernel_agent.offline.words import LONGEST, PHRASES, SALES, SHORT

MOST_WAYS = 500
_TOKEN = re.compile(r'"([^"]+)"|“([^”]+)”|`([^`]+)`|(\w+)|([^\s\w.?!:;()\'’-]|-(?=\d))')


@dataclass(frozen=True, kw_only=True)
class Token:
    """A word as it was written; ``quoted`` where it is a name in quotation marks."""

    text: str
    quoted: bool = False

    @property
    def low(self) -> str:
        """The word as the vocabulary has it."""
        return self.text.lower()


@dataclass(frozen=True, kw_only=True)
class Mark:
    """One way to take some words: a letter of the vocabulary, or ``c`` for ``columns``."""

    letter: str
    text: str
    columns: tuple[Column, ...] = ()


def tokens_of(question: str) -> list[Token]:
    """Split a question into its words; a sign that is no punctuation is a word, too.

    Examples
    --------
    >>> [token.text for token in tokens_of('Total "unit price", by best-selling region?')]
    ['Total', 'unit price', ',', 'by', 'best', 'selling', 'region']
    """
    found = _TOKEN.finditer(question)
    return [
        Token(text=m[m.lastindex or 0], quoted=m.lastindex in (1, 2, 3)) for m in found
    ]


def left_over(tokens: Sequence[Token], table: Table) -> str:
    """Return the first word that can be nothing; empty where each can be something."""
    known = {at + i for at in range(len(tokens)) for size, _ in _options(tokens, at, table)
             for i in range(size)}  # fmt: skip
    return next((token.text for at, token in enumerate(tokens) if at not in known), "")


def ways(tokens: Sequence[Token], table: Table) -> Iterator[tuple[Mark, ...]]:
    """Yield every way to take all the words, the first :data:`MOST_WAYS` of them."""
    ends = {len(tokens)}  # from where a way leads to the end
    options: dict[int, list[tuple[int, tuple[Mark, ...]]]] = {}
    for at in reversed(range(len(tokens))):
        options[at] = [one for one in _options(tokens, at, table) if at + one[0] in ends]
        ends |= {at} if options[at] else set()

    def walk(at: int) -> Iterator[tuple[Mark, ...]]:
        if at == len(tokens):
            yield ()
        for size, marks in options.get(at, ()):
            for rest in walk(at + size):
                yield marks + rest

    return islice(walk(0), MOST_WAYS)


def _options(
    tokens: Sequence[Token], at: int, table: Table
) -> list[tuple[int, tuple[Mark, ...]]]:
    """Return what the words from a place on can be: how many of them, and their marks."""
    options: list[tuple[int, tuple[Mark, ...]]] = []
    for size in range(1, len(tokens) - at + 1):
        words = tokens[at : at + size]
        text = " ".join(word.low for word in words)
        if any(word.quoted for word in words[1:]) or (words[0].quoted and size > 1):
            break
        options += [
            (size, (Mark(letter="c", text=text, columns=(column,)),))
            for column in _named(words, table)
        ]
        if words[0].quoted:
            break
        if size <= LONGEST and (letters := PHRASES.get(tuple(word.low for word in words))) is not None:
            options += _of_vocabulary(letters, text, size, table)
        elif size == 1 and text.isdecimal() and 1 <= int(text[:6]) <= 1000:
            options.append((1, (Mark(letter="N", text=text),)))
        if size > 12:
            break
    return options


def _of_vocabulary(
    letters: str, text: str, size: int, table: Table
) -> Iterator[tuple[int, tuple[Mark, ...]]]:
    sold = tuple(c for c in table.columns if c.is_measure and SALES & set(c.words))
    if "Z" not in letters:
        yield size, tuple(Mark(letter=letter, text=text) for letter in letters)
    elif sold:  # a Z is a column, like any other, by what it stands for
        yield size, tuple(
            Mark(letter=x, text=text, columns=sold if x == "Z" else ()) for x in letters
        )


def _named(words: Sequence[Token], table: Table) -> list[Column]:
    """Return the columns that some words name: those called exactly so, else those in part."""
    if not table.is_whole:
        return []
    if words[0].quoted:
        return [c for c in table.columns if c.name == words[0].text]
    text = " ".join(word.text for word in words)
    same = [c for c in table.columns if c.name == text]
    said = split_words(text)
    same = same or [c for c in table.columns if c.words == said and said]
    if same or not said:
        return same
    telling = [w for w in words if (w.low,) not in PHRASES and not w.low.isdecimal()]
    if not telling or (words[0] not in telling) or (words[-1] not in telling):
        return []
    return [c for c in table.columns if all(_fits(word, c.words) for word in said)]


def _fits(word: str, name: Sequence[str]) -> bool:
    return word in name or SHORT.get(word) in name

