"""What an answer says in words: without what surrounds them, and split into members. Pure.

Nothing here makes an answer more like what is expected: what is taken off is taken off any answer.
"""

from __future__ import annotations

import ast
import re
import unicodedata
from collections.abc import Iterable, Sequence

from kernel_agent.records import Json

MAX_READ = 20_000  # characters of a text that are read, and leaves of a value
DOUBT = re.compile(
    r"\b(?:not|never|neither|nor|none|cannot|unable|unknown|unclear|insufficient|incorrect|wrong|if"
    r"|whether|would|might|could|either|assum\w+|instead|rather|except|unless|however|correction"
    r"|actually|wait|maybe|perhaps|possibly|decreas\w*|fell|fall\w*|drop\w*|declin\w*|reduc\w*"
    r"|los[ts]\w*|shr[aiu]nk\w*|lower|less|fewer|down)\b|n't\b|\?",
    re.IGNORECASE,
)
_LEFT_OUT = re.compile(
    r"\b(?:but|without|exclud\w*|others?|missing|omit\w*|ignor\w*|left out|remov\w*)\b"
    rf"|{DOUBT.pattern}",
    re.IGNORECASE,
)
BECAUSE = re.compile(
    r"[\s,:;.(-]{0,8}\b(?:because|since|based on|computed (?:from|over|on)|compared (?:to|with)"
    r"|given that)\b.*",
    re.IGNORECASE | re.DOTALL,
)
MONEY = "$\u20ac\u00a3\u00a5"
_LIKE = {
    sign: one
    for one, several in (
        ("'", "\u2018\u2019"),
        ('"', "\u201c\u201d"),
        ("-", "\u2010\u2011\u2012\u2013\u2014\u2212"),
        ("x", "\u00d7"),
        ("\u00a0", "\u2009\u202f"),
    )
    for sign in map(ord, several)
}
_COPULA = re.compile(r"\b(?:is|was|are|were)\b:?\s*", re.IGNORECASE)
_LEAD = re.compile(r"^(?:the\s+)?(?:final\s+)?answer(?:\s*[:=]|\s+is:?)\s*", re.IGNORECASE)
_WITH_NUMBER = re.compile(
    rf"\s*(?:\((?:about |[~≈{MONEY}])*[-+]?\d[^()]*\)|:\s*[~≈{MONEY}]?[-+]?\d[\d.,%]*)$"
)
_MIDNIGHT = re.compile(r"(?<=^\d{4}-\d\d-\d\d)[T ]00:00:00(?:\.0+)?$")
_DRESS = " \t*`_\"'"


def alike(text: str) -> str:
    """Return a text with one sign for those that look alike: quotes, dashes, thin spaces."""
    return text[:MAX_READ].translate(_LIKE)


def normal(text: str) -> str:
    """Return a text in one line, with one form for what looks alike."""
    return " ".join(unicodedata.normalize("NFKC", alike(text)).split())


def days(value: Json) -> Json:
    """Return a value in which a day is written as such, and not as its midnight.

    Examples
    --------
    >>> days(["2024-01-05T00:00:00", "2024-01-05T12:00:00"])
    ['2024-01-05', '2024-01-05T12:00:00']
    """
    if isinstance(value, dict):
        return {key: days(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [days(inner) for inner in value]
    return _MIDNIGHT.sub("", value) if isinstance(value, str) else value


def undress(text: str) -> str:
    """Return what a text says without what surrounds it: a sentence's beginning, marks, reasons.

    Examples
    --------
    >>> undress("**Gentoo**: because its mean is the highest.")
    'Gentoo'
    >>> undress("The heaviest species is Gentoo (5,076 g).")
    'Gentoo'
    >>> undress("It is not Gentoo.")
    'not Gentoo'
    """
    first, _, rest = alike(text.strip()).partition("\n\n")
    text = first if len(rest.split()) > 3 and not DOUBT.search(rest) else text
    text = normal(BECAUSE.sub("", text)) or normal(text)
    text = _strip(_LEAD.sub("", text))
    sentence = _COPULA.split(text)
    if len(sentence) == 2 and sentence[0] and not _LEFT_OUT.search(sentence[0]):
        return _strip(sentence[1]) if not re.search(r"[.;]\s", text) else text
    return text


def _strip(text: str) -> str:
    for _ in range(4):  # marks within marks, a number in brackets before a full stop
        less = _WITH_NUMBER.sub("", text.strip(_DRESS)).strip(_DRESS).rstrip("!")
        if less.endswith(".") and not re.search(r"(?:\b\w|\.)\.$", less[-3:]):
            less = less[:-1]
        if less == text or not less:
            break
        text = less
    return text


def holds(text: str, words: str) -> bool:
    """Whether words stand in a text, not as a part of longer ones."""
    return bool(words) and re.search(rf"(?<![\w-]){re.escape(words)}(?![\w-])", text) is not None


# --- members -------------------------------------------------------------------------------------

_BULLET = re.compile(r"^\s*(?:[-*•]\s+|\d{1,3}[.)]\s+)")
_INTRODUCED = re.compile(r"^([^:\n]*):\s*(.+)$", re.DOTALL)
_HOLD = "\ue000{}\ue001"  # stands for a name while the line around it is split
_AND = re.compile(r"\s+(?:and|&)\s+")


def read_members(text: str, known: Iterable[str]) -> list[list[str]]:
    """Return the ways to read a text as a list: as it is, without its first words.

    Parameters
    ----------
    text
        Split by lines if there are several, else by semicolons if there are any, else by commas.
    known
        Names that are not split inside.
    """
    text, known = alike(text.strip()), tuple(known)
    if isinstance(listed := literal(text), list):
        return [list(map(str, listed))]
    if text[:1] + text[-1:] in ("[]", "{}", "()"):
        text = text[1:-1]
    ways = [text, BECAUSE.sub("", text)]
    ways += [
        found[2] for way in ways
        if (found := _INTRODUCED.match(way)) and not _LEFT_OUT.search(found[1])
    ]  # fmt: skip
    said = _COPULA.split(ways[1])
    if len(said) == 2 and not _LEFT_OUT.search(said[0]):
        ways.append(said[1])
    return [_split(way, known) for way in dict.fromkeys(ways)]


def literal(text: str) -> Json:
    """Return a list or dict that is written as in Python or JSON; None where there is none."""
    if text.strip()[:1] not in ("[", "{", "("):
        return None
    try:
        value = ast.literal_eval(text.strip()[:MAX_READ])
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    if isinstance(value, tuple | set):
        return sorted(value, key=str)
    return value if isinstance(value, list | dict) else None


def _split(text: str, known: Sequence[str]) -> list[str]:
    lines = [line for line in text.split("\n") if line.strip()]
    if len(lines) > 1:
        shown = lines[1:] if lines[0].rstrip().endswith(":") else lines
        return [_BULLET.sub("", line).rstrip(" ,;") for line in shown]
    line = normal(text)
    if ";" in line:
        return _parted(line.split(";"), known)
    kept = [name for name in known if "," in name or _AND.search(name)]
    for number, name in enumerate(kept):
        alone = rf"(?:(?<=, )|(?<=and )|^){re.escape(name)}(?=\s*,|\.?$|\s+and\b)"
        line = re.sub(alone, _HOLD.format(number), line)
    parts = _parted(line.split(","), known)
    for number, name in enumerate(kept):
        parts = [part.replace(_HOLD.format(number), name) for part in parts]
    return parts


def _parted(parts: Iterable[str], known: Sequence[str]) -> list[str]:
    """Part at "and" what is no known name as it is."""
    members: list[str] = []
    for part in parts:
        one = re.sub(r"^\s*(?:and|&)\s+", "", part).strip()
        members += [one] if _strip(one) in known else _AND.split(one)
    return [member for member in (m.strip() for m in members) if member]


def member(text: str) -> str:
    """Return a member without marks around it and a number behind it."""
    return _strip(normal(_BULLET.sub("", text)))
