"""Which values are answers."""

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from types import SimpleNamespace

import matplotlib.figure
import numpy as np
import pandas as pd
import pytest
from PIL import Image

from kernel_agent.inkernel import no_answer


class Shown:
    """Has no text, and a picture."""

    def _repr_png_(self) -> bytes:
        return b""


@dataclass
class Record:
    """Has a text."""

    a: int = 1


class Told:
    """Has a text for people alone."""

    def __str__(self) -> str:
        return "told"


@pytest.mark.parametrize(
    "value",
    [
        0, 1.5, "x", [], {}, [1, "x", None], {"a": [1]}, (1, 2), {1}, b"x", Decimal(1), Record(),
        Told(), Shown(), SimpleNamespace(a=1), dt.date(2024, 1, 1), np.arange(3),
        np.float64(1), pd.DataFrame({"a": [1]}), pd.Series([1]), pd.Timestamp("2024"), pd.NA,
        Image.new("L", (1, 1)), matplotlib.figure.Figure(), [Record(), Shown(), Told()],
        range(3), Exception("x"),
    ],
)  # fmt: skip
def test_what_can_be_read_or_seen_is_an_answer(value: object) -> None:
    assert no_answer(value, "") == ""


class Mute:
    """Has no text but its address."""


@pytest.mark.parametrize("value", [Mute(), object(), [1, Mute()], (object(),), {"a": Mute()}])
def test_what_prints_as_an_address_is_none(value: object) -> None:
    assert " is no answer: give " in no_answer(value, "")
