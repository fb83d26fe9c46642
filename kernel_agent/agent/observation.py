"""Observations: the text and the pictures of a cell that a model is shown.

Pure: nbformat outputs in, an :class:`~kernel_agent.records.Observation` out. What a cell put out
comes in the order in which it came: printed text, stderr (marked), tables as shape, types and a
preview, figures as pictures beside one line each, the last value. A failed cell ends with its
error, of which the message is never cut away. Last comes which variables are different now.

Nothing is left out without a mark that counts it and says where it is: ``outputs[k]`` in the
kernel. Each output is cut by itself, and no more than needed: one that is a fifth too long stays
whole. Each kind has its own share of the room (:data:`SHARES`), so that a flood of warnings leaves
room for the table that was asked for.

The outputs come from a hostile kernel: every field is checked before it is used, and what does
not fit falls back to its text, or to one line that names it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, groupby
from typing import Any, Literal, TypeAlias

from kernel_agent.agent.figures import figure
from kernel_agent.notebook import best_text, cut_native, cut_traceback, line_of_cell
from kernel_agent.records import (
    MAX_LINE,
    Action,
    Calls,
    CellError,
    CellResult,
    Code,
    Final,
    Image,
    Observation,
    OutputDict,
    agents_notes,
    as_text,
    changes_line,
    lost_answer,
    role_of,
)
from kernel_agent.safe import FORMATS, one_line, plain, shorten
from kernel_agent.tools import observe_calls

VALUE_MIME = "application/vnd.kernel-agent.value+json"
NOTHING = "(the cell ran and printed nothing)"
MAX_DTYPES = 600  # characters of the line of column types
MAX_NAME = 300  # characters of the name of a column, which the kernel has cut and quoted
MAX_HEADS = 20  # lines of a table with the names of its columns
MIN_SHARE = 200  # characters below which an output is not shortened but left out, and counted
COLLECTIONS = ("list", "tuple", "dict", "set", "frozenset")

Kind: TypeAlias = Literal["printed", "stderr", "table", "figure", "value", "answer"]

SHARES: dict[Kind, float] = {
    "printed": 1.0, "value": 1.0, "answer": 1.0, "table": 0.75, "stderr": 0.25, "figure": 0.25,
}  # fmt: skip
"""Share of an observation's room for all outputs of a kind together."""


@dataclass(frozen=True, kw_only=True)
class _Part:
    """One output as text, with its picture; the first ``heads`` lines are never cut away."""

    text: str
    kind: Kind = "value"
    image: Image | None = None
    heads: int = 0


LOST = (
    "The answer does not stand, because the cell did not run to its end after it. "
    "Give it again when it is right."
)
TAKEN = "This was taken as the answer, in words and not from a cell."


def observe_action(action: Action, result: CellResult, *, step: int, max_chars: int) -> Observation:
    """Return the observation of an action: of a cell, of calls, or of an answer."""
    if isinstance(action, Final):
        return Observation(text=TAKEN if action.in_words else "The answer was given.")
    if isinstance(action, Calls):
        return observe_calls(action, result, max_chars=max_chars)
    notes = shorten(agents_notes(result.calls), max_chars // 4)
    seen = observe(result, step=step, max_chars=max_chars - len(notes))
    return replace(seen, text=f"{seen.text}\n{notes}") if notes else seen


def name_left_out(action: Action, result: CellResult) -> str:
    """Say in one line which code of a reply was not run; empty where all of it was.

    Parameters
    ----------
    action
        A cell: a block of the reply, or all of its calls joined.
    result
        What it did. The calls after one that failed did not run.
    """
    if not isinstance(action, Code):
        return ""
    if action.left_out or not action.starts or result.ok:
        return plain(action.left_out)
    calls = len(action.starts)
    line = line_of_cell(result.error) if result.error else 0
    failed = bisect_right(action.starts, line)
    if failed == calls:
        return ""
    head = f"Your reply had {calls} calls, which run as one cell"
    if not failed:
        return f"{head}: those after the one that failed did not run."
    after = f"call {calls}" if failed == calls - 1 else f"calls {failed + 1} to {calls}"
    return f"{head}: call {failed} failed, so {after} did not run."


def observe(
    result: CellResult, *, step: int, max_chars: int = 8000, max_images: int = 4
) -> Observation:
    """Return the observation of a cell.

    Parameters
    ----------
    result
        What the cell did; its outputs may hold anything.
    step
        The step's number, under which the kernel keeps the full text.
    max_chars
        Bound of the whole text; what is a fifth longer is shown all the same.
    max_images
        Pictures passed on; further ones are named in the text only.

    Examples
    --------
    >>> printed = {"output_type": "stream", "name": "stdout", "text": "42"}
    >>> observe(CellResult(status="ok", outputs=(printed,)), step=1).text
    '42'
    """
    where = f"outputs[{step}] holds the full text"
    first = _ending(result)
    before, message = _errors(result)
    parts = _few_images(_numbered(list(_parts(result, step))), max_images)

    if lost_answer(result):
        message = f"{message}\n{LOST}".strip()
    kept = _cut(message, max(max_chars * 3 // 4 - len(first), 20), where)
    last = changes_line(result.changes, max_chars=min(MAX_LINE, max_chars // 4))
    room = max(max_chars - len(first) - len(kept) - len(last) - 4, 0)
    frames = _cut(before, room // 2, where)
    body = _fit(parts, room - len(frames), where)
    texts = [part.text for part in body]
    pieces = [piece for piece in (first, *texts, frames, kept) if piece.strip()] or [NOTHING]
    return Observation(
        text="\n".join(filter(None, (*pieces, last)))[: _more(max_chars)],
        images=tuple(part.image for part in body if part.image),
        shortened=(kept, frames, body) != (message, before, parts),
        held=_list_kinds(parts, first, message),
    )


def _list_kinds(parts: list[_Part], first: str, message: str) -> str:
    """Say in one line what the outputs were, kind by kind."""
    told = [_describe_kind(kind, [p.text for p in parts if p.kind == kind]) for kind in SHARES]
    ending = one_line(first or (message.strip().splitlines() or [""])[-1], 160)
    return "; ".join(filter(None, (*told, ending))) or "printed nothing"


def _describe_kind(kind: Kind, texts: list[str]) -> str:
    size = sum(map(len, texts))
    if not size:
        return ""
    begins = one_line(next(text for text in texts if text), 80)
    match kind:
        case "table":
            return ", ".join(one_line(text.splitlines()[0], 60) for text in texts[:5] if text)
        case "figure":
            return f"{_count(len(texts), 'figure')}, to be drawn again"
        case "answer":
            return begins
        case "value":
            return f"value {begins}" if size <= 80 else f"value of {size:,} characters: {begins}"
    name = "stderr" if kind == "stderr" else "printed"
    return f"{name} {size:,} characters: {begins}" if size > 80 else f"{name}: {begins}"


def _ending(result: CellResult) -> str:
    """Say in one line how a cell ended that neither ran through nor raised."""
    kept = " The variables that it had set are kept." if result.changes is not None else ""
    match result.status:
        case "timeout":
            said = f"The cell was interrupted after {result.seconds:.0f} s: it took longer than a"
            return f"{said} cell may take.{kept} Do less at a time."
        case "interrupted":
            return f"The cell was interrupted by the user.{kept}"
        case "dead":
            reason = one_line(result.error.evalue, 300) if result.error else ""
            return (
                f"The kernel ended ({reason or 'for an unknown reason'}): all variables are gone. "
                "Import and load again what the next cell needs."
            )
    return ""


def _errors(result: CellResult) -> tuple[str, str]:
    """Return how the errors came about, and the message that ended the cell."""
    if result.status == "dead":
        return "", ""
    errors = [_error_of(o) for o in result.outputs if o.get("output_type") == "error"]
    last = result.error or (errors[-1] if errors else None)
    if last is None:
        return "", ""
    same = [e for e in errors if (e.ename, e.evalue) == (last.ename, last.evalue)]
    if not last.traceback and same:
        last = same[-1]
    cut = cut_traceback(last)
    earlier = [cut_traceback(error).message for error in errors if error not in same]
    return "\n".join([*earlier, cut.before]).strip("\n"), cut.message


def _error_of(output: OutputDict) -> CellError:
    traceback = output.get("traceback")
    lines = traceback if isinstance(traceback, Sequence) and not isinstance(traceback, str) else ()
    return CellError(
        ename=str(output.get("ename", "Error")),
        evalue=str(output.get("evalue", "")),
        traceback=tuple(line for line in lines if isinstance(line, str)),
    )


# --- outputs to parts ----------------------------------------------------------------------


def _parts(result: CellResult, step: int) -> Iterator[_Part]:
    answered, figures = False, count(1)
    for (kind, name), group in groupby(result.outputs, key=_stream_key):
        if kind == "stream":
            text = cut_native(plain("".join(as_text(o.get("text")) for o in group))).strip("\n")
            if text.strip():
                if name == "stderr":
                    yield _Part(text=f"[stderr]\n{text}\n[end of stderr]", kind="stderr")
                else:
                    yield _Part(text=text, kind="printed")
            continue
        for output in group:
            if kind in ("execute_result", "display_data"):
                answered = answered or role_of(output) == "answer"
                yield _display(output, step, figures)
    if result.answer and not answered:
        yield _Part(text=f"Final answer: {plain(result.answer.text)}", kind="answer")


def _numbered(parts: list[_Part]) -> list[_Part]:
    """Say where each value begins, where a cell shows several that do not say it themselves."""
    values = [part for part in parts if part.kind == "value"]
    if len(values) < 2:
        return parts
    number = count(1)
    return [
        replace(part, text=f"[value {next(number)} of {len(values)}]\n{part.text}", heads=1)
        if part.kind == "value"
        else part
        for part in parts
    ]


def _stream_key(output: OutputDict) -> tuple[Any, Any]:
    kind = output.get("output_type")
    return kind, output.get("name") if kind == "stream" else None


def _display(output: OutputDict, step: int, figures: Iterator[int]) -> _Part:
    data = _mapping(output.get("data"))
    described = _mapping(data.get(VALUE_MIME))
    part = (
        _figure(data, described.get("titles"), step, figures)
        or _read_description(described, f"outputs[{step}]")
        or _Part(text=best_text(data))
    )
    if role_of(output) == "answer":
        return replace(part, text=f"Final answer: {part.text}", kind="answer")
    return part


def _figure(
    data: Mapping[str, Any], titles: Any, step: int, figures: Iterator[int]
) -> _Part | None:
    for media_type in FORMATS:
        if media_type in data:
            name = f"figure {next(figures)} of step {step}"
            line, image = figure(media_type, as_text(data[media_type]), name=name, titles=titles)
            return _Part(text=line, kind="figure", image=image)
    return None


def _read_description(value: Mapping[str, Any], where: str) -> _Part | None:
    """Return the kernel's description of a table, array or the like; None for anything else."""
    kind, preview, shape = value.get("kind"), value.get("preview"), value.get("shape")
    if not isinstance(preview, str) or not isinstance(shape, list) or len(shape) > 32:
        return None
    if not all(map(_is_size, shape)):
        return None
    title, columns = _title(kind, shape)
    if not title and kind != "scalar" and kind not in COLLECTIONS:
        return None
    heads: Any = value.get("heads")
    before = [title, _dtypes(value.get("dtypes"), columns)] if title else []
    before = [line for line in before if line]
    text = plain(preview).strip("\n")
    return _Part(
        text="\n".join(filter(None, [*before, text, _left_out(value, where)])),
        kind="table" if title else "value",
        heads=len(before) + (heads if _is_size(heads) and heads <= MAX_HEADS else 0),
    )


def _title(kind: Any, shape: list[int]) -> tuple[str, int | None]:
    """Return the first line of a table or array, and the number of its columns if it names them."""
    match kind, shape:
        case "DataFrame", [rows, columns]:
            return f"DataFrame: {_count(rows, 'row')} x {_count(columns, 'column')}", columns
        case "Series", [values]:
            return f"Series: {_count(values, 'value')}", None
        case (("DataFrame" | "Series" | "ndarray"), _):
            return f"{kind}: shape {' x '.join(map(str, shape)) or '()'}", None
    return "", None


def _left_out(value: Mapping[str, Any], where: str) -> str:
    """Return the line that counts what a preview lacks, and says where it is."""
    lacks, still = (
        one_line(told, 200) if isinstance(told := value.get(name), str) else ""
        for name in ("left_out", "lacking")
    )
    if not lacks:
        return ""
    return f"… {lacks}; {where} has all{f' but {still}' if still else ''}"


def _dtypes(dtypes: Any, columns: int | None) -> str:
    """Return column types grouped by type, in order of first appearance, cut when wide."""
    pairs = [
        (" ".join(plain(pair[0][:MAX_NAME]).split("\n")), one_line(pair[1], 60))
        for pair in (dtypes if isinstance(dtypes, list) else [])[:1000]
        if isinstance(pair, list) and len(pair) == 2 and all(isinstance(x, str) for x in pair)
    ]
    groups: dict[str, list[str]] = {}
    for name, dtype in pairs:
        groups.setdefault(dtype, []).append(name)
    shown, listed, used = [], 0, 0
    for dtype, names in groups.items():
        kept = [n for n in names if (used := used + len(n) + 2) <= MAX_DTYPES]
        if kept:
            shown.append(f"{dtype}: {', '.join(kept)}".rstrip(": "))
        listed += len(kept)
        used += len(dtype) + 4
    more = (columns or 0) - listed
    rest = f"; … {_count(more, 'more column')} (df.dtypes has all)" if shown and more > 0 else ""
    return "; ".join(shown) + rest


# --- fitting -------------------------------------------------------------------------------


def _few_images(parts: list[_Part], max_images: int) -> list[_Part]:
    kept: list[_Part] = []
    shown = 0
    for part in parts:
        shown += part.image is not None
        if part.image is not None and shown > max_images:
            note = f", not shown: a cell shows at most {max_images} pictures]"
            part = replace(part, text=part.text.removesuffix("]") + note, image=None)  # noqa: PLW2901 - same part, told
        kept.append(part)
    return kept


def _more(room: int) -> int:
    """Return what may be used rather than cut: a fifth more."""
    return room * 6 // 5


def _fit(parts: list[_Part], room: int, where: str) -> list[_Part]:
    """Share the room fairly: short outputs stay whole, long ones are shortened alike."""
    lengths = [len(part.text) for part in parts]
    room = max(room - max(len(parts) - 1, 0), 0)
    if sum(lengths) <= _more(room):
        return parts
    sizes = _allot(lengths, [part.kind for part in parts], room)
    few = max(room // (2 * MIN_SHARE), 2)
    cut = any(size < min(length, MIN_SHARE) for size, length in zip(sizes, lengths, strict=True))
    if cut and len(parts) > few:
        note = f"… {len(parts) - few} more outputs left out; {where} …"
        first, last = parts[: few - few // 2], parts[-(few // 2) :]
        left = _fit([*first, *last], room - len(note), where)
        return [*left[: len(first)], _Part(text=note), *left[len(first) :]]
    return [
        replace(part, text=_cut(part.text, size, where, heads=part.heads))
        for part, size in zip(parts, sizes, strict=True)
    ]


def _allot(lengths: list[int], kinds: list[Kind], room: int) -> list[int]:
    """Return the room of each output, within the share of its kind."""
    sizes = list(lengths)
    for kind, share in SHARES.items():
        mine = [n for n, own in enumerate(kinds) if own == kind]
        level = _level([lengths[n] for n in mine], int(room * share))
        for n in mine:
            sizes[n] = min(sizes[n], level)
    level = _level(sizes, room)
    return [min(size, level) for size in sizes]


def _level(lengths: list[int], room: int) -> int:
    """Return the length to which the longest are cut, so that all are no more than the room."""
    level = left = max(room, 0)
    for waiting, length in zip(range(len(lengths), 0, -1), sorted(lengths), strict=True):
        level = left // waiting
        if length > level:
            return level
        left -= length
    return max([level, *lengths])


def _cut(text: str, room: int, where: str, *, heads: int = 0) -> str:
    """Cut the middle out of a text that is more than a fifth too long, below its first lines."""
    if len(text) <= _more(room):
        return text
    lines = text.split("\n")
    head = "\n".join([*lines[:heads], ""]) if heads else ""
    if len(head) + MIN_SHARE > room:
        return shorten(text, room, where=where)
    return head + shorten("\n".join(lines[heads:]), room - len(head), where=where)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
