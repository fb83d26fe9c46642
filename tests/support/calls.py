"""Tools that are called natively, and a session whose scripted model calls them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kernel_agent import ScriptedModel, Session, tool

PRICES = {"apples": 3, "pears": 4}


@tool
def price(product: str) -> int:
    """Return the price of a product in euros."""
    return PRICES[product]


@tool
async def slowly(seconds: float) -> str:
    """Wait, and say when."""
    await asyncio.sleep(seconds)
    return "done"


@tool
def report(lines: list[str], title: str = "Report") -> dict[str, object]:
    """Return a report."""
    return {"title": title, "lines": lines, "length": None}


def call(name, arguments="{}", content="", *more):
    made = [(name, arguments), *more]
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": f, "arguments": a}}
        for n, (f, a) in enumerate(made)
    ]
    return {"content": content, "tool_calls": calls}


def session(replies, out: Path, **options):
    model = ScriptedModel(replies, keep_requests=True)
    tools = [price, slowly, report]
    return Session(model=model, format="json", tools=tools, out=out, **options), model


BOTH = call("price", '{"product": "apples"}', "Both.", ("price", '{"product": "pears"}'))
ANSWER = call("final_answer", '{"answer": "7 EUR"}', "I add them.")
