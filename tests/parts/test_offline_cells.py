"""The code that the analyst writes fits the page, and wrapping changes nothing of it."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_agent.offline.cells import fit_lines, quote

LONG = "a_rather_long_name_of_a_variable"


def same(code: str, width: int = 60) -> str:
    wrapped = fit_lines(code, width)
    assert ast.dump(ast.parse(wrapped)) == ast.dump(ast.parse(code))
    return wrapped


@pytest.mark.parametrize(
    "code",
    [
        f'{LONG} = table.groupby("kind")["size"].agg(["mean", "count"]).dropna().sort_values("m")',
        f'{LONG} = table[(table["kind"] == "small") & table["size"].between(1, 2) & ~table["c"]]',
        f'{LONG} = f" ({{left}} rows with a missing value are left out)" if left_out else ""',
        f'print(f"one {{{LONG}:,.2f}} and two {{b[\'x y\']}} and three {{{{}}}} of them", sep="")',
        f'parts = [f"{{a}}, {{b}} {{c:,.0f}} g ({{n}})" for (a, b), c, n in {LONG}.items() if c]',
        f'for name, column in {LONG}[["first column", "second column"]].items():\n    name',
        f"values = sorted(({LONG}.astype(str) if {LONG}.dtype == object else {LONG}).unique())",
        'f(\n    f"a text that goes on for longer than the page is wide, {here} and there",\n)',
        f'x = {{"a": 1, "b": [2, 3], "c": "a text, with a comma and ) a bracket", "d": {LONG}}}',
        f'table["date"] = pd.to_datetime({LONG}["date"], format="%Y", errors="coerce")',
    ],
)
def test_long_statements_are_wrapped(code: str) -> None:
    """Chains, calls, conditions, loops and texts come out in lines that fit, meaning the same."""
    assert all(len(line) <= 60 for line in same(code).splitlines())


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text(max_size=40), min_size=1, max_size=6))
def test_texts_of_any_kind_survive(texts: list[str]) -> None:
    """Whatever stands in a name or value: the wrapped code means it still."""
    same(f"rows = table[[{', '.join(map(quote, texts))}]].dropna().head(20)", 40)


def test_what_fits_stays_as_it_is() -> None:
    """Short code is not touched."""
    code = 'import pandas as pd\n\nrows = pd.read_csv("a.csv")\nrows.head()'
    assert fit_lines(code) == code
