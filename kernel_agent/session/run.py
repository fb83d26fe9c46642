"""Result of a run, as front ends and programs read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from kernel_agent.records import (
    DataFile,
    Delegated,
    ExitStatus,
    Json,
    Plain,
    RunStart,
    RunStop,
    Step,
    Usage,
    agents_of,
    plain_answer,
)
from kernel_agent.session.answers import Taken


@dataclass(frozen=True, kw_only=True, repr=False)
class Run:
    """Result of a run.

    ``value`` is the answer itself: a DataFrame, a Series, an array, a picture (also of a figure),
    a date, a dict, a number, a text, with its type and all its rows. Where it cannot leave the
    kernel, ``answer`` stands there, too, ``instead`` is a line with the reason, and ``csv`` the
    text of a table.

    ``answer`` is the same in JSON types: numbers are plain, dates ISO, a table is a list of
    records, a Series a dict; what is long, a dict of its ``type``, ``length`` and what is ``first``
    in it; what has no such form, a few words. None when the run was not answered. ``text`` is what
    a person reads, ``note`` the caveat that was given beside it. ``in_words`` says that the model
    had written the answer, and no cell gave it. ``partial`` says what was achieved when there is no
    answer.
    """

    run_id: str
    task: str
    status: ExitStatus
    answer: Plain
    text: str
    partial: str
    message: str
    steps: tuple[Step, ...]
    seconds: float
    usage: Usage
    trace: Path
    notebook: Path | None
    sandbox: str
    sandbox_report: Mapping[str, Json]
    files: tuple[str, ...]
    obeyed: tuple[str, ...] = ()
    """Files that its cells made and that programs obey in the folder in which they are started."""
    read: tuple[DataFile, ...] = ()
    """Files of folders of data that its cells opened."""
    value: Any = field(default=None, compare=False)
    instead: str = ""
    csv: str = ""
    note: str = ""
    in_words: bool = False

    @property
    def agents(self) -> tuple[Delegated, ...]:
        """The runs that it delegated, each with those beneath it."""
        return agents_of(self.steps)

    def __repr__(self) -> str:
        return f"<Run {self.run_id}: {self.status} in {len(self.steps)} steps, {self.notebook}>"

    @classmethod
    def of(
        cls,
        start: RunStart,
        stop: RunStop,
        *,
        steps: Sequence[Step],
        trace: Path,
        notebook: Path | None,
        files: Sequence[str],
        taken: Taken,
    ) -> Self:
        """Return the result of a run's records; called by the runner."""
        answer = stop.answer
        return cls(
            run_id=start.run_id,
            task=start.task,
            status=stop.status,
            answer=plain_answer(answer) if answer else None,
            text=answer.text if answer else "",
            partial=stop.partial,
            message=stop.message,
            steps=tuple(steps),
            seconds=stop.seconds,
            usage=stop.usage,
            trace=trace,
            notebook=notebook,
            sandbox=str(start.sandbox.get("level", "")),
            sandbox_report=start.sandbox,
            files=tuple(files),
            obeyed=tuple(stop.obeyed),
            read=stop.read,
            value=taken.value,
            instead=taken.instead,
            csv=taken.csv,
            note=answer.note if answer else "",
            in_words=answer is not None and answer.in_words,
        )
