"""Fixed cells instead of a model: the same kernel, budget, trace and notebook, without a loop.

For work whose steps are known. A notebook's code cells are run in order as steps, the Markdown
above each is its thought, and what was measured of them is recorded as of any run. The first cell
that fails ends the run, unless the notebook itself says that it may (the tag ``raises-exception``);
one that it says to skip (``skip-execution``) is not run. Both tags are those of nbclient.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_agent.agent import LIMITS, achieved, limit_text, now
from kernel_agent.budget import Meter
from kernel_agent.errors import BudgetExceeded, NotebookError
from kernel_agent.kernel.observation import observe
from kernel_agent.records import (
    Acting,
    Answer,
    CellResult,
    Code,
    Event,
    ExitStatus,
    Record,
    RunStart,
    RunStop,
    Step,
    Visit,
)
from kernel_agent.text import one_line

FIXED = "fixed cells"  # what stands where a run names its model


@dataclass(frozen=True, kw_only=True)
class FixedCell:
    """A cell to run; ``may_fail`` says that an exception in it does not end the run."""

    code: Code
    may_fail: bool = False


def read_cells(path: str | Path) -> list[FixedCell]:
    """Read the code cells of a notebook, each with the Markdown above it as its thought.

    Raises
    ------
    NotebookError
        It is missing, is no notebook, is for another language, or holds no code.
    """
    from kernel_agent.notebook.verify import is_skipped, read_runnable

    notebook = read_runnable(path)
    cells: list[FixedCell] = []
    above: list[str] = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            above.append(cell.source)
        elif cell.cell_type == "code" and cell.source.strip() and not is_skipped(cell):
            code = Code(source=cell.source, thought="\n\n".join(above))
            tags = cell.metadata.get("tags") or ()
            cells.append(FixedCell(code=code, may_fail="raises-exception" in tags))
            above = []
    if not cells:
        raise NotebookError(f"{path} holds no code to run")
    return cells


class Pipeline:
    """One run of fixed cells; has the face of :class:`~kernel_agent.agent.Agent`.

    Parameters
    ----------
    cells
        What to run, in order.
    execute
        Carries out a cell as step number n.
    record
        Keeps a record in the trace.
    meter
        What the run has spent and may spend.
    on_event
        Told what happens, as it happens.
    observation_chars
        Characters of an observation that are kept.
    visits
        What was asked of the network since the last time.
    obeyed
        What cells made since the last time that programs obey.
    """

    def __init__(
        self,
        cells: Sequence[FixedCell],
        *,
        execute: Callable[[Code, int], Awaitable[CellResult]],
        record: Callable[[Record], None],
        meter: Meter,
        on_event: Callable[[Event], None],
        observation_chars: int,
        visits: Callable[[], tuple[Visit, ...]] = tuple,
        obeyed: Callable[[], tuple[str, ...]] = tuple,
    ) -> None:
        self._cells = cells
        self._execute = execute
        self._keep = record
        self._meter = meter
        self._on_event = on_event
        self._observation_chars = observation_chars
        self._visits = visits
        self._obeyed = obeyed
        self._stopped = False
        self.steps: list[Step] = []

    async def run(self, start: RunStart, *, first_step: int = 1) -> RunStop:
        """Run every cell, or as far as it goes."""
        self._record(start)
        answer: Answer | None = None
        for number, cell in enumerate(self._cells, first_step):
            try:
                self._meter.check()
            except BudgetExceeded as error:
                return self._stop(start, LIMITS[error.limit], limit_text(error))
            if self._stopped:
                break
            result = await self._step(start, cell, number)
            answer = answer or result.answer
            if result.status == "dead":
                reason = result.error.evalue if result.error else ""
                message = f"the kernel was lost: {reason}"
                return self._stop(start, ExitStatus.KERNEL_LOST, message)
            if not result.ok and not self._stopped and not cell.may_fail:
                return self._stop(start, ExitStatus.CELL_FAILED, _failure(number, result))
        if self._stopped:
            return self._stop(start, ExitStatus.INTERRUPTED, "stopped on request")
        count = len(self._cells)
        all_ran = f"All {count} cells ran." if count > 1 else "The cell ran."
        return self._stop(start, ExitStatus.ANSWERED, "", answer or Answer(text=all_ran))

    def stop(self) -> None:
        """End the run as interrupted when the cell ends; whoever calls interrupts the kernel."""
        self._stopped = True

    async def _step(self, start: RunStart, cell: FixedCell, number: int) -> CellResult:
        self._on_event(Acting(number=number, action=cell.code))
        began = time.monotonic()
        result = await self._execute(cell.code, number)
        self._meter.count_step()
        step = Step(
            run_id=start.run_id,
            number=number,
            action=cell.code,
            result=result,
            observation=observe(result, step=number, max_chars=self._observation_chars),
            time=now(),
            cell_seconds=time.monotonic() - began,
        )
        self.steps.append(step)
        self._record(step)
        return result

    def _stop(
        self, start: RunStart, status: ExitStatus, message: str, answer: Answer | None = None
    ) -> RunStop:
        stop = RunStop(
            run_id=start.run_id,
            status=status,
            answer=answer,
            message=message,
            partial="" if answer else achieved(self.steps),
            steps=len(self.steps),
            seconds=self._meter.seconds,
            usage=self._meter.usage,
            time=now(),
            network=self._visits(),
            obeyed=self._obeyed(),
        )
        self._record(stop)
        return stop

    def _record(self, record: Record) -> None:
        self._keep(record)
        self._on_event(record)


def _failure(number: int, result: CellResult) -> str:
    error = result.error
    if result.status == "timeout":
        return f"step {number} took longer than it may ({result.seconds:.0f} s)"
    what = f"{error.ename}: {error.evalue}" if error else result.status
    return f"step {number} failed: {one_line(what, 300)}"
