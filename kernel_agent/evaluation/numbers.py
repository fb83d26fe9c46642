"""The number that an answer says. Pure.

Models answer in words, and words can be read in several ways: a text may hold several numbers,
"7 %" may mean 7 or 0.07, "1,234" a thousand or a little more than one. So nothing here picks a
reading by what is expected. A :class:`Reading` has the one that the text itself makes plain, if it
makes one plain, and all the others; a check calls an answer right by the first, wrong only when it
is right by none, and in between *not judged*.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernel_agent.evaluation.words import BECAUSE, DOUBT, MONEY, alike
from kernel_agent.records import Json

MOST = 50  # numbers in a text: who writes more has not answered with one
NEAR = 60  # characters before a number that say what it is


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The number that an answer plainly says, if there is one, and all that it may mean.

    ``unread`` says that there are numbers in words that were not read.
    """

    best: float | None = None
    all: tuple[float, ...] = ()
    unread: bool = False


def read_number(answer: Json, text: str) -> Reading:
    """Return the number that an answer says.

    Parameters
    ----------
    answer
        The value that the run ended with: JSON types.
    text
        What a person reads of it, for what has no value.

    Examples
    --------
    >>> read_number("About 91,000 (2018: 88,000)", "").best
    91000.0
    >>> read_number("3 of 14 rows", "")
    Reading(best=None, all=(3.0, 14.0), unread=False)
    """
    if isinstance(answer, bool):
        return Reading()
    if isinstance(answer, int | float):
        value = float(answer) if abs(answer) < 1e308 else math.copysign(math.inf, answer)
        return Reading(best=value, all=(value,))
    if answer is None or isinstance(answer, str):
        return _read_text(alike(answer or text))
    leaves = list(_leaves(answer))
    if len(leaves) == 1:
        return read_number(leaves[0], "")
    several = [read_number(leaf, "") for leaf in leaves if leaf is not None]
    return Reading(
        all=tuple(number for one in several for number in one.all),
        unread=any(one.unread for one in several),
    )


def _leaves(value: Json) -> Iterator[Json]:
    if isinstance(value, Mapping | list | tuple):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _leaves(part)
    else:
        yield value


# --- numbers in a text ---------------------------------------------------------------------------

_CHUNK = re.compile(r"(?<!\w)\.?\d(?:[\d.,'_\u00a0]*\d)?(?:[eE][-+]?\d{1,3}(?!\w))?")
_SPACED = re.compile(r"(?<![\w.,])[1-9]\d{0,2}(?: \d{3})+(?!\w)")
_PIECES = re.compile(r"\d+(?:\.\d+)?")
_GROUPS = {
    mark: re.compile(rf"[1-9]\d{{0,2}}(?:[{mark}]\d{{3}}){count}(?:[{point}]\d+)?")
    for mark, count, point in ((",", "+", "."), ("'_\u00a0", "+", ".,"), (".", "{2,}", ","))
}
_POWER = re.compile(r"\s*[x*·⋅]\s*10\s*(?:(?:\^|\*\*)\s*([-+]?\d{1,3})|([⁻⁺]?[⁰¹²³⁴-⁹]{1,3}))")
_PERCENT = re.compile(r"\s?(?:%|percent\b(?!age)|per cent\b)", re.IGNORECASE)
_SCALE = re.compile(r"\s?(thousand|million|billion|trillion)\b|(k|K|M|m|mn|B|bn)\b", re.IGNORECASE)
_SCALES = {"thousand": 1e3, "k": 1e3, "million": 1e6, "mn": 1e6, "m": 1e6,
           "billion": 1e9, "bn": 1e9, "b": 1e9, "trillion": 1e12}  # fmt: skip
_SIGN = re.compile(rf"(?:(?:^|[^\w)\].%])-[{MONEY}]?|[{MONEY}]-|\b(minus|negative)\s+)$")
_WORDS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
    "twelve",
)  # fmt: skip
_UNREAD = re.compile(
    r"\b(?:\w+teen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand|million"
    r"|billion|dozen|half|third|thirds|quarter|quarters)\b",
    re.IGNORECASE,
)
_NAMED = re.compile(
    r"(?:[A-Za-z]-|[#±]\s*|\+/-\s*|\b(?:top|first|last|step|row|column|line|figure|table|section|group"
    r"|class|cluster|quarter|week|day|month|age|level|rank|version|phase|type|page|n\s*=)\s*)$",
    re.IGNORECASE,
)
_ORDINAL = re.compile(r"(?:st|nd|rd|th|s)\b")
_YEAR = re.compile(r"1[5-9]\d\d|2[01]\d\d")
_IN_YEAR = re.compile(
    r"\b(?:in|for|since|during|until|year|from|to|through|and|january|february|march|april|may"
    r"|june|july|august|september|october|november|december)\s+(?:the year\s+)?$|\($",
    re.IGNORECASE,
)
_AFTER_YEAR = re.compile(
    r"\s*(?:$|[,;:.)\n]|(?:the|there|was|were|is|are|with|at|had|it|to|and|through|until)\b)",
    re.IGNORECASE,
)
_DATE = re.compile(r"\d{4}-\d\d-\d\d|\d{1,2}[/.]\d{1,2}[/.]\d{2,4}|\d{1,2}:\d\d")
_CLAUSE_END = re.compile(r"[;:!\n()\[\]]|\s-\s|\.(?=\s|$)|,(?= (?:but|because|since)\b)")
_BOUND_BEFORE = re.compile(
    rf"(?:\b(?:(?:{'|'.join(_WORDS)}) (?:to|or|and)|not|no|never|than|least|most|under|over|above"
    r"|below|beyond|exceed\w*|within|up to|except|but|without|between|double|twice|half(?: of)?"
    r"|nearly|almost|maybe|perhaps|possibly|or|either)\s+"
    rf"(?:exactly\s+|about\s+|the\s+|an?\s+)*|[<>≤≥≠]=?\s*|!=\s*|[\^√/]\s*)[-{MONEY}]*$",
    re.IGNORECASE,
)
_BOUND_AFTER = re.compile(
    r"[!^²³+]|\S{0,3}\s*(?:\w+\s+)?(?:or|and) (?:more|less|fewer|above|below)\b"
    r"|\s*at (?:least|most)",
    re.IGNORECASE,
)
_REFUSED = re.compile(
    r"\b(?:unknown|not known|cannot|could not|unable|unclear|undetermined|insufficient"
    r"|needs? \d+ more)\b|n't (?:known|tell|determine|read|find)\b",
    re.IGNORECASE,
)
_ASIDE = re.compile(r"\([^()]*\)|\[[^\[\]]*\]")
_ANSWER = re.compile(
    rf"\banswer(?: is|\s*[:=])\s*(?:(?:about|approximately|roughly)\s+|[*~≈{MONEY}])*$",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True)
class _Found:
    """A number in a text: its place, what it may mean, and what stands around it."""

    start: int
    end: int
    best: float | None
    all: tuple[float, ...]
    label: bool  # a year, a row's number, a name: not what is told
    year: bool
    doubtful: bool  # denied, a bound, a condition


def _read_text(text: str) -> Reading:
    found = _numbers(text)
    if not found:
        return _read_words(text)
    plain = _the_one(text, found)
    spaced = [float(match[0].replace(" ", "")) for match in _SPACED.finditer(text)]
    values = [*spaced, *(value for one in found for value in one.all)]
    return Reading(
        best=plain.best if plain and not plain.doubtful else None,
        all=tuple(dict.fromkeys(values)),
        unread=len(found) > MOST,
    )


def _the_one(text: str, found: Sequence[_Found]) -> _Found | None:
    """Return the number that a text plainly says; None where it may be one or another."""
    if _SPACED.search(text):
        return None
    if len(found) == 1 and (found[0].year or not found[0].label):
        return found[0]
    told = [one for one in found if not one.label]
    asides = [m.span() for m in (*_ASIDE.finditer(text), *BECAUSE.finditer(text))]
    main = [one for one in told if not any(a <= one.start < b for a, b in asides)]
    marked = [one for one in told if _ANSWER.search(text[max(0, one.start - NEAR) : one.start])]
    bare = [one for one in told if _is_bare(text, one)]
    first = bare if bare and not text[: bare[0].start].strip(f"*{MONEY}-\n ") else []
    return next((several[0] for several in (told, main, marked, first) if len(several) == 1), None)


def _is_bare(text: str, one: _Found) -> bool:
    """Whether a number has a line of its own."""
    before, after = text[: one.start].rpartition("\n")[2], text[one.end :].partition("\n")[0]
    return not re.search(r"[\w:]", before + after)


def _numbers(text: str) -> list[_Found]:
    found: list[_Found] = []
    dates = [m.span() for m in _DATE.finditer(text)]
    end = 0
    for match in _CHUNK.finditer(text):
        if match.start() < end:  # the ten of a power
            continue
        if len(found) > MOST:
            break
        before = text[max(0, match.start() - NEAR) : match.start()]
        best, values = _values(match[0])
        best, values, end = _scaled(text, match.end(), best, values)
        if text[end : end + 1] == "/" and (below := _CHUNK.match(text, end + 1)):
            parts = values[0], _values(below[0])[1][0]
            best, values = None, (*values, parts[0] / parts[1] if parts[1] else parts[0])
        if _SIGN.search(before) and not re.search(r"\d\s+$", before.rstrip("-")):
            best, values = None if best is None else -best, tuple(-value for value in values)
        doubtful = _is_doubtful(text, match.start(), end)
        if doubtful or text.strip() == f"({match[0]})":  # "fell by 3"; an accountant's minus
            values = (*values, *(-value for value in values))
        year = bool(_YEAR.fullmatch(text[match.start() : end]))
        label = (
            any(a <= match.start() < b for a, b in dates)
            or bool(_NAMED.search(before) or _ORDINAL.match(text, end))
            or (year and _is_label(before, text[end:]))
        )
        found.append(_Found(start=match.start(), end=end, best=best, all=values, label=label,
                            year=year, doubtful=doubtful))  # fmt: skip
    return found


def _values(chunk: str) -> tuple[float | None, tuple[float, ...]]:
    """Return what digits with their separators say, and all that they may mean."""
    digits, _, power = chunk.partition("e" if "e" in chunk else "E")
    factor = 10.0 ** max(min(int(power), 400), -400) if power and abs(int(power)) < 309 else 1.0
    if re.fullmatch(r"\d*\.?\d+", digits):
        value = float(chunk)
        grouped = re.fullmatch(r"[1-9]\d{0,2}\.\d{3}", digits) is not None
        return value, (value, value * 1000) if grouped else (value,)
    for mark, pattern in _GROUPS.items():
        if pattern.fullmatch(digits):
            value = float(re.sub(f"[{mark}]", "", digits).replace(",", ".")) * factor
            single = digits.count(",") == 1 and "." not in digits
            return value, (value, value / 1000) if single else (value,)
    if re.fullmatch(r"\d{1,3}(?:\.\d{3})+,\d+", digits):  # 1.234,5
        value = float(digits.replace(".", "").replace(",", "."))
        return value, (value,)
    pieces = tuple(float(piece) for piece in _PIECES.findall(digits))
    whole = float("".join(char for char in digits if char.isdigit()))
    if re.fullmatch(r"\d+,\d+", digits):
        value = float(digits.replace(",", "."))
        return (value if digits.startswith("0,") else None), (value, *pieces, whole)
    return None, (*pieces, whole)


def _scaled(
    text: str, end: int, best: float | None, values: tuple[float, ...]
) -> tuple[float | None, tuple[float, ...], int]:
    """Multiply a number by what follows it: a power of ten, a word for one, a percent sign."""
    if power := _POWER.match(text, end):
        exponent = unicodedata.normalize("NFKC", power[1] or power[2])
        by = 10.0 ** max(min(int(exponent), 300), -300)
        return None if best is None else best * by, tuple(v * by for v in values), power.end()
    if _PERCENT.match(text, end):
        return best, (*values, *(value / 100 for value in values)), end
    if scale := _SCALE.match(text, end):
        by = _SCALES[(scale[1] or scale[2]).lower()]
        scaled = tuple(value * by for value in values)
        sure = scale[2] != "m" and best is not None  # metres, minutes
        return best * by if sure and best is not None else best, (*scaled, *values), scale.end()
    return best, values, end


def _is_label(before: str, after: str) -> bool:
    """Whether a year only says when."""
    if re.match(r"\s*:\s*\S", after):
        return True
    return bool(_IN_YEAR.search(before) and _AFTER_YEAR.match(after))


def _is_doubtful(text: str, start: int, end: int) -> bool:
    """Whether a number is denied, is a bound, a condition or the size of a decrease."""
    if (
        _REFUSED.search(text)
        or _BOUND_BEFORE.search(text[max(0, start - NEAR) : start])
        or _BOUND_AFTER.match(text, end)
    ):
        return True
    begin = max((m.end() for m in _CLAUSE_END.finditer(text, 0, start)), default=0)
    stop = _CLAUSE_END.search(text, end)
    return bool(DOUBT.search(text[begin : stop.start() if stop else len(text)]))


def _read_words(text: str) -> Reading:
    """Read a text without digits: one small number in words, or words that may be one."""
    words = re.findall(r"[^\W\d_]+", text.lower())
    values = tuple(float(_WORDS.index(word)) for word in words if word in _WORDS)
    alone = len(words) == 1 and len(values) == 1
    return Reading(best=values[0] if alone else None, all=values, unread=bool(_UNREAD.search(text)))
