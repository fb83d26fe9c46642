"""A record as it stands in the conversation: whole, shortened, or as one line. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kernel_agent.agent.measure import Size, size_of
from kernel_agent.agent.summary import SAID_CHARS, describe_ending, describe_observation
from kernel_agent.agent.task import run_text
from kernel_agent.formats import Format
from kernel_agent.records import (
    Code,
    Message,
    Observation,
    Record,
    RunStart,
    RunStop,
    Step,
    Undone,
    model_text,
)
from kernel_agent.safe import one_line, plain, shorten
from kernel_agent.tools import mark_like


@dataclass
class Entry:
    """A record in the conversation, and how it stands there now."""

    record: Record
    messages: tuple[Message, ...]
    size: Size
    level: Literal["whole", "shortened", "masked"] = "whole"
    cut: str | None = None  # what stands in the place of an observation that is not whole

    @property
    def number(self) -> int:
        """The step's number; 0 for other records."""
        return self.record.number if isinstance(self.record, Step) else 0

    @property
    def text(self) -> str:
        """What stands there of the step's observation; nothing for other records."""
        whole = self.record.observation.text if isinstance(self.record, Step) else ""
        return whole if self.cut is None else self.cut


def index_after(entries: Sequence[Entry], last: int) -> int:
    """Return the index after a step, and after the ending of its run."""
    end = 1 + max((i for i, e in enumerate(entries) if 0 < e.number <= last), default=-1)
    while end < len(entries) and isinstance(entries[end].record, RunStop):
        end += 1
    return end


def mask(step: Step, solved: bool = False) -> str:  # noqa: FBT001, FBT002 - the one thing to say
    """Return the line that replaces an observation: what it held, and how to reopen it.

    Parameters
    ----------
    step
        The step.
    solved
        Whether a later step ran: then what went wrong in this one needs no more than its name.
    """
    text = step.observation.text
    error = step.result.error if step.result else None
    if error is not None and solved:
        line = f"[{one_line(f'{error.ename}: {error.evalue}', 160)} (solved since)]"
        return line if len(line) < len(text) else text
    answer = step.result.answer if step.result else None
    if answer is not None:  # short, and what the person talks of from then on
        said = f"Final answer: {shorten(plain(answer.text), SAID_CHARS)}"
        said = mark_like(said, [text])
        return said if len(said) < len(text) else text
    where = where_is(step)
    line = f"[{describe_observation(step)}{'; ' + where if where else ''}]"
    # A few lines with the result in them are worth more than the room that they take.
    return line if 2 * len(line) < len(text) else text


def where_is(step: Step) -> str:
    """Say where the full text is: in the kernel, if the step was a cell."""
    return f"outputs[{step.number}] holds the full text" if isinstance(step.action, Code) else ""


def with_text(step: Step, text: str) -> Step:
    """Return a step as the conversation has it from now on: other text, no pictures."""
    observation = Observation(text=text, shortened=True)
    return dataclasses.replace(step, observation=observation)


def make_entry(record: Record, format: Format) -> Entry:  # noqa: A002 - the project's word
    """Return the conversation's entry for a record."""
    if isinstance(record, RunStart):
        messages: tuple[Message, ...] = (Message(role="user", content=run_text(record)),)
    elif isinstance(record, Step):
        messages = format.write(record)
    else:
        text = describe_ending(record) if isinstance(record, RunStop) else ""
        if isinstance(record, Undone):
            text = model_text(record)
        messages = (Message(role="user", content=text),) if text else ()
    return Entry(record=record, messages=messages, size=size_of(messages))


def earlier(last: int, *, task: RunStart | None, notes: str, plan: str, variables: str) -> Message:
    """Return the message that stands for the steps up to ``last``, which are not shown."""
    where = (
        f"<earlier>\nThe steps up to step {last} are not shown. `outputs[k]` in the kernel is "
        "the full text of what step k showed, `outputs.code(k)` its code."
    )
    parts = [
        run_text(task) if task else "",
        where,
        notes,
        f"Plan:\n{plan}" if plan else "",
        f"{variables}\n</earlier>",
    ]
    return Message(role="user", content="\n\n".join(filter(None, parts)))
