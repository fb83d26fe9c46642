"""The smoke test: a small question that every arm can answer, to see that it works.

Formats that write code count the rows of a table. Where calls are the actions nothing reads a
file, so there is this module's tool, which tells the same.
"""

from __future__ import annotations

from pathlib import Path

from kernel_agent.evaluation.tasks import Number, Task
from kernel_agent.formats import get_format
from kernel_agent.tools import tool

SMOKE_ID = "smoke"
PRICES = {"apple": 2, "pear": 3, "plum": 7}


@tool
def fruit_prices() -> dict[str, int]:
    """Return the price of each fruit in the table."""
    return PRICES


def smoke_task(format_name: str, folder: Path) -> Task:
    """Return the question for arms of a format; the table is written to the folder."""
    if not get_format(format_name).writes_code:
        return Task(
            id=SMOKE_ID,
            task="For how many fruits does the table have a price?",
            tools=(__name__,),
            answer=len(PRICES),
            check=Number(),
        )
    table = folder / "smoke.csv"
    rows = "".join(f"{fruit},{price}\n" for fruit, price in PRICES.items())
    table.write_text(f"fruit,price\n{rows}", encoding="utf-8")
    return Task(
        id=SMOKE_ID,
        task="How many rows does the table have?",
        data=(str(table),),
        answer=len(PRICES),
        check=Number(),
    )
