"""Which format a model is asked for, when the user leaves that to us (``--format auto``).

The rungs, from the most structure to the least: a native call, an envelope under a JSON schema, a
fenced block. A model is asked for the highest rung that its endpoint really supports and that it
does not break. A **small model** starts from the other end, with the least formatting that works:
what asking for a form costs in quality, it costs small models most. In a run, a model that keeps
breaking its format goes down a rung. ``json`` is not a rung: it is another agent, and only the
user can want it.

Pure: what was measured comes in, a choice goes out. :mod:`kernel_agent.models.probe` measures.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kernel_agent.formats.objects import strict
from kernel_agent.records import Reply, RequestOptions

RUNGS = ("tool", "envelope", "fenced")
"""From the top to the bottom."""

SMALL_BELOW = 32.0
"""Billions of parameters. Published gains of structure begin at about this size."""

_ASKED_FOR = {"tool": "native calls", "envelope": "a JSON schema", "fenced": "plain text"}


@dataclass(frozen=True, kw_only=True)
class Measure:
    """How an endpoint and its model took to a format.

    ``supported`` is false when the endpoint refused what the format needs, or ignored it.
    """

    format: str
    supported: bool
    replies: int = 0
    unreadable: int = 0

    @property
    def flawless(self) -> bool:
        """Whether every reply could be read."""
        return self.supported and self.unreadable == 0


def rungs(model: str) -> tuple[str, ...]:
    """Return the formats in the order in which this model is tried.

    >>> rungs("gpt-5-mini"), rungs("qwen2.5-coder:7b")
    (('tool', 'envelope', 'fenced'), ('fenced', 'envelope', 'tool'))
    """
    size = billions(model)
    return RUNGS if size is None or size >= SMALL_BELOW else RUNGS[::-1]


def lower(name: str) -> str | None:
    """Return the rung under a format; None at the bottom, and for what is no rung.

    >>> lower("tool"), lower("fenced"), lower("json")
    ('envelope', None, None)
    """
    below = RUNGS[RUNGS.index(name) + 1 :] if name in RUNGS else ()
    return below[0] if below else None


def billions(model: str) -> float | None:
    """Return the number of parameters that a model's name states, in billions.

    >>> billions("Llama-3.1-70B-Instruct"), billions("qwen2.5-0.5b"), billions("gpt-4o")
    (70.0, 0.5, None)
    """
    sizes = re.findall(r"(?<![\w.])(\d{1,4}(?:\.\d{1,2})?)b(?![a-z0-9])", model.lower())
    return max(map(float, sizes), default=None)


def honoured(options: RequestOptions, reply: Reply) -> bool:
    """Whether a reply shows that the endpoint did what a format's request asked of it."""
    if options.tools:
        return bool(reply.tool_calls)
    if options.response_format is not None:
        schema = options.response_format["json_schema"]["schema"]
        value = strict(reply.content)
        return isinstance(value, dict) and set(value) == set(schema["required"])
    return True


def choose(measures: Sequence[Measure]) -> tuple[str, str] | None:
    """Return a format and why, or None when nothing could be measured.

    Parameters
    ----------
    measures
        In the order of :func:`rungs`: the first that is flawless is chosen, else the one that the
        model breaks least, and of two the lower rung.
    """
    known = [measure for measure in measures if measure.supported]
    if not known:
        return None
    least = min(known, key=lambda m: (m.unreadable / max(m.replies, 1), -RUNGS.index(m.format)))
    best = next((measure for measure in known if measure.flawless), least)
    return best.format, "; ".join(map(_told, measures))


def _told(measure: Measure) -> str:
    asked = _ASKED_FOR[measure.format]
    if not measure.supported:
        return f"the endpoint does not honour {asked}"
    return f"{asked}: {measure.unreadable} of {measure.replies} test replies unreadable"
