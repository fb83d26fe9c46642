"""A step's outputs as a person reads them. Pure.

The model is shown more: which variables changed, the types of columns, the size of a picture. A
person sees what was printed, tables, the error, and a line for what cannot be shown as text; the
answer stands by itself. With ``--verbose`` the model's text is shown instead.

Everything comes from a hostile kernel: each field is checked, and all text is made harmless.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from kernel_agent.notebook.outputs import best_text
from kernel_agent.notebook.table_text import Cells, table_lines
from kernel_agent.notebook.tables import read_table
from kernel_agent.notebook.tracebacks import cut_native, cut_traceback
from kernel_agent.records import (
    ANSWER_MIME,
    SHOWED_LAST,
    CellError,
    CellResult,
    Code,
    OutputDict,
    Step,
    as_text,
    is_figure,
)
from kernel_agent.safe import plain, shorten

MAX_CHARS = 8_000  # of one output: the notebook has all of it
MAX_ROWS = 20  # of a table; more are cut in the middle
WHERE = "the notebook has all of it"
WIDE = 10_000  # columns of a table that nobody fits to a terminal
VALUE_MIME = "application/vnd.kernel-agent.value+json"
_SAVED = re.compile(r"""\.save\w*\(\s*["']([^"'\n]{1,200}\.(?:png|jpe?g))["']""", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Piece:
    """One output: its text, and for a table its cells."""

    kind: Literal["printed", "warning", "error", "value", "table", "figure"]
    text: str = ""
    cells: Cells | None = None


def person_text(step: Step) -> str:
    """Return what a step showed as plain text."""
    return "\n".join(_plain_text(piece) for piece in list_pieces(step))


def _plain_text(piece: Piece) -> str:
    return "\n".join(table_lines(piece.cells, WIDE)) if piece.cells else piece.text


def list_pieces(step: Step) -> Iterator[Piece]:
    """Yield what a step showed, in order; nothing for its answer, which is shown by itself."""
    result = step.result
    if result is None or not isinstance(step.action, Code) or _is_denied(step):
        text = step.observation.text
        if text.strip():
            yield Piece(kind="printed", text=shorten(plain(text), MAX_CHARS, where=WHERE))
        return
    names = iter(_SAVED.findall(step.code))
    for output in _joined(result.outputs):
        yield from _piece(output, names)
    yield from _ending(result)


def _is_denied(step: Step) -> bool:
    return step.decision is not None and not step.decision.allowed


def _joined(outputs: Iterable[OutputDict]) -> Iterator[OutputDict]:
    """Yield outputs, texts of the same stream that follow each other as one."""
    held: OutputDict | None = None
    for output in outputs:
        stream = output.get("output_type") == "stream"
        if stream and held is not None and held.get("name") == output.get("name"):
            held = {**held, "text": as_text(held.get("text")) + as_text(output.get("text"))}
            continue
        if held is not None:
            yield held
        held = output if stream else None
        if not stream:
            yield output
    if held is not None:
        yield held


def _piece(output: OutputDict, names: Iterator[str]) -> Iterator[Piece]:
    kind, data = output.get("output_type"), _mapping(output.get("data"))
    if kind == "stream":
        text = cut_native(plain(as_text(output.get("text")))).strip("\n")
        if text.strip():
            stderr = output.get("name") == "stderr"
            text = shorten(text, MAX_CHARS, where=WHERE)
            yield Piece(kind="warning" if stderr else "printed", text=text)
    elif kind in ("display_data", "execute_result") and ANSWER_MIME not in data:
        if is_figure(output):
            yield Piece(kind="figure", text=_caption(next(names, "")))
            return
        cells = _cells_of(data)
        text = shorten(best_text(data), MAX_CHARS, where=WHERE)
        yield Piece(kind="table" if cells else "value", text=text, cells=cells)


def _caption(name: str) -> str:
    return f"Figure: {plain(name)}" if name else "A figure: the notebook shows it."


def _cells_of(data: Mapping[str, Any]) -> Cells | None:
    """Return the texts of a table as the kernel described it; None for anything else."""
    table = _mapping(_mapping(data.get(VALUE_MIME)).get("table"))
    if read_table(table) is None:
        return None
    columns, index, heads = table["columns"], table["index"], table["index_names"]
    plainly = not any(heads) and len(index) == 1 and _counts(index[0])
    leading = [] if plainly else index
    headings = [plain(" ".join(filter(None, texts))) for texts in zip(*columns, strict=True)]
    rows = [[plain(text) for text in row] for row in zip(*leading, *table["cells"], strict=True)]
    whole = len(rows), len(headings)
    match table.get("shape"):
        case [int(height), int(width)]:
            whole = height, width
    gap = table.get("row_gap")
    if len(rows) > MAX_ROWS:
        gap = MAX_ROWS // 2
        rows = [*rows[:gap], *rows[-gap:]]
    shown = (*([] if plainly else heads), *headings)
    return Cells(headings=shown, rows=rows, heads=len(leading), shape=whole, gap=gap)


def _counts(texts: list[str]) -> bool:
    """Whether an index only counts the rows, which tells a person nothing."""
    return texts == [str(number) for number in range(len(texts))]


def _ending(result: CellResult) -> Iterator[Piece]:
    """Say how a cell ended that did not run through."""
    option = f"--{result.limit.replace('_', '-')}" if result.limit else ""
    raises = f" {option} raises it." if option else ""
    kept = " Its variables are kept." if result.changes is not None else ""
    if result.status == "timeout":
        whose = "the run's limit of time" if result.limit == "max_seconds" else "a cell's limit"
        told = f"Interrupted after {result.seconds:.0f} s: it passed {whose}.{raises}"
        yield Piece(kind="error", text=f"{told}{kept}")
    elif result.status == "interrupted":
        yield Piece(kind="error", text=f"You stopped this cell.{kept}")
    elif result.status == "dead":
        why = plain(result.error.evalue) if result.error else "for an unknown reason"
        yield Piece(kind="error", text=f"The kernel ended, and its variables are gone: {why}.")
    elif result.error is not None:
        yield Piece(kind="error", text=_error_text(result.error, result.outputs))


def _error_text(error: CellError, outputs: Iterable[OutputDict]) -> str:
    """Return the frames of the cell's own code, and the message."""
    if not error.traceback:
        lines = [_lines(o) for o in outputs if o.get("output_type") == "error"]
        error = CellError(
            ename=error.ename, evalue=error.evalue, traceback=lines[-1] if lines else ()
        )
    cut = cut_traceback(error)
    return shorten("\n".join(filter(None, [cut.before, cut.message])), MAX_CHARS, where=WHERE)


def _lines(output: OutputDict) -> tuple[str, ...]:
    given = output.get("traceback")
    return tuple(x for x in given if isinstance(x, str)) if isinstance(given, list) else ()


def quoted(partial: str) -> str:
    """Return a partial result up to what it quotes."""
    counts, found, _ = partial.partition(SHOWED_LAST)
    return counts + found.rstrip("\n")


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
