"""Observations: the text and the pictures of a cell that a model is shown.

Pure: nbformat outputs in, an :class:`~kernel_agent.records.Observation` out. What a cell put out
comes in the order in which it came: printed text, stderr (marked), tables as shape, types and a
preview, figures as pictures beside one line each, the last value. A failed cell ends with its
error, of which the message is never cut away. Last comes which variables are different now. Long
text keeps its head and tail, with the handle that reopens the whole of it in the kernel.

Each kind of output has its own share of the room (:data:`SHARES`), so that a flood of warnings
leaves room for the table that was asked for.

The outputs come from a hostile kernel: every field is checked before it is used, and what does
not fit falls back to its text, or to one line that names it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, TypeAlias

from kernel_agent.agent.figures import figure
from kernel_agent.notebook import best_text, cut_native, cut_traceback
from kernel_agent.records import (
    MAX_LINE,
    Action,
    Calls,
    CellError,
    CellResult,
    Final,
    Image,
    Observation,
    OutputDict,
    as_text,
    changes_line,
)
from kernel_agent.safe import FORMATS, one_line, plain, shorten
from kernel_agent.tools import observe_calls

VALUE_MIME = "application/vnd.kernel-agent.value+json"
NOTHING = "(the cell ran and printed nothing)"
MAX_DTYPES = 600  # characters of the line of column types
MIN_SHARE = 200  # characters below which a part is not shortened on its own

Kind: TypeAlias = Literal["printed", "stderr", "table", "figure", "value", "answer"]

SHARES: dict[Kind, float] = {
    "printed": 1.0, "value": 1.0, "answer": 1.0, "table": 0.75, "stderr": 0.25, "figure": 0.25,
}  # fmt: skip
"""Share of an observation's room for all outputs of a kind together."""


@dataclass(frozen=True, kw_only=True)
class _Part:
    """One output as text, with its picture."""

    text: str
    kind: Kind = "value"
    image: Image | None = None


def observe_action(action: Action, result: CellResult, *, step: int, max_chars: int) -> Observation:
    """Return the observation of an action: of a cell, of calls, or of an answer."""
    if isinstance(action, Final):
        return Observation(text="The answer was given.")
    if isinstance(action, Calls):
        return observe_calls(action, result, max_chars=max_chars)
    return observe(result, step=step, max_chars=max_chars)


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
        Upper bound of the whole text.
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
    parts = _few_images(list(_parts(result)), max_images)

    kept = shorten(message, max(max_chars * 3 // 4 - len(first), 20), where=where)
    last = changes_line(result.changes, max_chars=min(MAX_LINE, max_chars // 4))
    room = max(max_chars - len(first) - len(kept) - len(last) - 4, 0)
    frames = shorten(before, room // 2)
    texts = [part.text for part in parts]
    body = _fit(_within_shares(parts, room - len(frames), where), room - len(frames), where)
    pieces = [piece for piece in (first, *body, frames, kept) if piece.strip()] or [NOTHING]
    return Observation(
        text="\n".join(filter(None, (*pieces, last)))[:max_chars],
        images=tuple(part.image for part in parts if part.image),
        shortened=(kept, frames, body) != (message, before, texts),
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
    match result.status:
        case "timeout":
            return (
                f"The cell was interrupted after {result.seconds:.0f} s: it took longer than a "
                "cell may take. The variables that it had set are kept. Do less at a time."
            )
        case "interrupted":
            return "The cell was interrupted by the user. The variables that it had set are kept."
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


def _parts(result: CellResult) -> Iterator[_Part]:
    answered = False
    for (kind, name), group in groupby(result.outputs, key=_stream_key):
        if kind == "stream":
            text = cut_native(plain("".join(as_text(o.get("text")) for o in group))).strip("\n")
            if text.strip():
                if name == "stderr":
                    yield _Part(text=f"[stderr]\n{text}", kind="stderr")
                else:
                    yield _Part(text=text, kind="printed")
            continue
        for output in group:
            if kind in ("execute_result", "display_data"):
                answered = answered or _is_answer(output)
                yield _display(output)
    if result.answer and not answered:
        yield _Part(text=f"Final answer: {plain(result.answer.text)}", kind="answer")


def _stream_key(output: OutputDict) -> tuple[Any, Any]:
    kind = output.get("output_type")
    return kind, output.get("name") if kind == "stream" else None


def _is_answer(output: OutputDict) -> bool:
    ours = _mapping(_mapping(output.get("metadata")).get("kernel_agent"))
    return ours.get("role") == "answer"


def _display(output: OutputDict) -> _Part:
    data = _mapping(output.get("data"))
    described = _read_description(data.get(VALUE_MIME))
    table = _Part(text=described, kind="table") if described else None
    part = _figure(data) or table or _Part(text=best_text(data))
    if _is_answer(output):
        return _Part(text=f"Final answer: {part.text}", kind="answer", image=part.image)
    return part


def _figure(data: Mapping[str, Any]) -> _Part | None:
    for media_type in FORMATS:
        if media_type in data:
            line, image = figure(media_type, as_text(data[media_type]))
            return _Part(text=line, kind="figure", image=image)
    return None


def _read_description(value: Any) -> str:
    """Return the kernel's description of a table or array as text; empty for anything else."""
    value = _mapping(value)
    kind, preview, shape = value.get("kind"), value.get("preview"), value.get("shape")
    if kind not in ("DataFrame", "Series", "ndarray") or not isinstance(preview, str):
        return ""
    if not isinstance(shape, list) or not 0 <= len(shape) <= 32 or not all(map(_is_size, shape)):
        return ""
    if kind == "DataFrame" and len(shape) == 2:
        size = f"{_count(shape[0], 'row')} x {_count(shape[1], 'column')}"
    elif kind == "Series" and len(shape) == 1:
        size = _count(shape[0], "value")
    else:
        size = "shape " + (" x ".join(map(str, shape)) or "()")
    columns = shape[1] if kind == "DataFrame" and len(shape) == 2 else 0
    lines = [f"{kind}: {size}", _dtypes(value.get("dtypes"), columns), plain(preview).strip("\n")]
    return "\n".join(line for line in lines if line)


def _dtypes(dtypes: Any, columns: int) -> str:
    """Return column types grouped by type, in order of first appearance, cut when wide."""
    pairs = [
        (one_line(pair[0], 60), one_line(pair[1], 60))
        for pair in (dtypes if isinstance(dtypes, list) else [])[:1000]
        if isinstance(pair, list) and len(pair) == 2 and all(isinstance(x, str) for x in pair)
    ]
    groups: dict[str, list[str]] = {}
    for name, dtype in pairs:
        groups.setdefault(dtype, []).append(name)
    shown, used = [], 0
    for dtype, names in groups.items():
        kept = [n for n in names if (used := used + len(n) + 2) <= MAX_DTYPES]
        if kept:
            shown.append(f"{dtype}: {', '.join(kept)}".rstrip(": "))
        used += len(dtype) + 4
    listed = sum(len(names) for names in groups.values()) if used <= MAX_DTYPES else None
    cut = listed is None or listed < columns
    return "; ".join(shown) + ("; … (df.dtypes has the rest)" if shown and cut else "")


# --- fitting -------------------------------------------------------------------------------


def _few_images(parts: list[_Part], max_images: int) -> list[_Part]:
    kept: list[_Part] = []
    count = 0
    for part in parts:
        count += part.image is not None
        if part.image is not None and count > max_images:
            note = f", not shown: a cell shows at most {max_images} pictures]"
            text = part.text.removesuffix("]") + note
            part = _Part(text=text, kind=part.kind)  # noqa: PLW2901 - same part, told
        kept.append(part)
    return kept


def _within_shares(parts: list[_Part], room: int, where: str) -> list[str]:
    """Shorten each kind of output to its share, when all together is too much."""
    texts = [part.text for part in parts]
    if sum(map(len, texts)) + len(texts) <= room:
        return texts
    for kind, share in SHARES.items():
        mine = [i for i, part in enumerate(parts) if part.kind == kind]
        fitting = _fit([texts[i] for i in mine], int(room * share), where)
        if len(fitting) < len(mine):  # so many that they were joined into one
            fitting += [""] * (len(mine) - len(fitting))
        for i, text in zip(mine, fitting, strict=True):
            texts[i] = text
    return [text for text in texts if text]


def _fit(texts: list[str], room: int, where: str) -> list[str]:
    """Share the room fairly: short parts stay whole, long ones are shortened alike."""
    room -= max(len(texts) - 1, 0)
    if sum(map(len, texts)) <= room:
        return texts
    left, waiting = max(room, 0), len(texts)
    share = left
    for length in sorted(map(len, texts)):
        share = left // waiting
        if length > share:
            break
        left, waiting = left - length, waiting - 1
    if share < MIN_SHARE:
        return [shorten("\n".join(texts), max(room, 0), where=where)]
    return [shorten(text, share, where=where) for text in texts]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
