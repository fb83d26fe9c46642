"""Match words to columns and values: literally, in another form, in part, or misspelt."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from kernel_agent.offline.schema import Column, Table, Value, singular, split_name
from kernel_agent.offline.words import (
    CUES,
    NUMBER_WORDS,
    PHRASES,
    SAME,
    STOP,
    TELLING,
    VALUE_WORDS,
)  # fmt: skip

_TOKEN = re.compile(
    r"""["\u201c](?P<quote>[^"\u201d]+)["\u201d]"""
    r"""|(?<!\w)['\u2018](?P<single>[^'\u2019]+)['\u2019](?!\w)"""
    r"|(?P<date>\d{4}-\d{1,2}(?:-\d{1,2})?(?!\d))"
    r"|(?P<number>(?<![\w.])-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?)"
    r"|(?P<op>!=|>=|<=|==|[><=%≥≤&]|(?<=\s)[-+*/^](?=\s))|(?P<word>[^\W_]+(?:['\u2019][a-z]+)?)"
)
_INNER = {"of", "the", "per", "in", "and", "a"}


@dataclass(frozen=True, kw_only=True)
class Token:
    """A word, a number, a date, an operator or a quotation, with its lower-case form."""

    text: str
    low: str
    kind: str = "word"
    number: float | None = None


def tokens_of(text: str) -> list[Token]:
    """Cut a text into tokens; names such as ``body_mass`` and ``sepalLength`` into their words."""
    tokens: list[Token] = []
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or "word"
        piece = match[0]
        if kind in ("quote", "single"):
            said = match["quote"] or match["single"]
            tokens.append(Token(text=said, low=said.lower(), kind="quote"))
        elif kind == "number":
            tokens.append(Token(text=piece, low=piece, kind=kind, number=_number(piece)))
        elif kind in ("date", "op"):
            tokens.append(Token(text=piece, low=piece, kind=kind))
        else:
            tokens += _words(piece)
    return tokens


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def _words(piece: str) -> Iterator[Token]:
    plain = piece.replace("\u2019", "'")
    low = plain.lower()
    if low.endswith("'s") and low != "what's":
        plain = plain[:-2]
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", plain)
    for word in spaced.split():
        number = NUMBER_WORDS.get(word.lower())
        if number is not None and number > 1:
            yield Token(text=word, low=word.lower(), kind="number", number=float(number))
        else:
            yield Token(text=word, low=word.lower())


@lru_cache(maxsize=4096)
def canonical(word: str) -> str:
    """Return the form that words of the same meaning share (``temps`` -> ``temperature``)."""
    one = singular(word.lower())
    return SAME.get(one, SAME.get(word.lower(), one))


def columns_named(low: tuple[str, ...], table: Table) -> tuple[int, tuple[Column, ...]]:
    """Find the columns that a span names best, and how well (see :func:`_rank`)."""
    if low[0] in _INNER or low[-1] in _INNER:
        if len(low) == 1 and low[0] not in (c.name.lower() for c in table.columns if c.name):
            return 0, ()
        if len(low) > 1:
            return 0, ()
    span = _Span(low)
    ranked: dict[int, list[Column]] = {}
    for column in table.columns:
        rank = _rank(span, column)
        if rank:
            ranked.setdefault(rank, []).append(column)
    best = max(ranked, default=0)
    return best, tuple(ranked.get(best, ()))


class _Span:
    """Words that may name a column, and what is asked of them for each of the columns."""

    def __init__(self, low: tuple[str, ...]) -> None:
        self.low, self.joined = low, "".join(low)
        self.content = tuple(w for w in low if w not in _INNER) or low
        self.name = _Name(self.content)
        self.once = len(self.name.meanings) == len(self.content)
        self.phrases = _phrase_meanings(self.content, tuple(map(singular, self.content)))
        self.weightless = all(w in STOP or (w,) in CUES or w.isdigit() for w in self.content)


class _Name:
    """The words of a name in the forms in which two names are compared."""

    def __init__(self, words: tuple[str, ...]) -> None:
        self.words, self.joined = words, "".join(words)
        self.singulars = sorted(map(singular, words))
        self.meanings = frozenset(map(canonical, words))


_name = lru_cache(maxsize=4096)(_Name)  # columns are compared with each span of a question


def _rank(span: _Span, column: Column) -> int:
    """Rate how well words fit a column: 6 literally ... 2 by synonyms, 1 in part, 0 not at all."""
    said, own = span.name, _name(column.words)
    if span.low == (full := split_name(column.name)) or span.joined == _name(full).joined:
        return 6
    if said.joined == own.joined:
        return 5
    if said.singulars == own.singulars:
        return 4
    if not span.once:
        return 0
    akin = not said.meanings.isdisjoint(own.meanings)
    grades = (
        (3, akin and (said.meanings == own.meanings or _prefixed(said.words, own.words))),
        (2, own.meanings in span.phrases),
    )
    return next((grade for grade, holds in grades if holds), int(_partly(span, own, column)))


def _phrase_meanings(*spans: tuple[str, ...]) -> list[frozenset[str]]:
    """Return what the vocabulary's set phrases mean, as words of columns."""
    first = next((PHRASES[" ".join(s)] for s in spans if " ".join(s) in PHRASES), "")
    return [_name(tuple(m.split())).meanings for m in (first, PHRASES.get(first, "")) if m]


def _prefixed(content: tuple[str, ...], words: tuple[str, ...]) -> bool:
    """Whether a name of several words abbreviates the span (``life_expect``)."""
    if len(content) != len(words) or len(words) < 2:
        return False
    same = [canonical(a) == canonical(b) for a, b in zip(content, words, strict=True)]
    short = [
        s or (len(b) >= 3 and a.startswith(b)) for a, b, s in zip(content, words, same, strict=True)
    ]
    return all(short) and any(same)


def _partly(span: _Span, own: _Name, column: Column) -> bool:
    # A number in a name ("Unnamed: 0", "score_10") names that column only together with the rest.
    meant = span.name.meanings
    if (
        span.weightless
        or meant.isdisjoint(own.meanings)
        or not meant < own.meanings | _extra(column)
    ):
        return _true_stem(span.content, column)
    rest = {w for w in split_name(column.name) if canonical(w) not in meant}
    return not {w for w in rest & TELLING if not (column.identifier and w == "id")}


def _extra(column: Column) -> set[str]:
    # An identifier's other words name what it identifies: "customers" are counted by customer_id.
    return {"id"} if column.identifier else set()


def _true_stem(content: tuple[str, ...], column: Column) -> bool:
    """Whether a word shares its stem with a yes-or-no column (``smokers`` and ``smoker``)."""
    if len(content) != 1 or len(column.words) != 1 or column.truth is None:
        return False
    a, b = singular(content[0]), column.words[0]
    common = next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )
    return common >= 5 and common >= 0.6 * max(len(a), len(b))


def values_named(
    span: Sequence[Token], tokens: Sequence[Token], at: int, table: Table, *, cue: bool
) -> list[tuple[Column, Value]]:
    """Find the values that a span names, each with its column.

    A single word that also means something else (``cue``) counts only beside its column's name.
    """
    if len(span) == 1 and span[0].kind in ("number", "op"):
        return []
    said = [t.low for t in span]
    for test in (_same_words, _other_words, _leading_word):
        hits = [
            (column, value)
            for column in table.columns
            if column.kind == "text" and column.truth is None
            for value in column.values
            if test(said, str(value), column)
        ]
        weak = len(said) == 1 and (cue or said[0] in STOP or len(said[0]) < 2)
        if weak and test is _same_words:
            hits = [(c, v) for c, v in hits if _beside(c, tokens, at) or _named_so(span[0], v, at)]
        elif weak:
            hits = []
        if hits:
            return hits
    return []


def _named_so(token: Token, value: Value, at: int) -> bool:
    """Whether a word that also means something else is written as the value (``US``, ``A``)."""
    told = token.text == str(value) and token.text[0].isupper()
    return at > 0 and told and token.text != "I"  # who asks, more often than a value


def _beside(column: Column, tokens: Sequence[Token], at: int) -> bool:
    near = [t.low for t in (*tokens[max(0, at - 3) : at], *tokens[at + 1 : at + 2])]
    return bool({canonical(w) for w in column.words} & {canonical(w) for w in near})


@lru_cache(maxsize=16_384)
def _words_of(value: str) -> tuple[str, ...]:
    return tuple(t.low for t in tokens_of(value))


def _same_words(said: list[str], value: str, _column: Column) -> bool:
    words = list(_words_of(value))
    if words == said:
        return True
    same_start = len(words) == len(said) and words[:-1] == said[:-1] and bool(said)
    return same_start and len(said[-1]) > 3 and singular(said[-1]) == singular(words[-1])


def _other_words(said: list[str], value: str, column: Column) -> bool:
    if not column.listed or len(said) != 1:
        return False
    if value.lower() in ("m", "f", "male", "female") and not {
        str(v).lower() for v in column.values
    } <= {"m", "f", "male", "female", "unknown", "other"}:
        return False
    low = value.lower()
    adjectives = (f"{low}y", f"{low}{low[-1:]}y")  # rainy, sunny
    return said[0] in (*VALUE_WORDS.get(low, "").split(), *adjectives)


def _leading_word(said: list[str], value: str, column: Column) -> bool:
    """Whether the word begins this one value of a fully listed column, and no other."""
    if not column.listed or len(said) != 1 or len(said[0]) < 4:
        return False
    wanted = {said[0], singular(said[0])}
    if column.distinct < 2 or not wanted & set(_words_of(value)[:1]):
        return False
    others = [_words_of(str(v)) for v in column.values]
    starts = [words[0] for words in others if words]
    inside = [word for words in others for word in words]
    return sum(s in wanted for s in starts) == 1 and sum(w in wanted for w in inside) == 1


def spelling(word: str, table: Table) -> str | None:
    """Return the one known word that differs by a single slip; None for no match or two."""
    if len(word) < 5 or not word.isalpha():
        return None
    known = {w for c in table.columns for w in c.words}
    known |= {w for c in table.columns if c.listed for v in c.values for w in _words_of(str(v))}
    known |= {table.row_noun} | {w for cue in CUES for w in cue if len(w) > 5}
    close = {k for k in known if len(k) > 4 and _one_slip(word, k)}
    close |= {k for k in known if len(k) > 4 and word[-1] == "s" and _one_slip(word[:-1], k)}
    return close.pop() if len(close) == 1 else None


def _one_slip(a: str, b: str) -> bool:
    """Whether words differ by one letter added, lost, changed, or swapped with the next."""
    if abs(len(a) - len(b)) > 1 or a == b or a[0] != b[0]:
        return False
    start = next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )
    rest_a, rest_b = a[start:], b[start:]
    swapped = any(a[:i] + y + x + a[i + 2 :] == b for i, (x, y) in enumerate(pairwise(a)))
    return swapped or rest_a[1:] == rest_b or rest_a == rest_b[1:] or (rest_a[1:] == rest_b[1:])
