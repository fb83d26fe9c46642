"""Result of a run, as front ends and programs read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from kernel_agent.records import (
    Delegated,
    ExitStatus,
    Json,
    RunStart,
    RunStop,
    Step,
    Usage,
    agents_of,
)


@dataclass(frozen=True, kw_only=True, repr=False)
class Run:
    """Result of a run.

    ``answer`` is a plain value where there is one (number, text, list, dict, small table as a
    list of rows) and the text otherwise; None when the run was not answered. ``text`` is what a
    person reads. ``partial`` says what was achieved when there is no answer.
    """

    run_id: str
    task: str
    status: ExitStatus
    answer: Json
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
    ) -> Self:
        """Return the result of a run's records; called by the runner."""
        answer = stop.answer
        value: Json = None
        if answer is not None:
            value = answer.text if answer.value is None else answer.value
        return cls(
            run_id=start.run_id,
            task=start.task,
            status=stop.status,
            answer=value,
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
        )
