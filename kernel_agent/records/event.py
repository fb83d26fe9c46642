"""Events for a live view while a step is under way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from kernel_agent.records.action import Action
from kernel_agent.records.cell import OutputDict
from kernel_agent.records.conversation import Json
from kernel_agent.records.trace import Condensation, FormatChange, RunStart, RunStop, Step, Undone


@dataclass(frozen=True, kw_only=True)
class ReplyText:
    """A piece of the model's reply, as it is written.

    ``reasoning`` is kept apart, and so is a native ``call``: its name, and then the JSON of its
    arguments, in which the code of a cell is one string.
    """

    text: str
    reasoning: bool = False
    call: bool = False


@dataclass(frozen=True, kw_only=True)
class Acting:
    """An action was read and is about to run."""

    number: int
    action: Action


@dataclass(frozen=True, kw_only=True)
class Output:
    """An output of the running cell, as it arrives."""

    number: int
    output: OutputDict


@dataclass(frozen=True, kw_only=True)
class Question:
    """A person is asked whether a cell or a call may go ahead; the run waits.

    ``number`` is the step's. For a cell ``code`` is its source; for a call ``name`` and
    ``arguments`` are what would be called, and ``code`` is the cell that calls, where known.
    """

    kind: Literal["cell", "call"]
    number: int
    reason: str
    code: str = ""
    name: str = ""
    arguments: Json = None


@dataclass(frozen=True, kw_only=True)
class Notice:
    """A notice for the person: a retry, a format asked for again, a linked file.

    ``run_id`` is the delegated run that it is about; empty for the run that is followed. ``good``
    is news that was wished for, such as a file that was written: nothing to be warned of.
    """

    text: str
    run_id: str = ""
    good: bool = False


Event: TypeAlias = (
    RunStart
    | ReplyText
    | Acting
    | Output
    | Question
    | Notice
    | Step
    | RunStop
    | FormatChange
    | Condensation
    | Undone
)
