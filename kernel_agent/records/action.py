"""An action that a model asks for: code to run, calls to make, or an answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from kernel_agent.records.conversation import ABSENT, Json


@dataclass(frozen=True, kw_only=True)
class Code:
    """Run this cell.

    ``left_out`` says, for the model, which code of the reply is not in it. ``starts`` are the lines
    at which the calls begin of which it was joined, where the reply had several. ``repaired``
    counts the native calls whose arguments were no JSON as the model wrote them.
    """

    source: str
    thought: str = ""
    left_out: str = field(default="", metadata=ABSENT)
    starts: tuple[int, ...] = field(default=(), metadata=ABSENT)
    repaired: int = field(default=0, metadata=ABSENT)


FINAL_ANSWER = "final_answer"
"""The function that ends a run: in the kernel, and as a tool where calls are the actions."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of a host tool, with arguments already parsed to JSON types.

    ``error`` says why the arguments could not be read; such a call is answered, not made.
    ``repaired``: they were read, but were no JSON as the model wrote them.
    """

    name: str
    arguments: Mapping[str, Json]
    id: str = ""
    error: str = ""
    repaired: bool = field(default=False, metadata=ABSENT)


@dataclass(frozen=True, kw_only=True)
class Calls:
    """Call these host tools, side by side."""

    calls: tuple[Call, ...]
    thought: str = ""


@dataclass(frozen=True, kw_only=True)
class Final:
    """End the run with this answer: a call that gives it, or a reply ``in_words`` that is it."""

    answer: Json
    thought: str = ""
    note: str = ""
    in_words: bool = False
    repaired: int = field(default=0, metadata=ABSENT)


Action: TypeAlias = Code | Calls | Final


def repaired_calls(action: Action | None) -> int:
    """Count the calls of an action whose arguments were no JSON as the model wrote them."""
    if isinstance(action, Calls):
        return sum(call.repaired for call in action.calls)
    return action.repaired if action else 0
