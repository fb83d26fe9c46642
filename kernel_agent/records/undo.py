"""An undo in words, and the conversation after it. Pure.

The trace is only appended to, so a step that was undone stays in it, and a record
(:class:`~kernel_agent.records.Undone`) says that it does not hold any more. Which steps those are,
:mod:`kernel_agent.records.reading` says.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from kernel_agent.records.reading import count_text
from kernel_agent.records.trace import Condensation, Record, RunStart, RunStop, Step, Undone
from kernel_agent.safe import one_line

UNDO = re.compile(
    r"/?undo(?:\s+(?:(?P<steps>\d{1,6})|(?P<question>question)))?\s*(?::\s*(?P<reason>.*))?",
    re.IGNORECASE,
)
"""A person's words for taking steps back: ``undo``, ``undo 3: the join was wrong``, and
``undo question`` for all steps of the last one."""

MAX_REASON = 500  # characters
MAX_TOLD = 3  # differences that the model is told


def drop_undone(records: Sequence[Record], undone: Undone) -> list[Record]:
    """Return the records of a conversation without the undone ones.

    The steps go, with the endings of their runs and everything that had shortened them. The tasks
    stay: a person who takes steps back mostly wants the same task done in another way.

    Parameters
    ----------
    records
        What was told before, without steps of delegated runs.
    undone
        The steps that go.
    """
    gone = [r for r in records if isinstance(r, Step) and r.number >= undone.first]
    runs = {step.run_id for step in gone}
    kept: list[Record] = []
    later = False
    for record in records:
        later = later or any(record is step for step in gone[:1])
        if isinstance(record, Step) and record.number >= undone.first:
            continue
        if isinstance(record, RunStop) and record.run_id in runs:
            continue
        if isinstance(record, Undone) and record.first >= undone.first:
            continue
        if isinstance(record, Condensation) and (later or record.last >= undone.first):
            continue
        if isinstance(record, RunStart) and later:  # what the person did before it is gone, too
            kept.append(dataclasses.replace(record, changes=None, given=()))
        else:
            kept.append(record)
    return kept


def steps_text(undone: Undone) -> str:
    """Return the undone steps as the beginning of a sentence."""
    if undone.first == undone.last:
        return f"Step {undone.first}"
    return f"Steps {undone.first} to {undone.last}"


def reason_text(undone: Undone) -> str:
    """Return the person's reason behind a colon, or nothing."""
    reason = one_line(undone.reason, MAX_REASON).rstrip(".")
    return f": {reason}" if reason else ""


def model_text(undone: Undone) -> str:
    """Return the line that the model reads in place of the steps."""
    text = (
        f"({steps_text(undone)} {_were(undone)} undone by the user{reason_text(undone)}. The "
        f"variables, and files that cells made, are again as they were before step {undone.first}"
    )
    if not undone.differences:
        return f"{text}.)"
    told = "; ".join(one_line(each, 160).rstrip(".") for each in undone.differences[:MAX_TOLD])
    more = len(undone.differences) - MAX_TOLD
    return f"{text}, with exceptions: {told}{f'; and {more} more' if more > 0 else ''}.)"


def person_text(undone: Undone) -> str:
    """Return the lines that tell a person of an undo."""
    before = f"Variables, conversation and cells' files are as before step {undone.first}."
    lines = [f"{steps_text(undone)} {_were(undone)} undone{reason_text(undone)}. {before}"]
    if undone.withdrawn:
        lines.append("The answer that was given there does not hold any more.")
    if undone.cells:
        cells = count_text(undone.cells, "cell")
        lines.append(f"{cells} of your own, run since then, went with it.")
    if undone.given:
        names = one_line(", ".join(undone.given), 300)
        lines.append(f"Passed in since then, and taken back with it: {names}.")
    if undone.files:
        lines.append(f"Moved to undone/: {one_line(', '.join(undone.files), 1000)}")
    if undone.differences:
        lines.append("What was played again did not all come out as before:")
        lines += [f"- {one_line(each, 300)}" for each in undone.differences]
    return "\n".join(lines)


def _were(undone: Undone) -> str:
    return "was" if undone.first == undone.last else "were"
