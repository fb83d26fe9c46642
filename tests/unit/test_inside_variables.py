"""The look at the namespace: in-place changes are seen, and nobody's code runs."""

from __future__ import annotations

import collections
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kernel_agent.inkernel.variables import DEEP_BYTES, MAX_REPORTED, Variables, written_names


class Bench:
    """A namespace in which cells run, with what each of them changed."""

    def __init__(self) -> None:
        self.namespace: dict[str, Any] = {"own": object(), "__name__": "__main__"}
        self.variables = Variables(self.namespace)
        self.run("import numpy as np, pandas as pd")

    def run(self, code: str) -> dict[str, Any]:
        with warnings.catch_warnings(action="ignore"):  # pandas 3.1 on inplace=True
            exec(code, self.namespace)
        return self.variables.look(code)

    def changed(self, code: str) -> list[str]:
        report = self.run(code)
        assert not report["added"]
        assert not report["removed"]
        return sorted(name for name, _, _ in report["changed"])


@pytest.fixture
def bench() -> Bench:
    return Bench()


FRAME = """
df = pd.DataFrame({
    "i": range(344), "f": np.linspace(0, 1, 344), "s": ["x"] * 344, "o": [object()] * 344,
    "d": pd.to_datetime(["2020-01-01"] * 344), "c": pd.Categorical(["u", "v"] * 172),
    "n": pd.array([1, None] * 172, dtype="Int64"), "z": pd.to_timedelta(range(344), unit="s"),
    "t": pd.to_datetime(["2020-01-01"] * 344).tz_localize("UTC"), "b": [True, False] * 172,
})
"""


def test_new_variables_come_with_type_and_shape(bench: Bench) -> None:
    report = bench.run(
        f"{FRAME}\nn = 3\nword = 'abc'\nrows = [1, 2]\na = np.zeros((3, 4))\ns = df['f']"
        "\ndef f(): pass"
    )
    assert report["added"] == [
        ["df", "DataFrame", "344 x 10"],
        ["n", "int", ""],
        ["word", "str", "3 characters"],
        ["rows", "list", "2 items"],
        ["a", "ndarray", "3 x 4 float64"],
        ["s", "Series", "344"],
        ["f", "function", ""],
    ]
    assert (report["changed"], report["removed"], report["more"]) == ([], [], 0)


@pytest.mark.parametrize(
    "code",
    [
        "df.loc[3, 'i'] = 77",
        "df.loc[3, 'f'] = 0.77",
        "df.loc[3, 's'] = 'new'",
        "df.loc[3, 'o'] = None",
        "df.loc[3, 'd'] = pd.Timestamp('2021-01-01')",
        "df.loc[3, 'c'] = 'u'",
        "df.loc[3, 'n'] = 9",
        "df.loc[3, 'z'] = pd.Timedelta(9, 'D')",
        "df.loc[3, 't'] = pd.Timestamp('2021-01-01', tz='UTC')",
        "df.loc[3, 'b'] = True",
        "df.iat[0, 0] = -1",
        "df['new'] = 1",
        "df['i'] = df['i'] * 2",
        "del df['i']",
        "df.drop(columns=['i'], inplace=True)",
        "df.sort_values('f', ascending=False, inplace=True)",
        "df.rename(columns={'i': 'j'}, inplace=True)",
        "df.columns = list('qwertyuiop')",
        "df.index = range(1, 345)",
        "df.index.name = 'row'",
        "df.set_index('s', inplace=True)",
        "df.fillna({'n': 0}, inplace=True)",
        "df['c'] = df['c'].cat.rename_categories({'u': 'w'})",
        "g = globals()['df']; g.loc[3, 'i'] = 5; del g",
    ],
)
def test_a_table_that_was_changed_in_place_is_seen(bench: Bench, code: str) -> None:
    bench.run(FRAME)
    assert bench.changed(code) == ["df"]


@pytest.mark.parametrize(
    "code",
    [
        "df.head()",
        "df.describe(include='all')",
        "df.groupby('s').size()",
        "repr(df); df.to_numpy(); df.index.is_unique; df['s'].str.len()",
        "df = df.copy()",
        "pass",
    ],
)
def test_reading_a_table_is_no_change(bench: Bench, code: str) -> None:
    bench.run(FRAME)
    assert bench.changed(code) == []


@pytest.mark.parametrize(
    ("make", "change"),
    [
        ("x = [1, [2, 3]]", "x[1].append(4)"),
        ("x = {'a': {'b': [1]}}", "x['a']['b'][0] = 2"),
        ("x = {1, 2}", "x.add(3)"),
        ("x = np.zeros((500, 500))", "x[3, 3] = 1"),
        ("x = np.zeros((500, 500))[:, ::2]", "x[3, 3] = 1"),
        ("x = np.array(['a', None], dtype=object)", "x[0] = 'b'"),
        ("x = np.zeros(3)", "x = np.ones(3)"),
        ("x = 'a' * 5000", "x = 'a' * 4999 + 'b'"),
        ("x = 'ab' * 5000", "x = 'ba' * 5000"),
        ("x = bytearray(5)", "x[3] = 1"),
        ("x = 3", "x += 1"),
        ("x = 10 ** 5000", "x += 1"),
        ("x = np.float64(3)", "x = np.float64(4)"),
        ("x = pd.Series([1, 2])", "x[0] = 5"),
        ("x = pd.Index([1, 2])", "x = pd.Index([1, 3])"),
        ("x = pd.DataFrame({'a': [1]}).set_index([[1], [2]])", "x.loc[:] = 9"),
        ("class A: pass\nx = A(); x.v = [1]; del A", "x.v.append(2)"),
        ("from collections import deque\nx = deque([1]); del deque", "x.append(2)"),
        ("def x(): return 1", "def x(): return 2"),
    ],
)  # fmt: skip
def test_other_values_are_seen_to_change(bench: Bench, make: str, change: str) -> None:
    bench.run(make)
    assert bench.changed("pass") == []
    assert bench.changed(change) == ["x"]


def test_a_model_that_was_fitted_is_seen(bench: Bench) -> None:
    """Its attributes are read as what they are, without asking it."""
    bench.run(
        "class Model:\n"
        "    def fit(self, y): self.coef_ = np.array(y); return self\n"
        "    def predict(self): return self.coef_\n"
        "m = Model()"
    )
    assert bench.changed("m.fit([1.0, 2.0])") == ["m"]
    assert bench.changed("m.predict()") == []
    assert bench.changed("m.fit([1.0, 3.0])") == ["m"]


def test_a_value_that_is_set_again_to_the_same_is_no_change(bench: Bench) -> None:
    bench.run(f"{FRAME}\nn = 3\nx = [1, 'a', (2.5, None)]")
    assert bench.changed("n = 3\nx = [1, 'a', (2.5, None)]\nword = None\ndel word") == []


def test_removed_and_replaced(bench: Bench) -> None:
    bench.run("a = 1; b = 2")
    assert bench.run("del a")["removed"] == ["a"]
    assert bench.run("b = '2'")["changed"] == [["b", "str", "1 characters"]]


def test_what_is_the_kernels_own_is_not_reported_until_it_is_replaced(bench: Bench) -> None:
    report = bench.run("_private = 1; own = 5")
    assert report["added"] == [["own", "int", ""]]


# --- more than one look can read -----------------------------------------------------------


BIG = f"big = pd.DataFrame(np.zeros(({DEEP_BYTES // 80 + 20_000}, 10)))"


def test_one_value_in_a_table_that_is_too_large_to_read_is_seen_by_the_code(bench: Bench) -> None:
    bench.run(BIG)
    assert bench.changed("big.loc[12_345, 3] = 1") == ["big"]
    assert bench.changed("big.sum()") == []
    assert bench.changed("big.drop(0, inplace=True)") == ["big"]


def test_the_values_of_a_range_index_are_not_computed(bench: Bench) -> None:
    """They would stay, 8 bytes a row, and take the allowance of the table's own values."""
    rows = DEEP_BYTES * 3 // 4 // 8
    bench.run(f"df = pd.DataFrame({{'x': np.zeros({rows})}})\ndef spoil(t): t.iat[12_345, 0] = 1")
    assert "_data" not in bench.namespace["df"].index._cache
    assert bench.changed("spoil(globals()['d' + 'f'])") == ["df"]


def test_a_large_table_that_changed_all_over_is_seen_by_its_samples(bench: Bench) -> None:
    bench.run(f"{BIG}\ndef spoil(t): t += 1")
    assert bench.changed("spoil(big)") == ["big"]


def test_another_name_for_a_large_table_changes_with_it(bench: Bench) -> None:
    bench.run(f"{BIG}\nsame = big")
    assert bench.changed("big.iat[12_345, 3] = 1") == ["big", "same"]


def test_large_containers_are_seen_by_the_code(bench: Bench) -> None:
    bench.run("many = {i: str(i) for i in range(100_000)}; other = list(range(100_000))")
    assert bench.changed("many[5] = 2") == ["many"]
    assert bench.changed("other[5] = 2") == ["other"]
    assert bench.changed("len(many)") == []


def test_small_variables_are_not_lost_behind_large_ones(bench: Bench) -> None:
    """What the code names is read first."""
    bench.run("large = [list(range(100)) for _ in range(1000)]; small = [1]")
    assert bench.changed("small.append(2)") == ["small"]
    assert bench.changed("print(end='')") == []


def test_a_flood_of_variables_is_counted(bench: Bench) -> None:
    report = bench.run("for n in range(500): globals()[f'v{n}'] = n")
    assert len(report["added"]) == MAX_REPORTED
    assert report["more"] == 501 - MAX_REPORTED


# --- nobody's code runs --------------------------------------------------------------------


class Hostile:
    """Raises whatever is asked of it."""

    __hash__ = None  # type: ignore[assignment]

    def _raise(self, *_: object) -> Any:
        raise SystemExit("somebody asked")

    __repr__ = __eq__ = __len__ = __iter__ = __getattribute__ = __sizeof__ = __bool__ = _raise  # type: ignore[assignment]
    __class__ = __dict__ = property(_raise)  # type: ignore[assignment]


class HostileMeta(type):
    """A class whose name, bases and instance checks are somebody's code."""

    def _raise(cls, *_: object) -> Any:
        raise SystemExit("somebody asked")

    __name__ = __module__ = __mro__ = __dict__ = property(_raise)  # type: ignore[assignment]
    __instancecheck__ = __subclasscheck__ = __eq__ = __repr__ = __getattribute__ = _raise  # type: ignore[assignment]
    __hash__ = type.__hash__


class HostileList(list[Any]):
    """A list that lies about itself."""

    __len__ = __iter__ = __getitem__ = __eq__ = Hostile._raise  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


class HostileDict(dict[Any, Any]):
    """A dict that lies about itself."""

    __len__ = __iter__ = items = __getitem__ = __eq__ = Hostile._raise  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


class HostileFrame(pd.DataFrame):
    """A table whose every attribute is somebody's code."""

    @property
    def _mgr(self) -> Any:
        raise SystemExit("somebody asked")

    @_mgr.setter
    def _mgr(self, value: Any) -> None:
        pass


class HostileArray(np.ndarray):
    """An array that does something when it is looked at."""

    def __array_finalize__(self, _obj: object) -> None:
        raise SystemExit("somebody asked")

    def __getattribute__(self, name: str) -> Any:
        raise SystemExit("somebody asked")


def test_no_code_of_a_value_is_called(bench: Bench) -> None:
    values: dict[str, Any] = {
        "a": Hostile(),
        "c": HostileList([1, 2]),
        "d": HostileDict(a=1),
        "e": HostileFrame.__new__(HostileFrame),
        "f": [Hostile(), {"x": Hostile()}],
        "g": collections.defaultdict(Hostile._raise, a=Hostile()),
    }
    bench.namespace |= values
    bench.namespace["b"] = HostileMeta.__new__(HostileMeta, "B", (), {})
    report = bench.variables.look("a.b = 1; c.append(3)")
    kinds = {name: kind for name, kind, _ in report["added"]}
    assert kinds["a"] == "Hostile"
    assert kinds["c"] == "HostileList"
    assert kinds["e"] == "HostileFrame"
    assert set(kinds) == {*values, "b"}
    assert bench.variables.look("pass")["changed"] == []
    list.append(values["c"], 3)
    assert [name for name, _, _ in bench.variables.look("pass")["changed"]] == ["c"]


def test_a_value_that_contains_itself_ends(bench: Bench) -> None:
    bench.run("x = []; x.append(x); y = {'x': x}; x.append(y)")
    assert bench.changed("x.append(1)") == ["x", "y"]


def test_names_that_are_no_text_are_passed_over(bench: Bench) -> None:
    bench.namespace[5] = 1  # type: ignore[index]
    assert bench.run("a = 1")["added"] == [["a", "int", ""]]


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("x = 1", {"x"}),
        ("x.loc[1, 'a'] = 2", {"x"}),
        ("x['a'].iloc[0] += 2", {"x"}),
        ("x.a.b.append(1)", {"x"}),
        ("y = x.fillna(0, inplace=True)", {"x", "y"}),
        ("np.add(a, b, out=c)", {"np"}),
        ("del x['a']", {"x"}),
        ("for x in y: pass", {"x"}),
        ("%time x = 1\ny = 2", {"y"}),
        ("!rm x\ny = 2", {"y"}),
        ("x.head()", set()),
        ("this is no Python", set()),
        ("x" * 10, set()),
        ("(" * 10_000, set()),
    ],
)
def test_what_a_cell_writes_to_is_read_from_its_source(source: str, names: set[str]) -> None:
    assert written_names(source) == names


def test_imported_functions_and_classes_are_no_variables_of_the_model(bench: Bench) -> None:
    imports = "from math import sqrt\nfrom json import dumps\nfrom collections import Counter"
    report = bench.run(f"{imports}\ndef own_function(): pass\nclass Own: pass")
    assert {name: kind for name, kind, _ in report["added"]} == {
        "sqrt": "imported", "dumps": "imported", "Counter": "imported",
        "own_function": "function", "Own": "type",
    }  # fmt: skip
