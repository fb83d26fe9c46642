"""A cell as the analyst writes it: what is said, and code that fits the page.

:func:`fitted` wraps statements that are too long, and nothing else: at the commas of the last
bracket, before the dots of a chain, and between the words of a text. What it returns has the same
syntax tree.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

WIDTH = 99
_STRING = re.compile(r"""[rf]{0,2}(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')""")
_OPENING, _CLOSING = "([{", ")]}"
_CHAIN = re.compile(r"\.[A-Za-z_]\w*(?=[(\[.])")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """An action: the analyst's thought and the code it runs."""

    thought: str
    code: str


def quote(text: str) -> str:
    """Return text as a double-quoted Python string literal."""
    return json.dumps(text, ensure_ascii=False)


def fit_lines(code: str, width: int = WIDTH) -> str:
    """Return code with its long lines wrapped.

    Examples
    --------
    >>> print(fit_lines('mean = table.groupby("kind")["size"].mean().dropna()', width=40))
    mean = (
        table.groupby("kind")["size"]
        .mean()
        .dropna()
    )
    """
    lines: list[str] = []
    depth = 0
    for line in code.split("\n"):
        lines += _wrap(line, width, inside=depth > 0)
        depth += _balance(_veil(line))
    return "\n".join(lines)


def _wrap(line: str, width: int, *, inside: bool) -> list[str]:
    """Return one line as several that fit; ``inside`` brackets a line may end anywhere."""
    if len(line) <= width:
        return [line]
    margin = line[: len(line) - len(line.lstrip())]
    text = line.strip()
    target = re.match(r"[^\s=]+(?:, \w+)* = ", _veil(text))
    start = 0 if inside or not target else target.end()
    parts = _parts(text[start:])
    statement = bool(target) or " " not in _outer(text)
    if len(parts) > 1 and (inside or statement):
        if inside:
            body = [margin + part for part in parts]
        else:
            opened, closed = [f"{margin}{text[:start]}("], [f"{margin})"]
            body = [*opened, *(f"{margin}    {part}" for part in parts), *closed]
    else:
        body = _texts(margin, text, width) if inside else []
        body = body or _open_bracket(margin, text, width)
    if body in ([], [line]):
        return [line]
    return [piece for part in body for piece in _wrap(part, width, inside=True)]


def _parts(text: str) -> list[str]:
    """Cut an expression before its operators and clauses, or else before the dots of a chain."""
    outer = _outer(text)
    clauses = r"(?<= )(?:for|if|else|and|or|&|\||%|\+)(?= )"
    cuts = [m.start() for m in re.finditer(clauses, outer)]
    if not cuts and " " not in outer.rstrip(","):
        cuts = [m.start() for m in _CHAIN.finditer(outer)][1:]
    return [text[a:b].strip() for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def _open_bracket(margin: str, text: str, width: int) -> list[str]:
    """Put the contents of the longest bracket on separate lines."""
    spans = list(_brackets(_veil(text)))
    if not spans:
        return []
    start, end = max(spans, key=lambda span: span[1] - span[0])
    content = text[start:end]
    if not content:
        return []
    commas = [at for at, sign in enumerate(_outer(content)) if sign == ","]
    one = len(margin) + 4 + len(content) <= width or " for " in _outer(content)
    if one or not commas:
        items = [content]
    else:
        cuts = [0, *(at + 1 for at in commas), len(content)]
        pieces = [content[a:b].strip().rstrip(",") for a, b in pairwise(cuts)]
        items = [f"{piece}," for piece in pieces if piece]
    return [
        margin + text[:start],
        *(f"{margin}    {item}" for item in items),
        margin + text[end:],
    ]


def _texts(margin: str, text: str, width: int) -> list[str]:
    """Cut a text literal between its words; empty when the line is something else."""
    literal, comma = text.removesuffix(","), "," if text.endswith(",") else ""
    key = "".join(re.findall(r"^\w+=", literal))
    literal = literal[len(key) :]
    if not _STRING.fullmatch(literal):
        return []
    prefix = literal[: min(literal.index(q) for q in "\"'" if q in literal)]
    quote = literal[-1]
    room = width - len(margin) - len(key) - len(prefix) - 3
    pieces: list[str] = []
    for word in _words(literal[len(prefix) + 1 : -1], braces="f" in prefix):
        if pieces and len(pieces[-1]) + len(word) <= room:
            pieces[-1] += word
        else:
            pieces.append(word)
    marks = [prefix if "{" in piece or "}" in piece else "" for piece in pieces]
    if "r" in prefix:
        marks = [prefix] * len(pieces)
    lines = [f"{margin}{m}{quote}{p}{quote}" for m, p in zip(marks, pieces, strict=True)]
    lines[0] = margin + key + lines[0][len(margin) :]
    return [*lines[:-1], lines[-1] + comma]


def _words(text: str, *, braces: bool) -> Iterator[str]:
    """Yield the words of a text literal with the blanks that follow them; a field is one word."""
    field = r"\{\{|\}\}|\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}|" if braces else ""
    yield from re.findall(rf"(?:{field}\\.|[^ ])+ *| +", text)


def _veil(text: str) -> str:
    """Return code with its text literals made unreadable, each sign at its place."""
    return _STRING.sub(lambda literal: "s" * len(literal[0]), text)


def _outer(text: str) -> str:
    """Return code of which only what stands outside brackets is readable."""
    veiled = list(_veil(text))
    for start, end in _brackets("".join(veiled)):
        veiled[start:end] = "s" * (end - start)
    return "".join(veiled)


def _brackets(veiled: str) -> Iterator[tuple[int, int]]:
    """Yield where the contents of the outermost brackets begin and end."""
    depth, start = 0, 0
    for at, sign in enumerate(veiled):
        if sign in _OPENING:
            depth, start = depth + 1, start if depth else at + 1
        elif sign in _CLOSING:
            depth -= 1
            if depth == 0:
                yield start, at


def _balance(veiled: str) -> int:
    return sum(veiled.count(s) for s in _OPENING) - sum(veiled.count(s) for s in _CLOSING)
