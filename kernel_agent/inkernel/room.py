"""Bounds on decoding: sizes are counted before anything is unfolded. Pure, standard library only.

A few bytes can stand for many: a column of a million nulls, a picture in one colour, the decimal
``1E+6000000``. A decoder of untrusted data passes a :class:`Room`, and
:mod:`.values` charges each form, by what its own header says, before a library unfolds it.

Bounds that hold for everybody stand here, too: a form beyond them helps no one.
"""

from __future__ import annotations

import decimal
import fractions
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

TEXT_MAX = 10_000  # characters of a number or a date: the largest decimals that pass need 6,000
EXPONENT_MAX = 6_000  # of a decimal; to make an int of 1E+6000000 takes 80 s in which nothing runs
ALIKE_MAX = 200  # keys with one hash; each costs a look at all of those before it
FEW = 1_000  # values among which any number may be alike
_HASH = (1 << 61) - 1  # ints that differ by a multiple of it have one hash (sys.hash_info.modulus)


class TooMuch(ValueError):
    """The data stands for more than there is room for; ``wanted`` is its full size."""

    def __init__(self, wanted: int, limit: int) -> None:
        super().__init__(
            f"it stands for {wanted / 1e6:,.0f} MB in memory, and there is room for "
            f"{limit / 1e6:,.0f}: send less, or in several calls"
        )
        self.wanted = wanted


class Room:
    """Bytes that may be made of what came.

    Parameters
    ----------
    limit
        Bytes, of all that is decoded with this room.
    quick
        Nothing that needs a library: for who cannot wait until one is imported.
    """

    def __init__(self, limit: int, *, quick: bool = False) -> None:
        self.limit = limit
        self.used = 0
        self._quick = quick

    def take(self, size: int) -> None:
        """Charge so many bytes, or refuse them.

        Raises
        ------
        TooMuch
            There is no room for them.
        """
        if self.used + size > self.limit:
            raise TooMuch(self.used + size, self.limit)
        self.used += size

    def library(self) -> None:
        """Charge the use of a library, which may have to be imported.

        Raises
        ------
        TooMuch
            This room is for what is quick.
        """
        if self._quick:
            raise TooMuch(self.limit + 1, self.limit)


def short(text: Any) -> str:
    """Return the text of a number or a date, if it is one.

    Raises
    ------
    ValueError
        It is no text, or longer than any of them.
    """
    if not isinstance(text, str):
        raise ValueError("its text is not a string")  # noqa: TRY004 - damage, not a type
    if len(text) > TEXT_MAX:
        raise ValueError(f"a text of {len(text):,} characters")
    return text


def read_decimal(text: Any) -> decimal.Decimal:
    """Return a decimal whose digits, written out, are no more than a few pages.

    Raises
    ------
    ValueError
        Its exponent is beyond that.
    """
    value = decimal.Decimal(short(text))
    if abs(value.adjusted()) > EXPONENT_MAX or abs(_exponent(value)) > 2 * EXPONENT_MAX:
        raise ValueError(f"a decimal with an exponent beyond {EXPONENT_MAX:,}")
    return value


def read_fraction(text: Any) -> fractions.Fraction:
    """Return a fraction of two integers; in other notations a few characters stand for many digits.

    Raises
    ------
    ValueError
        It is none.
    """
    above, _, below = short(text).partition("/")
    if not all(part.removeprefix("-").isdecimal() for part in (above, below or "1")):
        raise ValueError("not a fraction of two integers")
    return fractions.Fraction(int(above), int(below or "1"))


def _exponent(value: decimal.Decimal) -> int:
    exponent = value.as_tuple().exponent
    return exponent if isinstance(exponent, int) else 0


def check_keys(keys: Collection[Any]) -> None:
    """Refuse keys that were made to collide: a dict of n of them takes n² comparisons.

    Raises
    ------
    ValueError
        Many of them have one hash.
    """
    if len(keys) > FEW:
        _check_hashes(hash(key) for key in keys)


def check_numbers(values: list[Any]) -> None:
    """Refuse a list of numbers, or of their digits, of which somebody may make such keys.

    Raises
    ------
    ValueError
        Many of them would have one hash.
    """
    if len(values) > FEW:
        _check_hashes(hash(int(v)) for v in values if _is_long(v))


def _is_long(value: Any) -> bool:
    if isinstance(value, str):
        digits = value.strip().removeprefix("-")
        return 19 <= len(digits) <= 4000 and digits.isdecimal()
    return type(value) is int and not -_HASH < value < _HASH


def _check_hashes(hashes: Iterable[int]) -> None:
    most = Counter(hashes).most_common(1)
    if most and most[0][1] > ALIKE_MAX:
        raise ValueError("keys that were made to collide")
