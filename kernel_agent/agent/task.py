"""The message that begins a run: the task, its files, and what the user has done in the kernel."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from kernel_agent.records import Changes, DataFile, Given, RunStart, changes_line

COMPUTE = "Do not spend a cell on seeing these lines again: begin with what computes."


def task_text(task: str, data: Sequence[DataFile], listing: str = "") -> str:
    """Return a task and its files. The offline analyst reads this form, too."""
    text = f"<task>\n{task}\n</task>"
    if data:
        files = listing or "\n".join(f"- {f.path} ({f.about})" for f in data)
        text += f"\n\nData files, relative to the working directory:\n{files}"
    if any(line.startswith("  ") for line in listing.split("\n")):  # lines of a file
        text += f"\n\n{COMPUTE}"
    return text


def run_text(start: RunStart) -> str:
    """Return the message that begins a run, with what the user has put into the kernel."""
    text = task_text(start.task, start.data, start.listing)
    if start.given:
        told = "\n".join(given_text(given) for given in start.given)
        text += f"\n\nVariables of the user, set in the kernel already:\n{told}"
    if start.wanted:
        names = ", ".join(start.wanted)
        text += (
            f"\n\nThe user takes these variables back when you have answered: {names}. Set them."
        )
    changed = changes_line(_others(start), max_chars=2000)
    if changed:
        text += f"\n\nSince the last step, the kernel was changed from outside:\n{changed}"
    return text


def given_text(given: Given) -> str:
    """Describe to the model a variable that the user has put into the kernel."""
    head = ", ".join(filter(None, (f"- {given.name}: {given.type}", given.shape)))
    if given.again:
        head += " (the user has changed it since you saw it last: what you made of it is outdated"
        if given.undone:
            head += f"; your change to it in step {given.undone} is gone"
        head += ")"
    return "\n".join([head, *(f"  {line}" for line in given.about.splitlines())])


def _others(start: RunStart) -> Changes | None:
    """Return the changes since the last step without the variables that were given."""
    if start.changes is None or not start.given:
        return start.changes
    names = {given.name for given in start.given}
    return dataclasses.replace(
        start.changes,
        added=tuple(v for v in start.changes.added if v.name not in names),
        changed=tuple(v for v in start.changes.changed if v.name not in names),
    )
