"""What an undo leaves of the records: which steps are taken back, and what is still told. Pure.

The trace is only appended to, so a step that was undone stays in it, and a record
(:class:`~kernel_agent.records.Undone`) says that it does not hold any more. Whatever is made of the
records asks here: the conversation (:mod:`kernel_agent.agent.context`), the notebook, the view.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from kernel_agent.records.trace import Condensation, Record, RunStart, RunStop, Step, Undone
from kernel_agent.safe import one_line

MAX_REASON = 500  # characters
MAX_TOLD = 3  # differences that the model is told


def undone_steps(records: Sequence[Record]) -> dict[tuple[str, int], Undone]:
    """Return what took each undone step back, by the step's run and number.

    Parameters
    ----------
    records
        A trace, in order. Delegated runs have kernels and numbers of their own: their steps are
        never undone themselves.
    """
    found: dict[tuple[str, int], Undone] = {}
    steps: list[Step] = []
    own = _own_runs(records)
    for record in records:
        if isinstance(record, Step) and record.run_id in own:
            steps.append(record)
        elif isinstance(record, Undone):
            while steps and steps[-1].number >= record.first:
                step = steps.pop()
                found[step.run_id, step.number] = record
    return found


def undone_given(records: Sequence[Record]) -> set[str]:
    """Return the runs before which variables were put that an undo has taken out again."""
    gone: set[str] = set()
    before: dict[str, int] = {}  # each run's last step before it
    own, last = _own_runs(records), 0
    for record in records:
        if isinstance(record, Step) and record.run_id in own:
            last = max(last, record.number)
        elif isinstance(record, RunStart) and record.run_id in own and record.given:
            before[record.run_id] = last
        elif isinstance(record, Undone):
            gone |= {run_id for run_id, number in before.items() if number >= record.first}
    return gone


def standing_steps(records: Sequence[Record]) -> list[Step]:
    """Return the steps of a session's own runs that hold, in order."""
    own, gone = _own_runs(records), undone_steps(records)
    steps = (r for r in records if isinstance(r, Step) and r.run_id in own)
    return [step for step in steps if (step.run_id, step.number) not in gone]


def still_told(records: Sequence[Record], undone: Undone) -> list[Record]:
    """Return the records of a conversation without what an undo took out of it.

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
    """Return which steps went, as a sentence begins with it."""
    if undone.first == undone.last:
        return f"Step {undone.first}"
    return f"Steps {undone.first} to {undone.last}"


def reason_text(undone: Undone) -> str:
    """Return the person's reason behind a colon, or nothing."""
    reason = one_line(undone.reason, MAX_REASON).rstrip(".")
    return f": {reason}" if reason else ""


def model_text(undone: Undone) -> str:
    """Return the line that the model is told instead of the steps."""
    text = (
        f"({steps_text(undone)} {_were(undone)} undone by the user{reason_text(undone)}. The "
        f"variables and files are again as they were before step {undone.first}"
    )
    if not undone.differences:
        return f"{text}.)"
    told = "; ".join(one_line(each, 160).rstrip(".") for each in undone.differences[:MAX_TOLD])
    more = len(undone.differences) - MAX_TOLD
    return f"{text}, with exceptions: {told}{f'; and {more} more' if more > 0 else ''}.)"


def person_text(undone: Undone) -> str:
    """Return what a person is told of an undo, in lines."""
    before = f"Variables, files and conversation are as they were before step {undone.first}."
    lines = [f"{steps_text(undone)} {_were(undone)} undone{reason_text(undone)}. {before}"]
    if undone.withdrawn:
        lines.append("The answer that was given there does not hold any more.")
    if undone.cells:
        cells = "1 cell" if undone.cells == 1 else f"{undone.cells} cells"
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


def _own_runs(records: Sequence[Record]) -> Mapping[str, RunStart]:
    starts = {r.run_id: r for r in records if isinstance(r, RunStart)}
    return {run_id: s for run_id, s in starts.items() if s.parent_id not in starts}
