"""Whether two lots of outputs of one cell say the same. Pure.

Text that differs from run to run without meaning anything (addresses, cell numbers, temporary
folders, random ids, the order of a set, how long something took, what the clock said) is put aside
first; a cell that is the same only then is called ``volatile``. Streams are compared as a whole,
because how the pieces of stdout and stderr lie between each other is a matter of timing; displays
are compared one by one, by MIME type: what the notebook shows must be there again, what it left out
may be there as well, help texts among it. Pictures are compared by bytes, then by pixels.
"""

from __future__ import annotations

import ast
import base64
import binascii
import difflib
import io
import json
import re
import struct
import warnings
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from kernel_agent.notebook.clock import Period, without_clock
from kernel_agent.notebook.outputs import OURS, is_page, notebook_outputs
from kernel_agent.records import OutputDict, as_text, count_text
from kernel_agent.safe import LEFT_OUT, html_text, one_line, plain

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

DIFF_LINES, DIFF_CHARS = 20, 2_000
MAX_DIFFED = 200_000  # characters: the time of a diff grows with the square
MAX_PIXELS = 32_000_000
# Another version of a drawing library moves edges a little: a mean difference of one in 256 levels
# and one pixel in a hundred that is clearly different still show the same.
MEAN_TOLERANCE, CLEAR_DIFFERENCE, CLEAR_SHARE = 1.0, 32, 0.01


class Verdict(StrEnum):
    """The verdict on a cell that ran again; from best to worst."""

    SKIPPED = "skipped"
    SAME = "same"
    VOLATILE = "volatile"
    DIFFERENT = "different"
    ERROR = "error"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A verdict, with a unified diff or a line that describes a difference."""

    verdict: Verdict
    detail: str = ""


SAME = Comparison(verdict=Verdict.SAME)

# Pattern, what stands for it, and a text without which there is nothing to look for.
_VOLATILE: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (re.compile(r"\b0x[0-9a-fA-F]{6,16}\b"), "0x…", "0x"),
    (re.compile(r"\bIn ?\[\d+\]"), "In[n]", "In"),
    (re.compile(r"\boutputs\[\d+\]"), "outputs[n]", "outputs["),
    (
        re.compile(r"(?:/[\w.~-]{1,100}){0,12}/ipykernel_\d{1,10}/\d{1,20}\.py"),
        "<cell>",
        "/ipykernel_",
    ),
    (
        re.compile(r"(?:/[\w.~+-]{1,100}){1,20}/(?=(?:site|dist)-packages/)"),
        "<python>/",
        "-packages/",
    ),
    (re.compile(r"(?:(?:/private)?/(?:var/)?tmp/[\w.-]{1,100}){1,3}"), "<temporary>", "tmp/"),
    (re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b"), "<uuid>", "-"),
    (re.compile(r"\bdisplay_id=[0-9a-f]{32}\b"), "display_id=…", "display_id="),
    (re.compile(r"\bT_[0-9a-f]{5}(?=_|\b)"), "T_…", "T_"),  # pandas' Styler
    (re.compile(r"\[(?:\d+:)?\d+:\d+<[^\]\n]{0,60}\]"), "[time]", "<"),  # a progress bar
)
_DURATION = re.compile(
    r"(?m)(?<![\w.])(?:\d{1,9} ?(?:d|h|min) ){0,3}\d+(?:\.\d+)?(?:e[+-]\d+)? ?"
    r"(?:ns|us|µs|μs|ms|s|min|h)(?= (?:±|per loop)|, sys|, total|\s*$)"
)
_TIMED = re.compile(r"CPU times:|Wall time:|per loop")
# How often `%timeit` repeats a statement depends on how fast it was.
_LOOPS = re.compile(r"\b\d[\d,]{0,20} loops?(?= each\b|, best of\b)")
_SLOWEST = re.compile(
    r"The slowest run took [\d.]{1,20} times longer than the fastest\. ?[^\n]{0,200}\n?"
)
_SET = re.compile(r"\{[^{}]{1,10000}\}")


@dataclass(frozen=True)
class _Passing:
    """Parts of a text that may differ: the folders of both runs, and the time of the new one."""

    folders: tuple[str, str]
    period: Period | None


def compare(
    recorded: Sequence[OutputDict],
    again: Sequence[OutputDict],
    *,
    folders: tuple[str, str] = ("", ""),
    period: Period | None = None,
) -> Comparison:
    """Compare a cell's recorded outputs with its new ones.

    Parameters
    ----------
    recorded
        The outputs in the notebook.
    again
        The outputs of the new run.
    folders
        The folder of the notebook and the one of the new run; each stands for the other in text.
    period
        When the cell ran again, so that a reading of the clock is known as one.

    Returns
    -------
    Comparison
        The worst of its parts.
    """
    passing = _Passing(folders, period)
    told = [
        _compare_text(name, _stream(recorded, name), _stream(again, name), passing)
        for name in ("stdout", "stderr")
    ]
    told += _compare_displays(_select_shown(recorded), _select_shown(again), passing)
    if pages := _pages(recorded):  # Jupyter saves none
        told += _compare_displays(pages, _pages(again), passing)
    return worst(told)


def worst(comparisons: Iterable[Comparison]) -> Comparison:
    """Return the worst verdict, with the details of all that share it."""
    told = list(comparisons)
    order = list(Verdict)
    verdict = max((c.verdict for c in told), key=order.index, default=Verdict.SAME)
    details = [c.detail for c in told if c.verdict == verdict and c.detail]
    return Comparison(verdict=verdict, detail="\n".join(details)[:DIFF_CHARS])


def normal(text: str, folder: str = "") -> str:
    """Return text without the meaningless parts that change from run to run."""
    if len(folder) > 1:
        text = text.replace(folder, "<folder>")
    for pattern, sign, needed in _VOLATILE:
        if needed in text:
            text = pattern.sub(sign, text)
    text = _SET.sub(_in_order, text)
    if _TIMED.search(text):
        text = _LOOPS.sub("n loops", _SLOWEST.sub("", _DURATION.sub("<time>", text)))
    return text


def _in_order(printed: re.Match[str]) -> str:
    """Return a printed set with its members sorted: Python promises no order of them."""
    try:
        members = ast.literal_eval(printed[0])
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return printed[0]
    return (
        f"{{{', '.join(sorted(map(repr, members)))}}}" if isinstance(members, set) else printed[0]
    )


# --- the parts -----------------------------------------------------------------------------


def _compare_displays(
    old: Sequence[OutputDict], new: Sequence[OutputDict], passing: _Passing
) -> list[Comparison]:
    """Compare displays one by one; one more or less is a difference."""
    told = [_compare_output(a, b, passing) for a, b in zip(old, new, strict=False)]
    if len(old) != len(new):
        before, now = (count_text(len(outputs), "output") for outputs in (old, new))
        detail = f"{before} in the notebook, {now} now"
        more = (old if len(old) > len(new) else new)[min(len(old), len(new)) :]
        detail += f" ({', '.join(map(_name, more[:5]))})"
        told.append(Comparison(verdict=Verdict.DIFFERENT, detail=detail))
    return told


def _compare_text(what: str, old: str, new: str, passing: _Passing) -> Comparison:
    old, new = plain(old).rstrip(), plain(new).rstrip()
    if old == new:
        return SAME
    old, new = (normal(t, f) for t, f in zip((old, new), passing.folders, strict=True))
    if passing.period is not None and old != new:
        old, new = without_clock(old, new, passing.period)
    if old == new or _is_shortened(old, new):
        return Comparison(
            verdict=Verdict.VOLATILE, detail=f"{what}: the same but for passing details"
        )
    return Comparison(verdict=Verdict.DIFFERENT, detail=_diff(what, old, new))


def _is_shortened(old: str, new: str) -> bool:
    """Whether the notebook holds the head and the tail of the new text."""
    match = LEFT_OUT.search(old)
    if match is None:
        return False
    return new.startswith(old[: match.start()]) and new.endswith(old[match.end() :])


def _compare_output(old: OutputDict, new: OutputDict, passing: _Passing) -> Comparison:
    if (old.get("output_type") == "error") != (new.get("output_type") == "error"):
        detail = f"{_name(old)} in the notebook, {_name(new)} now"
        return Comparison(verdict=Verdict.DIFFERENT, detail=detail)
    if old.get("output_type") == "error":
        return _compare_text("error", _error(old), _error(new), passing)
    old_data, new_data = _data(old), _data(new)
    missing = sorted(set(old_data) - set(new_data))
    told = [_compare_mime(m, old_data[m], new_data[m], passing) for m in old_data if m in new_data]
    if missing:
        detail = f"not shown any more: {', '.join(missing)}"
        told.append(Comparison(verdict=Verdict.DIFFERENT, detail=detail))
    return worst(told)


def _compare_mime(mime: str, old: Any, new: Any, passing: _Passing) -> Comparison:
    if mime in ("image/png", "image/jpeg"):
        return _compare_pictures(mime, as_text(old), as_text(new))
    if mime == "text/html":
        return _compare_text(mime, _html(as_text(old)), _html(as_text(new)), passing)
    if isinstance(old, str | list) and isinstance(new, str | list) and "json" not in mime:
        return _compare_text(mime, as_text(old), as_text(new), passing)
    return _compare_text(mime, _json(old), _json(new), passing)


def _compare_pictures(mime: str, old: str, new: str) -> Comparison:
    if "".join(old.split()) == "".join(new.split()):
        return SAME
    first, second = _picture(old), _picture(new)
    if first is None or second is None:
        return Comparison(verdict=Verdict.DIFFERENT, detail=f"{mime}: other bytes")
    if first.size != second.size:
        sizes = " and ".join(f"{p.width}x{p.height}" for p in (first, second))
        return Comparison(verdict=Verdict.DIFFERENT, detail=f"{mime}: the sizes are {sizes}")
    mean, clear = _distance(first, second)
    if mean == 0:
        return SAME
    detail = f"{mime}: {clear:.2%} of the pixels are clearly different"
    near = mean <= MEAN_TOLERANCE and clear <= CLEAR_SHARE
    return Comparison(verdict=Verdict.VOLATILE if near else Verdict.DIFFERENT, detail=detail)


def _picture(data: str) -> Picture | None:
    from PIL import Image as Pillow

    try:
        raw = base64.b64decode("".join(data.split()), validate=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the size is checked below
            opened = Pillow.open(io.BytesIO(raw), formats=("PNG", "JPEG"))
            too_large = opened.width * opened.height > MAX_PIXELS
            return None if too_large else opened.convert("RGBA")
    except (OSError, ValueError, SyntaxError, EOFError, struct.error, zlib.error,
            binascii.Error, Pillow.DecompressionBombError):  # fmt: skip
        return None


def _distance(first: Picture, second: Picture) -> tuple[float, float]:
    """Return the mean difference in levels of 256, and the share of clearly different pixels."""
    from PIL import ImageChops

    difference = ImageChops.difference(first, second)
    bands = [band.histogram() for band in difference.split()]
    pixels = first.width * first.height
    mean = sum(level * n for band in bands for level, n in enumerate(band)) / (4 * pixels)
    clear = max(sum(band[CLEAR_DIFFERENCE:]) for band in bands) / pixels
    return mean, clear


# --- reading outputs -----------------------------------------------------------------------


def _stream(outputs: Iterable[OutputDict], name: str) -> str:
    return "".join(
        as_text(o.get("text"))
        for o in outputs
        if o.get("output_type") == "stream" and (o.get("name") == "stderr") == (name == "stderr")
    )


def _select_shown(outputs: Iterable[OutputDict]) -> list[OutputDict]:
    kinds = ("display_data", "execute_result", "error")
    kept = notebook_outputs(output for output in outputs if not is_page(output))
    return [output for output in kept if output.get("output_type") in kinds]


def _pages(outputs: Iterable[OutputDict]) -> list[OutputDict]:
    return notebook_outputs(output for output in outputs if is_page(output))


def _data(output: OutputDict) -> Mapping[str, Any]:
    data = output.get("data")
    given = data if isinstance(data, Mapping) else {}
    return {str(mime): value for mime, value in given.items() if not str(mime).startswith(OURS)}


def _name(output: OutputDict) -> str:
    if output.get("output_type") == "error":
        return f"error {one_line(_error(output), 120)}"
    return " or ".join(sorted(_data(output))[:3]) or "a display"


def _error(output: OutputDict) -> str:
    return f"{output.get('ename', '')}: {output.get('evalue', '')}"


def _html(source: str) -> str:
    """Return the text of a table, without its markup, which is no difference."""
    return html_text(source)


def _json(value: Any) -> str:
    try:
        return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return str(value)


def _diff(what: str, old: str, new: str) -> str:
    """Return a short unified diff; long lines are cut, a huge text is compared by its start."""
    before, after = _lines(old), _lines(new)
    names = f"{what} in the notebook", f"{what} now"
    lines = list(difflib.unified_diff(before, after, *names, n=1, lineterm=""))
    if not lines:
        return f"{what}: the texts differ, but not where they begin"
    more = [f"… {len(lines) - DIFF_LINES} more lines"] if len(lines) > DIFF_LINES else []
    return "\n".join([*lines[:DIFF_LINES], *more])[:DIFF_CHARS]


def _lines(text: str) -> list[str]:
    return [line[:300] for line in text[:MAX_DIFFED].split("\n")[:2_000]]
