"""Numbers of numpy within lists, dicts, tuples and sets: the model reads them as plain ones."""

from __future__ import annotations

import asyncio
import sys
from collections import OrderedDict
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any, NamedTuple

import nbformat
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from IPython.lib.pretty import pretty
from support.examples import examples
from support.replies import cell

from kernel_agent import FakeKernel, ScriptedModel, Session, verify
from kernel_agent.inkernel.preview import WHOLE_ITEMS, preview_collection


def leaf(random: Random) -> Any:
    """Return a scalar of numpy, or a plain value."""
    word = "".join(random.choices("ab'\"\\\n\u00e9", k=random.randrange(4)))
    number = random.choice([0.0, -0.0, 0.1, 1e16, 1e-5, 1e300, random.gauss(0, 1e3), float("inf")])
    return random.choice([
        np.float64(number), np.int64(random.randrange(-(2**63), 2**63)), np.str_(word),
        np.uint8(random.randrange(256)), np.bool_(random.random() < 0.5), np.complex128(number, 1),
        np.bytes_(word.encode()), None, True, number, random.randrange(10**6), word,
    ])  # fmt: skip


def structure(random: Random, depth: int, *, hashed: bool = False) -> Any:
    """Return collections within each other; only what can be in a set where that is asked for."""
    if depth == 0 or random.random() < 0.3:
        return leaf(random)
    kind = random.choice([tuple, frozenset] if hashed else [list, tuple, dict, set, frozenset])
    size = random.randrange(5)
    if kind in (set, frozenset):  # what can be sorted has one order, whatever its types
        return kind(random.choice([np.int64, np.float64, int])(n) for n in range(size))
    parts = [structure(random, depth - 1, hashed=hashed) for _ in range(size)]
    if kind is dict:
        return {structure(random, depth - 1, hashed=True): part for part in parts}
    return kind(parts)


def converted(value: Any) -> Any:
    """Return a structure with each scalar of numpy as its own Python value."""
    if isinstance(value, np.generic):
        return value.item()
    if type(value) is dict:
        return {converted(k): converted(v) for k, v in value.items()}
    if type(value) in (list, tuple, set, frozenset):
        return type(value)(map(converted, value))
    return value


def holds(value: Any) -> bool:
    if type(value) is dict:
        return any(holds(part) for pair in value.items() for part in pair)
    inner = type(value) in (list, tuple, set, frozenset)
    return any(map(holds, value)) if inner else isinstance(value, np.generic)


@settings(max_examples=examples(300), deadline=None)
@given(random=st.integers(0, 2**32).map(Random))
@example(Random(38859))  # lines break within, and between, tuples
def test_what_is_shown_is_the_text_of_the_same_structure_with_plain_values(random: Random) -> None:
    """As IPython writes it, in its order of sets and with its line breaks."""
    value = [structure(random, 4) for _ in range(3)]
    described = preview_collection(value)
    if not holds(value):
        assert described is None
        return
    assert described is not None
    assert described["preview"] == pretty(converted(value))
    assert described["left_out"] == ""


def shown(value: Any) -> str | None:
    described = preview_collection(value)
    return described and described["preview"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([np.float64(3.13), np.float32(0.1)], "[3.13, 0.1]"),
        ({"a": np.int64(2), np.int64(1): [np.float64("nan")]}, "{'a': 2, 1: [nan]}"),
        ((np.bool_(True),), "(True,)"),
        ({np.str_("x")}, "{'x'}"),
        ([np.longdouble(2.5), np.complex64(1 + 2j)], "[2.5, (1+2j)]"),
        ([np.int8(1), np.datetime64("2024-01-01")], "[1, np.datetime64('2024-01-01')]"),
        ([np.int8(1), np.timedelta64(3, "D")], "[1, np.timedelta64(3,'D')]"),
        ([np.int8(1), OrderedDict(a=np.int8(2))], "[1, OrderedDict([('a', 2)])]"),
        ([np.int8(1), np.arange(2)], "[1, array([0, 1])]"),
    ],
)
def test_numbers_are_plain_and_the_rest_stays(value: Any, text: str) -> None:
    made = shown(value)
    assert made is not None
    assert made.replace("OrderedDict({'a': 2})", "OrderedDict([('a', 2)])") == text


def test_a_structure_that_holds_itself_ends() -> None:
    value: list[Any] = [np.float64(1)]
    value.append({"again": value})
    assert shown(value) == "[1.0, {'again': [...]}]"


def test_what_has_a_text_of_its_own_keeps_it() -> None:
    """A subclass of a number, and one of a collection."""

    class Metres(np.float64):
        def __repr__(self) -> str:
            return f"{float(self)} m"

    class Loud(list):
        def __repr__(self) -> str:
            return "LOUD"

    class Pair(NamedTuple):
        a: object
        b: object

    assert shown([Metres(2), np.int8(1)]) == "[2.0 m, 1]"
    assert shown([Loud([np.int8(1)]), np.int8(1)]) == "[LOUD, 1]"
    assert shown(Loud([np.int8(1)])) is None
    assert shown(Pair(np.int8(1), 2)) is None


def test_a_long_list_is_plain_and_counted() -> None:
    described = preview_collection([np.float64(0.5)] * (WHOLE_ITEMS + 1))
    assert described is not None
    assert "np." not in described["preview"] + described["whole"]
    assert described["left_out"] == "1 more item"


def test_a_structure_of_very_many_parts_is_left_as_it_is() -> None:
    assert shown([[np.int8(1)] * 900 for _ in range(900)]) is None


def test_a_module_of_the_users_with_the_name_of_numpy_is_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "numpy", ModuleType("numpy"))
    assert shown([1, 2]) is None


@pytest.mark.parametrize("level", ["", "auto"])
async def test_the_model_reads_plain_numbers_and_the_notebook_what_jupyter_shows(
    level: str, tmp_path: Path
) -> None:
    """So a re-run in plain Jupyter shows the same as the run."""
    options: dict[str, Any] = {"sandbox": level} if level else {"kernel": FakeKernel}
    code = "import numpy as np\nv = {'m': np.float64(3.13), 'n': [np.int64(2)]}\nv"
    model = ScriptedModel([cell(code), cell("final_answer(v)")])
    async with Session(model=model, out=tmp_path, **options) as session:
        run = await session.run("What is it?")
        kept = await session.execute("print(outputs[1])")
    assert run.steps[0].observation.text.startswith("{'m': 3.13, 'n': [2]}")
    assert run.answer == {"m": 3.13, "n": [2]}
    assert "np." not in str(kept.outputs[0])
    cells = nbformat.read(run.notebook, as_version=4).cells
    [made] = [c for c in cells if c.cell_type == "code" and c.source == code]
    jupyters = "{'m': np.float64(3.13), 'n': [np.int64(2)]}"
    assert made.outputs[0]["data"]["text/plain"] == jupyters
    assert (await asyncio.to_thread(verify, run.notebook)).reproduces
