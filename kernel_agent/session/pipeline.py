"""Fixed cells instead of a model: the same kernel, budget, trace and notebook, without a loop.

For work whose steps are known. A notebook's code cells are run in order as steps, the Markdown
above each is its thought, and what was measured of them is recorded as of any run. The first cell
that fails ends the run, unless the notebook itself says that it may (the tag ``raises-exception``);
one that it says to skip (``skip-execution``) is not run. Both tags are those of nbclient.

What the cells name of the files beside the notebook goes with them (:func:`files_beside`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path

from kernel_agent.agent import LIMITS, achieved, limit_text, now, observe
from kernel_agent.errors import BudgetExceeded, NotebookError
from kernel_agent.records import (
    Acting,
    Answer,
    CellResult,
    Code,
    Event,
    ExitStatus,
    Meter,
    Record,
    RunStart,
    RunStop,
    Step,
    StopSignal,
    Visit,
)
from kernel_agent.safe import Folder, one_line
from kernel_agent.session.inputs import LINK_ABOVE_BYTES, Beside

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
    from kernel_agent.session.verification import is_skipped, read_runnable

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


def files_beside(path: str | Path, cells: Sequence[FixedCell]) -> list[Beside]:
    """Return the files in a notebook's folder that its cells name, as far as text shows it.

    A file counts as named where its path, its name, one of its folders or a pattern that it fits
    stands in the code, or where it is a module that the code imports. Hidden files, notebooks and
    what links lead to are not looked at.

    Raises
    ------
    NotebookError
        The folder cannot be read, or a file is too large to be copied.
    """
    from kernel_agent.session.verification import MAX_FILES, may_be_input

    home = Path(path).resolve().parent
    is_named = _naming("\n".join(cell.code.source for cell in cells))
    try:
        with Folder(home) as folder:
            entries = folder.files(wanted=may_be_input, max_entries=MAX_FILES)
            named = [entry for entry in entries if entry.is_file and is_named(entry.path)]
    except OSError as error:
        raise NotebookError(f"cannot read the folder {home}: {error.strerror}") from None
    large = [one_line(e.path, 100) for e in named if e.status.st_size > LINK_ABOVE_BYTES]
    if large:
        raise NotebookError(
            f"{large[0]} beside the notebook is larger than 1 GiB: name it with --data, "
            "and read it from data/"
        )
    return [Beside(folder=home, path=entry.path) for entry in named]


_QUOTED = re.compile(r"\"([^\"\n]{1,300})\"|'([^'\n]{1,300})'")
_WORD = re.compile(r"[^\s'\"(){}\[\],;:=<>|&`$]+")
_FILLED_IN = re.compile(r"\{[^{}\n]{0,200}\}|%[sd]")
_IMPORTED = re.compile(r"^\s*(?:from|import)\s+([\w., ]+)", re.MULTILINE)


def _naming(code: str) -> Callable[[str], bool]:
    """Return what says of a relative path whether the code names it.

    Examples
    --------
    >>> is_named = _naming("import helpers; pd.read_csv('a.csv'); glob(f'in/sales_{year}*.csv')")
    >>> [p for p in ("a.csv", "ba.csv", "in/sales_24.csv", "helpers.py") if is_named(p)]
    ['a.csv', 'in/sales_24.csv', 'helpers.py']
    """
    words = {word.removeprefix("./").rstrip("/") for word in _texts(code)}
    patterns = [
        word.removeprefix("./")
        for word in _texts(_FILLED_IN.sub("*", code))
        if ("*" in word or "?" in word) and word.strip("*?./")
    ]
    imported = {
        name.split(" as ")[0].strip().split(".")[0]
        for names in _IMPORTED.findall(code)
        for name in names.split(" import ")[0].split(",")
    }

    def is_named(path: str) -> bool:
        parts = path.split("/")
        ways = ["/".join(parts[: depth + 1]) for depth in range(len(parts))]
        if words.intersection([*ways, parts[-1]]):
            return True
        if any(fnmatchcase(path, pattern) for pattern in patterns):
            return True
        return path.endswith(".py") and parts[0].removesuffix(".py") in imported

    return is_named


def _texts(code: str) -> set[str]:
    """Return what may be a path in code: texts in quotes, and words of commands and magics."""
    return {*_WORD.findall(code), *filter(None, chain.from_iterable(_QUOTED.findall(code)))}


class Pipeline:
    """One run of fixed cells; has the face of :class:`~kernel_agent.agent.loop.Agent`.

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
    stop
        Set when somebody asks for the end: the run ends as interrupted when the cell has ended.
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
        stop: StopSignal,
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
        self._stopping = stop
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
            if self._stopping.is_set:
                break
            result = await self._step(start, cell, number)
            answer = answer or result.answer
            if result.status == "dead":
                reason = result.error.evalue if result.error else ""
                message = f"the kernel was lost: {reason}"
                return self._stop(start, ExitStatus.KERNEL_LOST, message)
            if not result.ok and not self._stopping.is_set and not cell.may_fail:
                return self._stop(start, ExitStatus.CELL_FAILED, _failure(number, result))
        if self._stopping.is_set:
            return self._stop(start, ExitStatus.INTERRUPTED, "stopped on request")
        count = len(self._cells)
        all_ran = f"All {count} cells ran." if count > 1 else "The cell ran."
        return self._stop(start, ExitStatus.ANSWERED, "", answer or Answer(text=all_ran))

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
