"""A question, cut into understood pieces.

Every word of the question becomes part of exactly one :class:`Mention`: a column, a value of a
column, a number, a cue of the vocabulary, what a row is, a word without weight, or ``unknown``.
The longest piece wins; between equals a column beats a value, a value a cue, a cue a guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date

from kernel_agent.offline.matching import (
    Token,
    canonical,
    columns_named,
    spelling,
    tokens_of,
    values_named,
)
from kernel_agent.offline.schema import Column, Table, Value, singular, split_name
from kernel_agent.offline.words import (
    CUES,
    MAX_CUE_WORDS,
    MONTHS,
    PERSON_NOUNS,
    ROW_NOUNS,
    STOP,
    UNIT_WORDS,
)  # fmt: skip

_HUGE = {"thousand": 1e3, "k": 1e3, "million": 1e6, "billion": 1e9}
_NOT_HERE = {"row", "rows", "record", "records", "entry", "entries", "observation", "observations"}
_PERIOD_NOUNS = {
    w: p for p, ws in {
        "year": "year years", "month": "month months", "day": "day days date dates",
        "week": "week weeks", "quarter": "quarter quarters", "weekday": "weekday weekdays",
    }.items() for w in ws.split()
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Mention:
    """A piece of the question and what it means.

    Attributes
    ----------
    kind
        ``col``, ``val``, ``num``, ``date``, ``noun``, ``stop``, ``unit``, ``unknown``, or the kind
        of a cue in :mod:`~kernel_agent.offline.words`.
    meaning
        What a cue says (``mean``, ``>``, ``highest``).
    columns, values
        The candidates of a column mention; for a value, its column and value side by side.
    """

    kind: str
    text: str
    start: int
    meaning: str = ""
    columns: tuple[Column, ...] = ()
    values: tuple[Value, ...] = ()
    number: float = 0.0
    exact: bool = False


def mentions_of(question: str, table: Table) -> tuple[list[Mention], list[str]]:
    """Cut a question into mentions; returns them and the misspellings that were read as words."""
    tokens = tokens_of(question)
    mentions = _segment(tokens, table)
    unknown = {m.text for m in mentions if m.kind == "unknown"}
    corrected, readings = [], []
    for token in tokens:
        better = spelling(token.low, table) if token.text in unknown else None
        if better:
            readings.append(f"“{token.text}” as “{better}”")
            token = replace(token, text=better, low=better.lower())  # noqa: PLW2901 - a new token
        corrected.append(token)
    return (_segment(corrected, table) if readings else mentions), readings


def _segment(tokens: Sequence[Token], table: Table) -> list[Mention]:
    mentions: list[Mention] = []
    at = 0
    while at < len(tokens):
        before = next((m for m in reversed(mentions) if m.kind != "stop"), None)
        size, mention = _best(tokens, at, table, before)
        mentions.append(mention)
        at += size
    return mentions


def _best(
    tokens: Sequence[Token], at: int, table: Table, before: Mention | None
) -> tuple[int, Mention]:
    """Return the longest mention that begins at a token, and its length in tokens."""
    for size in range(min(8, len(tokens) - at), 0, -1):
        span = tokens[at : at + size]
        text = " ".join(t.text for t in span)
        found = _read_quote(span, table) or _phrase(span, tokens, at, table, before)
        if found:
            return size, replace(found, text=text, start=at)
    return 1, _single(tokens, at, table)


def _phrase(
    span: Sequence[Token], tokens: Sequence[Token], at: int, table: Table, before: Mention | None
) -> Mention | None:
    """Return what a span means as a column, as a value or as a cue; None when as none of them."""
    if any(t.kind in ("quote", "date") for t in span):
        return None
    low = tuple(t.low for t in span)
    cue = CUES.get(low) if len(low) <= MAX_CUE_WORDS else None
    rank, columns = columns_named(low, table)
    named = Mention(kind="col", text="", start=0, columns=columns, exact=rank > 1)
    values = values_named(span, tokens, at, table, cue=cue is not None)
    only_meant = 1 < rank <= 3  # “rain” is a weather here, though it could mean precipitation
    weightless = len(low) == 1 and (low[0] in STOP or _is_row_noun(low[0], table))
    if rank > 1 and not (values and only_meant) and not (cue and _rather_cue(cue, before, low)):
        return named
    if values:
        return _value_mention(values)
    if cue:
        return Mention(kind=cue[0], text="", start=0, meaning=cue[1])
    return named if columns and not weightless else None


def _rather_cue(cue: tuple[str, str], before: Mention | None, low: tuple[str, ...]) -> bool:
    """Whether a column named like a cue (``total``, ``count``, ``change``) is meant as the cue."""
    if len(low) > 1 and cue[0] != "whenwas":
        return False
    return not (before and before.kind in ("agg", "sup", "by", "hint", "corr", "dist", "versus"))


def _read_quote(span: Sequence[Token], table: Table) -> Mention | None:
    if len(span) != 1 or span[0].kind != "quote":
        return None
    said = span[0].text
    for column in table.columns:
        if column.name.lower() == said.lower():
            return Mention(kind="col", text=said, start=0, columns=(column,), exact=True)
    hits = [(c, v) for c in table.columns for v in c.values if str(v).lower() == said.lower()]
    if hits:
        return _value_mention(hits)
    words = tokens_of(said)
    rank, columns = columns_named(tuple(t.low for t in words), table)
    if rank > 1:
        return Mention(kind="col", text=said, start=0, columns=columns, exact=True)
    return Mention(kind="unknown", text=said, start=0)


def _value_mention(hits: list[tuple[Column, Value]]) -> Mention:
    return Mention(
        kind="val",
        text="",
        start=0,
        columns=tuple(c for c, _ in hits),
        values=tuple(v for _, v in hits),
    )


def _single(tokens: Sequence[Token], at: int, table: Table) -> Mention:
    """Return what a single token means that is no column, value or cue."""
    token = tokens[at]
    base = Mention(kind="unknown", text=token.text, start=at)
    if token.kind == "number":
        following = tokens[at + 1].low if at + 1 < len(tokens) else ""
        return replace(base, kind="num", number=(token.number or 0.0) * _HUGE.get(following, 1.0))
    if token.kind == "date" and _valid_date(token.low):
        return replace(base, kind="date", meaning=token.low)
    if at > 0 and tokens[at - 1].kind == "number" and not _is_row_noun(token.low, table):
        if token.low in UNIT_WORDS:
            return replace(base, kind="unit", meaning=UNIT_WORDS[token.low])
        if token.low in _HUGE:
            return replace(base, kind="stop")
    return _plain_word(token.low, base, table)


def _plain_word(word: str, base: Mention, table: Table) -> Mention:
    if word in MONTHS and any(c.kind == "date" for c in table.columns):
        return replace(base, kind="monthname", number=float(MONTHS.index(word) + 1))
    kinds = {
        "noun": _is_row_noun(word, table),
        "stop": word in STOP,
        "context": word in _context(table),
        "periodnoun": word in _PERIOD_NOUNS,
    }
    kind = next((k for k, holds in kinds.items() if holds), "unknown")
    return replace(base, kind=kind, meaning=_PERIOD_NOUNS.get(word, ""))


def _valid_date(text: str) -> bool:
    try:
        date.fromisoformat("-".join(p.zfill(2) for p in [*text.split("-"), "01"][:3]))
    except ValueError:
        return False
    return True


def _context(table: Table) -> set[str]:
    """Words of the file's name: they say which table is meant and leave nothing out."""
    return {w for w in split_name(table.path.rpartition("/")[2].split(".")[0]) if len(w) > 2}


def _is_row_noun(word: str, table: Table) -> bool:
    one = singular(word)
    if word in STOP and word not in _NOT_HERE:
        return False
    if one in ROW_NOUNS or one == table.row_noun:
        return True
    if one in PERSON_NOUNS:
        words = {canonical(w) for c in table.columns for w in c.words}
        return {"age", "sex"} <= words
    if one == "day":
        return day_column(table) is not None
    return any(
        table.key(c) and c.identifier and one in map(singular, split_name(c.name)[:-1])
        for c in table.columns
    )


def day_column(table: Table) -> Column | None:
    """Return the date column of a table that has exactly one row a day."""
    for column in table.columns:
        if column.kind == "date" and table.key(column) and column.low and column.high:
            first, last = (date.fromisoformat(d[:10]) for d in (column.low, column.high))
            if 0 <= (last - first).days + 1 - table.rows <= 0.1 * table.rows:
                return column
    return None
