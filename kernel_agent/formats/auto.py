"""Choose the format for a model when the user has not (``--format auto``).

The rungs, from the most structure to the least: a native call, an envelope under a JSON schema, a
fenced block. A model is asked for the highest rung that its endpoint really supports and that it
does not break. A **small model** gets the lowest: what asking for a form costs in quality, it costs
small models most, and one that breaks plain text does not get better where more is asked. In a run,
a model that keeps breaking its format goes down a rung, and none ever goes up. ``json`` is not a
rung: it is another agent, and only the user can want it.

Pure: what was measured comes in, a choice goes out. :mod:`kernel_agent.models.probe` measures.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from kernel_agent.formats.reading.objects import strict
from kernel_agent.records import Reply, RequestOptions

RUNGS = ("tool", "envelope", "fenced")
"""From the top to the bottom."""

Notation = Literal["json_object", "forced"]
"""A second way to ask for the same, which some servers know instead of the protocol's.

``json_object``: the schema beside this type, as llama.cpp and its kin take it, instead of
``json_schema``. ``forced``: a ``tool_choice`` that names the one function."""

NOTATIONS: tuple[Notation, ...] = get_args(Notation)

SMALL_BELOW = 32.0
"""Billions of parameters. Published gains of structure begin at about this size."""

_IN_BILLIONS = re.compile(r"(?<![a-z0-9.])(\d{1,4}(?:\.\d{1,2})?)b(?![a-z0-9])")
_IN_MILLIONS = re.compile(r"(?<![a-z0-9.])(\d{2,4})m(?![a-z0-9])")

_IN_NOTATION = {"json_object": " (as a json_object)", "forced": " (named as the choice)"}
_ASKED_FOR = {"tool": "native calls", "envelope": "a JSON schema", "fenced": "plain text"}


Outcome = Literal["honoured", "refused", "ignored"]
"""An endpoint's response to a format's request."""


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A format's trial with an endpoint and its model, and the notation that worked, if any."""

    format: str
    outcome: Outcome = "honoured"
    replies: int = 0
    unreadable: int = 0
    notation: Notation | None = None

    @property
    def supported(self) -> bool:
        """Whether the endpoint honours the format's request."""
        return self.outcome == "honoured"

    @property
    def flawless(self) -> bool:
        """Whether every reply could be read."""
        return self.supported and self.unreadable == 0


def rungs(model: str) -> tuple[str, ...]:
    """Return the formats in the order in which this model is tried.

    >>> rungs("gpt-5-mini"), rungs("qwen2.5-coder:7b")
    (('tool', 'envelope', 'fenced'), ('fenced',))
    """
    size = billions(model)
    return RUNGS if size is None or size >= SMALL_BELOW else RUNGS[-1:]


def lower_rung(name: str) -> str | None:
    """Return the rung under a format; None at the bottom, and for what is no rung.

    >>> lower_rung("tool"), lower_rung("fenced"), lower_rung("json")
    ('envelope', None, None)
    """
    below = RUNGS[RUNGS.index(name) + 1 :] if name in RUNGS else ()
    return below[0] if below else None


def billions(model: str) -> float | None:
    """Return the number of parameters that a model's name states, in billions.

    Millions have two digits at least: ``1m`` is a window of a million tokens.

    >>> billions("Llama-3.1-70B-Instruct"), billions("smollm2-135m"), billions("gpt-4o")
    (70.0, 0.135, None)
    """
    sizes = [float(size) for size in _IN_BILLIONS.findall(model.lower())]
    sizes += [int(size) / 1000 for size in _IN_MILLIONS.findall(model.lower())]
    return max(sizes, default=None)


def honours(options: RequestOptions, reply: Reply) -> bool:
    """Whether a reply shows that the endpoint did what a format's request asked of it."""
    if options.tools:
        return bool(reply.tool_calls)
    if options.response_format is not None:
        schema = options.response_format["json_schema"]["schema"]
        value = strict(reply.content)
        return isinstance(value, dict) and set(value) == set(schema["required"])
    return True


def choose(measures: Sequence[Measure]) -> Measure | None:
    """Return the measure of the format to take, or None when nothing could be measured.

    Parameters
    ----------
    measures
        In the order of :func:`rungs`: the first that is flawless is chosen, else the one that the
        model breaks least, and of two the lower rung.
    """
    known = [measure for measure in measures if measure.supported]
    flawless = next((measure for measure in known if measure.flawless), None)
    return flawless or min(
        known,
        key=lambda m: (m.unreadable / max(m.replies, 1), -RUNGS.index(m.format)),
        default=None,
    )


def describe_measures(measures: Sequence[Measure]) -> str:
    """Return the measurements in words."""
    return "; ".join(map(_describe_one, measures))


def _describe_one(measure: Measure) -> str:
    asked = _ASKED_FOR[measure.format]
    if not measure.supported:
        return f"the endpoint does not honour {asked}"
    how = _IN_NOTATION[measure.notation] if measure.notation else ""
    return f"{asked}{how}: {measure.unreadable} of {measure.replies} test replies unreadable"
