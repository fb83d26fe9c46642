"""The rules by which a run goes on or ends: repeated failures, repeated denials, the format ladder.

A model that does not learn from what it is told costs money until a cap is reached. Three rules
notice it earlier. :class:`Patience` ends a run in which the same action fails in the same way again
and again, or in which the model does not take no for an answer. :class:`Ladder` goes down to a
format that asks for less when the model keeps breaking the one it has. :func:`warning` tells the
model that its next step is the last. Pure: steps and replies in, decisions out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

from kernel_agent.agent.outcome import Denied, LoopDetected
from kernel_agent.errors import FormatError
from kernel_agent.formats import Format, write_call
from kernel_agent.records import (
    Action,
    Calls,
    FormatChange,
    Meter,
    Reply,
    Step,
    decision_line,
    denials,
    list_decisions,
)

SAME_FAILURES = 3  # identical failures of an identical action that make a loop
SAME_DENIALS = 3  # denials of an identical action, or steps in a row with a denial at all …
DENIALS_IN_A_ROW = 5  # … that end a run as denied
KEEPS_BREAKING = 3  # unreadable replies, at least half of all, after which another format is tried
ADDRESS = re.compile(r"0x[0-9a-f]{6,}")

Lower = Callable[[Format], tuple[Format, str] | None]
"""Gives the format that asks for less than another, with its system prompt, or None when there is
none or the user chose the format."""


class Patience:
    """Counts the failures and denials of one run; ends it when they repeat."""

    def __init__(self) -> None:
        self._failures: Counter[tuple[str, str]] = Counter()
        self._denials: Counter[str] = Counter()
        self._denied_in_a_row = 0

    def judge(self, step: Step) -> None:
        """Take in a step that gave no answer.

        Raises
        ------
        Denied
            The same was denied too often, or something in too many steps in a row.
        LoopDetected
            The same action failed in the same way too often.
        """
        self._count_denial(step)
        if not step.ok:
            self._count_failure(step)

    def _count_denial(self, step: Step) -> None:
        if not denials(step):
            self._denied_in_a_row = 0
            return
        key = _what_was_done(step)
        self._denials[key] += 1
        self._denied_in_a_row += 1
        last = decision_line([d for d in list_decisions(step) if not d.decision.allowed][-1])
        if self._denials[key] >= SAME_DENIALS:
            raise Denied(f"the same action was denied {SAME_DENIALS} times ({last})")
        if self._denied_in_a_row >= DENIALS_IN_A_ROW:
            raise Denied(f"something was denied in {DENIALS_IN_A_ROW} steps in a row ({last})")

    def _count_failure(self, step: Step) -> None:
        """Count a failure by its action and its error without addresses, which always differ."""
        error = step.result.error if step.result else None
        failed = f"{error.ename}: {error.evalue}" if error else step.observation.text
        key = (_what_was_done(step), ADDRESS.sub("0x…", failed))
        self._failures[key] += 1
        if self._failures[key] >= SAME_FAILURES:
            first_line = key[1].splitlines()[0] if key[1] else "no readable action"
            raise LoopDetected(
                f"the same action failed {SAME_FAILURES} times in the same way ({first_line})"
            )


def _what_was_done(step: Step) -> str:
    if isinstance(step.action, Calls):
        return "\n".join(write_call(call) for call in step.action.calls)
    return step.code or (step.retries[-1].content if step.retries else "")


class Ladder:
    """Reads replies in a format; goes down to another one when the model keeps breaking it.

    Parameters
    ----------
    first
        The format to begin with.
    lower
        Gives the one below.
    """

    def __init__(self, first: Format, lower: Lower = lambda _: None) -> None:
        self.format = first
        """The format in which the model writes its actions now."""
        self._lower = lower
        self._replies = self._unreadable = 0  # since the format was chosen

    def read(self, reply: Reply) -> Action:
        """Read a reply as an action, and count it.

        Raises
        ------
        FormatError
            It cannot be read. Where its length is to blame, or it is words alone, that is not
            counted against the format.
        """
        self._replies += 1
        try:
            return self.format.parse(reply)
        except FormatError as error:
            self._unreadable += error.kind != "truncated" and not error.words
            raise

    def go_down(self) -> FormatChange | None:
        """Take the format below, if the model keeps breaking this one and there is one below.

        Returns
        -------
        FormatChange or None
            What is recorded of it; the run and the time are the caller's to add.
        """
        often = self._unreadable >= KEEPS_BREAKING and 2 * self._unreadable >= self._replies
        lower = self._lower(self.format) if often else None
        if lower is None:
            return None
        reason = f"{self._unreadable} of {self._replies} replies in {self.format.name} unreadable"
        self.format, system_prompt = lower
        self._replies = self._unreadable = 0
        return FormatChange(
            run_id="", format=self.format.name, reason=reason, system_prompt=system_prompt
        )


def warning(step: Step, meter: Meter) -> str:
    """Return the warning that the model's next step is its last; empty before that."""
    cap = meter.budget.max_steps
    answered = step.result is not None and step.result.answer is not None
    if cap is None or cap < 2 or meter.steps != cap - 1 or answered:
        return ""
    return "(The next step is the last one: call final_answer in it.)"
