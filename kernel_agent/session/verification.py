"""Verify a notebook: run it again in a fresh kernel and compare.

The cells run in a copy of the notebook's folder, so neither the folder nor the notebook changes,
whatever the cells do. Every code cell is run, in order, also after one that differs; each is
compared with its recorded outputs by :mod:`kernel_agent.notebook.comparison`. Question, answer and
figure are compared with what was exported, where the notebook says what that was. Works on any
notebook of format 4, not only on ours. A :class:`Report` is the result; :func:`certify`
writes it into the notebook, and only when asked.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import platform
import time
from collections import Counter
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kernel_agent import __version__
from kernel_agent.errors import KernelDied, NotebookError, SandboxError
from kernel_agent.notebook import (
    Comparison,
    Period,
    Verdict,
    changed_texts,
    compare,
    is_read,
    is_skipped,
    read_notebook,
    read_runnable,
    set_verified,
    worst,
    write_notebook,
)
from kernel_agent.records import CellError, CellResult, Displays, OutputDict, with_error
from kernel_agent.safe import one_line, temporary_folder
from kernel_agent.sandbox import AUTO, level_of
from kernel_agent.session.verified_copy import changed_inputs, copy_folder, own_folder

if TYPE_CHECKING:
    import nbformat

    from kernel_agent.kernel import Kernel, MakeKernel

CELL_TIMEOUT_S = 600.0
PANDAS_WIDTH = 80  # characters, by default; our kernels' tables are wider

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class CellReport:
    """The verdict on one cell.

    ``index`` counts all cells of the notebook from 0; ``detail`` is a short diff or a line.
    """

    index: int
    id: str
    role: str
    verdict: Verdict
    detail: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Report:
    """The verdict on a notebook that ran again.

    ``cells`` holds the code cells, and as ``skipped`` those tagged ``skip-execution`` and the
    steps that the notebook holds folded away as Markdown; and as ``different`` a question, answer
    or figure that was changed since the notebook was exported. ``left_out`` names files of the
    folder that were not copied. ``sources_sha256`` says of which code this is true.
    """

    path: str
    cells: tuple[CellReport, ...]
    seconds: float
    time: str
    python: str
    version: str
    sources_sha256: str
    left_out: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    """The inputs that are not as they were for the run: why what they give may differ."""
    voided: str = ""
    """The day of an earlier verdict in the notebook, whose code has been changed since."""

    @property
    def reproduces(self) -> bool:
        """Whether every cell shows the same as before."""
        return not any(c.verdict in (Verdict.DIFFERENT, Verdict.ERROR) for c in self.cells)

    @property
    def counts(self) -> dict[str, int]:
        """Number of cells by verdict."""
        counted = Counter(cell.verdict for cell in self.cells)
        return {str(verdict): counted[verdict] for verdict in Verdict if counted[verdict]}

    @property
    def summary(self) -> str:
        """One line for a person."""
        told = ", ".join(f"{count} {verdict}" for verdict, count in self.counts.items())
        end = "reproduces" if self.reproduces else "does not reproduce"
        return f"{end}: {told or 'there is no code to run'} ({self.seconds:.1f} s)"

    @property
    def line(self) -> str:
        """The verdict as it stands in the notebook, with its day and what it was made with."""
        counts = self.counts
        ran = sum(count for verdict, count in counts.items() if verdict != Verdict.SKIPPED)
        bad = counts.get(Verdict.DIFFERENT, 0) + counts.get(Verdict.ERROR, 0)
        told = f"{ran - bad} of {ran} cells show the same when run again"
        made = f"Python {self.python}, kernel-agent {self.version}, code {self.sources_sha256[:8]}"
        verdict = "Verified" if self.reproduces else "Does not reproduce"
        return f"{verdict} on {self.time[:10]}: {told} ({made})."

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON types."""
        told = {"reproduces": self.reproduces, "summary": self.summary, "counts": self.counts}
        return {"path": self.path, **told, **asdict(self)}


def verify(path: str | Path, *, sandbox: str = "auto", timeout_s: float = CELL_TIMEOUT_S) -> Report:
    """Run a notebook again in a fresh kernel, and compare; works in a notebook, too.

    Parameters, and what is raised, are those of :func:`verify_notebook`.

    Returns
    -------
    Report
        ``reproduces``, ``summary`` in one line, and ``cells``, each with its ``verdict``.
    """
    return _run(verify_notebook(path, sandbox=sandbox, timeout_s=timeout_s))


async def verify_notebook(
    path: str | Path,
    *,
    sandbox: str = "auto",
    timeout_s: float = CELL_TIMEOUT_S,
    make: MakeKernel | None = None,
) -> Report:
    """Run all code cells of a notebook in a fresh kernel and compare their outputs.

    Parameters
    ----------
    path
        Any notebook of format 4; it and its folder are not changed.
    sandbox
        The level of protection of the kernel, one that starts Jupyter kernels on this machine.
    timeout_s
        Seconds until a cell is interrupted; its verdict is then ``error``.
    make
        Makes the kernel, a Jupyter kernel in the sandbox by default; for tests.

    Raises
    ------
    NotebookError
        The file is missing, is not a notebook of these formats or is for another language, or its
        folder cannot be copied, or is (or holds) a home or a directory of the system.
    SandboxError
        The level does not work here, or has no such kernel.
    KernelStartError
        No kernel could be started.
    """
    from kernel_agent.kernel import KernelSession

    if sandbox != AUTO and level_of(sandbox).kernel != "process":
        raise SandboxError(f"the level {sandbox} runs no notebook: verify at another")
    file = Path(path)
    notebook = read_runnable(file)
    folder = own_folder(file)
    began = time.monotonic()
    with temporary_folder("verified") as made:
        folders = (str(folder), str(made))
        left_out = await asyncio.to_thread(copy_folder, notebook, *map(Path, folders))
        changed = await asyncio.to_thread(lambda: tuple(changed_inputs(notebook, made)))
        width = _table_width(notebook)
        make = make or partial(KernelSession, sandbox=sandbox, table_width=width)
        async with make(cwd=made) as kernel:
            again = _Again(folders=folders, timeout_s=timeout_s)
            cells = await _run_cells(notebook, kernel, again)
    return Report(
        path=str(path),
        cells=tuple(cells),
        seconds=time.monotonic() - began,
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        python=platform.python_version(),
        version=__version__,
        sources_sha256=sources_sha256(notebook),
        left_out=tuple(left_out),
        changed=changed,
        voided=_voided(notebook),
    )


def is_exported(path: str | Path) -> bool:
    """Whether a notebook is one that an export wrote, which has a place for a verdict.

    Raises
    ------
    NotebookError
        It cannot be read.
    """
    return isinstance(read_notebook(path).metadata.get("kernel_agent"), dict)


def _voided(notebook: nbformat.NotebookNode) -> str:
    earlier = _ours(notebook).get("certificate")
    if not isinstance(earlier, dict) or earlier.get("sources_sha256") == sources_sha256(notebook):
        return ""
    return one_line(str(earlier.get("time", ""))[:10])


def certify(path: str | Path, report: Report) -> Path:
    """Write a report's verdict into the notebook: below its answer, and in its metadata.

    It holds for the code as it was: whoever changes a cell voids it, and the next verification says
    so.

    Raises
    ------
    NotebookError
        The notebook is not the one that the report is about, or cannot be written.
    """
    notebook = read_notebook(path)
    if sources_sha256(notebook) != report.sources_sha256:
        raise NotebookError(f"{path} has changed since it was verified: verify it again")
    certificate = {
        "reproduces": report.reproduces,
        "counts": report.counts,
        "time": report.time,
        "python": report.python,
        "kernel_agent": report.version,
        "sources_sha256": report.sources_sha256,
    }
    notebook.metadata["kernel_agent"] = {**_ours(notebook), "certificate": certificate}
    set_verified(notebook, report.line)
    return write_notebook(notebook, path)


def sources_sha256(notebook: nbformat.NotebookNode) -> str:
    """Return the fingerprint of the code cells' sources, in order."""
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    return hashlib.sha256(json.dumps(sources).encode()).hexdigest()


# --- running -------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Again:
    """The new run: the notebook's folder and its copy, a cell's limit, the results so far."""

    folders: tuple[str, str]
    timeout_s: float
    began: float = field(default_factory=time.time)
    displays: Displays = field(default_factory=Displays)

    def compare(self, cell: Any, outputs: Sequence[OutputDict]) -> Comparison:
        """Compare a cell's outputs; a clock may have been read since the first cell began."""
        period = Period(self.began, time.time())
        return compare(cell.outputs, outputs, folders=self.folders, period=period)


async def _run_cells(
    notebook: nbformat.NotebookNode, kernel: Kernel, again: _Again
) -> list[CellReport]:
    reports: list[CellReport] = []
    places = dict[int, int]()  # later cells may change what was compared
    number = 0
    for index, cell in enumerate(notebook.cells):
        if is_skipped(cell) and is_read(cell):
            continue  # the figure of an answer
        if is_skipped(cell):
            comparison, seconds = Comparison(verdict=Verdict.SKIPPED), 0.0
        elif cell.cell_type == "code" and cell.source.strip():
            number += 1
            began = time.monotonic()
            places[number] = len(reports)
            comparison = await _run_cell(cell, kernel, number, again)
            seconds = time.monotonic() - began
        elif _ours(cell).get("role") == "folded":
            comparison, seconds = Comparison(verdict=Verdict.SKIPPED), 0.0
        else:
            continue
        reports.append(
            CellReport(
                index=index,
                id=str(cell.get("id", "")),
                role=str(_ours(cell).get("role", "")),
                verdict=comparison.verdict,
                detail=comparison.detail,
                seconds=seconds,
            )
        )
    for number, outputs in again.displays.changed.items():
        report = reports[places[number]]
        if report.verdict != Verdict.ERROR:
            told = again.compare(notebook.cells[report.index], outputs)
            reports[places[number]] = replace(report, verdict=told.verdict, detail=told.detail)
    return sorted([*reports, *_check_texts(notebook)], key=lambda report: report.index)


def _check_texts(notebook: nbformat.NotebookNode) -> Iterator[CellReport]:
    """Yield a report for each text that is not the one that was exported."""
    for index, detail in changed_texts(notebook):
        cell = notebook.cells[index] if index < len(notebook.cells) else None
        yield CellReport(
            index=index,
            id=str(cell.get("id", "")) if cell else "",
            role=str(_ours(cell).get("role", "")) if cell else "",
            verdict=Verdict.DIFFERENT,
            detail=detail,
        )


async def _run_cell(cell: Any, kernel: Kernel, number: int, again: _Again) -> Comparison:
    try:
        result = await kernel.execute(cell.source, step=number, timeout_s=again.timeout_s)
    except KernelDied as error:
        return Comparison(verdict=Verdict.ERROR, detail=f"not run: {one_line(str(error))}")
    outputs = again.displays.take(number, result.outputs)
    if result.status != "error":
        return _judge_ending(result, again.timeout_s) or again.compare(cell, outputs)
    if _is_told_on_stderr(cell, result.error):
        return again.compare(cell, outputs)
    comparison = again.compare(cell, with_error(outputs, result.error))
    if any(o.get("output_type") == "error" for o in cell.outputs):
        return comparison
    told = f"{result.error.ename}: {result.error.evalue}" if result.error else "an error"
    return worst([comparison, Comparison(verdict=Verdict.ERROR, detail=one_line(told, 400))])


def _is_told_on_stderr(cell: Any, error: CellError | None) -> bool:
    """Whether an error is one that IPython prints and saves as nothing else: a wrong magic."""
    if error is None or error.ename != "UsageError":
        return False
    return not any(output.get("output_type") == "error" for output in cell.outputs)


def _judge_ending(result: CellResult, timeout_s: float) -> Comparison | None:
    """Return the verdict of a cell that did not come to its end, else None."""
    if result.status == "ok":
        return None
    reason = one_line(result.error.evalue, 300) if result.error else ""
    told = {
        "timeout": f"interrupted after {timeout_s:g} s",
        "interrupted": "interrupted by the user",
        "dead": f"the kernel ended ({reason})",
    }
    return Comparison(verdict=Verdict.ERROR, detail=told.get(result.status, result.status))


def _ours(cell: Any) -> dict[str, Any]:
    ours = cell.metadata.get("kernel_agent", {})
    return ours if isinstance(ours, dict) else {}


def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, also where an event loop is running already (Jupyter)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(1, "kernel-agent-verify") as pool:
        return pool.submit(asyncio.run, coroutine).result()


# --- the copy ------------------------------------------------------------------------------


def _table_width(notebook: nbformat.NotebookNode) -> int | None:
    """Return the width of the tables that a notebook's kernel printed; None where it is ours.

    Ours print wider tables since exports have fingerprints of their texts.
    """
    return None if _ours(notebook).get("texts") else PANDAS_WIDTH
