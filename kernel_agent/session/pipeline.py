"""Fixed cells instead of a model: they decide what the one loop does next.

For work whose steps are known: the same kernel, budget, trace and notebook. A notebook's code cells
are run in order as steps, the Markdown above each is its thought, and what was measured of them is
recorded as of any run. The first cell that fails ends the run, unless the notebook itself says that
it may (the tag ``raises-exception``); one that it says to skip (``skip-execution``) is not run.
Both tags are those of nbclient.

What the cells name of the files beside the notebook goes with them (:func:`files_beside`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path

from kernel_agent.agent import OBSERVATION_CHARS, CellFailed, Stopped, Turn, check_kernel
from kernel_agent.errors import NotebookError, UsageError
from kernel_agent.records import Answer, CellResult, Code, Meter, Record, Step
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

    What an exported notebook says of its own run (question, answer, appendix) is no thought, and
    its first cell no step where the session has all that it gives.

    Raises
    ------
    NotebookError
        It is missing, is no notebook, is for another language, or holds no code.
    """
    from kernel_agent.notebook import is_about_its_run, is_bare_setup, is_skipped, read_runnable

    notebook = read_runnable(path)
    cells: list[FixedCell] = []
    above: list[str] = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            above += [] if is_about_its_run(cell) else [cell.source]
        elif cell.cell_type != "code" or is_skipped(cell) or is_bare_setup(cell):
            continue
        elif cell.source.strip():
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
    from kernel_agent.session.verified_copy import MAX_FILES, may_be_input

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
    """Return a predicate: whether the code names a relative path.

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
    """Return the texts that may be paths in code: quoted ones, words of commands and magics."""
    return {*_WORD.findall(code), *filter(None, chain.from_iterable(_QUOTED.findall(code)))}


class FixedCells:
    """Decides by a list: each cell in its turn, until one fails or all have run.

    Parameters
    ----------
    cells
        What to run, in order.
    observation_chars
        Characters of an observation that are kept.

    Raises
    ------
    UsageError
        The caller's: there is no cell.
    """

    def __init__(
        self, cells: Sequence[FixedCell], *, observation_chars: int = OBSERVATION_CHARS
    ) -> None:
        if not cells:
            raise UsageError("there is no cell to run")
        self._cells = cells
        self._done = 0
        self._meter: Meter | None = None
        self._answer: Answer | None = None  # the first that a cell has given
        self.observation_chars = observation_chars

    async def decide(self, turn: Turn) -> Code:
        """Return the next cell."""
        self._meter = turn.ledger.meter
        return self._cells[self._done].code

    def take(self, record: Record) -> None:
        """Do nothing: the cells are fixed."""

    def remark(self, step: Step, meter: Meter) -> str:  # noqa: ARG002 - nobody reads it
        """Add nothing."""
        return ""

    def judge(self, step: Step, *, stopped: bool) -> Answer | None:
        """Return the answer when all cells have run, or raise the error that ends the run."""
        cell, result = self._cells[self._done], step.result
        assert result is not None
        self._done += 1
        self._answer = self._answer or result.answer
        check_kernel(step)
        if stopped:
            raise Stopped
        left = self._meter.seconds_left if self._meter else None
        if self._meter and result.status == "timeout" and left is not None and left <= 0:
            self._meter.check()  # the run's time was over, not the cell's
        if not result.ok and not cell.may_fail:
            raise CellFailed(_failure(step.number, result))
        count = len(self._cells)
        if self._done < count:
            return None
        return self._answer or Answer(
            text=f"All {count} cells ran." if count > 1 else "The cell ran."
        )


def _failure(number: int, result: CellResult) -> str:
    error = result.error
    if result.status == "timeout":
        return f"step {number} took longer than it may ({result.seconds:.0f} s)"
    what = f"{error.ename}: {error.evalue}" if error else result.status
    return f"step {number} failed: {one_line(what, 300)}"
