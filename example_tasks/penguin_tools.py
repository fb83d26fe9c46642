"""Host tools that answer small questions about the table of penguins; for penguin_calls.yaml."""

import csv
from functools import cache
from pathlib import Path

from kernel_agent import tool

TABLE = Path(__file__).parent.parent / "example_notebooks" / "data" / "penguins.csv"


@cache
def rows() -> list[dict[str, str]]:
    """Return the table, a dict a row."""
    with TABLE.open(newline="") as file:
        return list(csv.DictReader(file))


def chosen(**wanted: str) -> list[dict[str, str]]:
    """Return the rows that have the wanted values; an empty one does not restrict."""
    return [row for row in rows() if all(row[k] == v for k, v in wanted.items() if v)]


@tool
def species() -> list[str]:
    """Return the names of the species."""
    return sorted({row["species"] for row in rows()})


@tool
def islands() -> list[str]:
    """Return the names of the islands."""
    return sorted({row["island"] for row in rows()})


@tool
def count(species: str = "", island: str = "", sex: str = "") -> int:
    """Return how many penguins there are, of a species, on an island, of a sex if named."""
    return len(chosen(species=species, island=island, sex=sex))


@tool
def mean(column: str, species: str = "", island: str = "", sex: str = "") -> float:
    """Return the mean of a numeric column, of a species, on an island, of a sex if named."""
    known = [row[column] for row in chosen(species=species, island=island, sex=sex)]
    values = [float(text) for text in known if text not in ("", "NA")]
    if not values:
        raise ValueError("no penguin there has a known value")
    return round(sum(values) / len(values), 3)
