"""Each kind of value that has a form on the wire has it in cells and exported notebooks, too."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from kernel_agent.inkernel import FORMS, decode, encode
from kernel_agent.notebook.preamble import revived
from kernel_agent.session.parameters import opening_of

np = pytest.importorskip("numpy")
pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
Image = pytest.importorskip("PIL.Image")

EXAMPLES: dict[str, Any] = {
    "float": float("inf"),
    "datetime": dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC),
    "date": dt.date(2024, 2, 29),
    "time": dt.time(12, 30),
    "timedelta": dt.timedelta(seconds=1.5),
    "decimal": Decimal("1.10"),
    "fraction": Fraction(-1, 3),
    "tuple": (1, ("a",)),
    "set": {1},
    "frozenset": frozenset({"a"}),
    "dict": {1: "{text}", "$": dt.date(2024, 1, 1)},
    "bytes": b"x" * 1000,
    "array": np.arange(6).reshape(2, 3),
    "table": pd.DataFrame({"a": [1, 2]}),
    "series": pd.Series([1.5, 2.5], name="a"),
    "image": Image.new("RGB", (3, 2), "red"),
}


def same(one: Any, other: Any) -> bool:
    if hasattr(one, "tobytes") and hasattr(one, "mode"):  # a picture of whatever class
        return bool(one.tobytes() == other.tobytes())
    return type(one) is type(other) and encode(one) == encode(other)


def from_cell(form: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the first cell of a delegated run, with its files beside it."""
    cell = opening_of({"x": form})
    (folder / "data").mkdir()
    for name, content in cell.files.items():
        (folder / "data" / name).write_bytes(content)
    monkeypatch.chdir(folder)
    namespace: dict[str, Any] = {}
    exec(cell.source, namespace)
    value = namespace["x"]
    if hasattr(value, "load"):
        value.load()  # and lets go of its file
    return value


def test_every_kind_has_an_example() -> None:
    assert EXAMPLES.keys() == FORMS.keys()


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.parametrize("kind", EXAMPLES)
def test_a_value_is_the_same_from_the_wire_a_cell_and_a_notebook(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = EXAMPLES[kind]
    form = encode(value)
    assert form["$"] == kind
    assert same(decode(form), value)
    assert same(from_cell(form, tmp_path, monkeypatch), decode(form))
    assert same(revived(form), value)
