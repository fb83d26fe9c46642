"""JSON from an endpoint, decoded only when it is no larger in memory than its text lets expect."""

from __future__ import annotations

import json
import re

from kernel_agent.models.errors import EndpointError
from kernel_agent.records import Json

MAX_VALUES = 1_000_000
"""Values in one piece of JSON: decoded they take up to 100 bytes each, however short they are."""

_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)


def decoded(text: str) -> Json:
    """Decode what an endpoint sent.

    Raises
    ------
    EndpointError
        The endpoint's fault: it holds more values than any reply.
    ValueError, RecursionError
        It is no JSON.
    """
    left = MAX_VALUES - _marks(text, 0, len(text))
    if left < 0:  # unless they stand in strings
        for number, string in enumerate(_STRING.finditer(text)):
            left += _marks(text, *string.span())
            if left >= 0 or number > MAX_VALUES:
                break
    if left < 0:
        raise EndpointError(
            f"sent JSON of more than {MAX_VALUES:,} values",
            advice="check --base-url: this is not a chat-completions reply",
        )
    return json.loads(text)


def _marks(text: str, start: int, end: int) -> int:
    """Return at least how many values there are."""
    return sum(text.count(mark, start, end) for mark in ",[{")
