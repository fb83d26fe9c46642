"""Make a kernel's outputs fit for a browser: the one place that decides it. Pure.

In a running notebook every output is trusted: a script in it can call the server that the notebook
came from and run code in any kernel. Outputs come from a hostile kernel, so of what it displays
this goes on, and nothing else, into a live notebook or an exported one:

* text, without escape sequences other than colours (a renderer escapes it);
* PNG and JPEG, encoded anew (:mod:`kernel_agent.safe.images`);
* tables, rendered by us from data (:mod:`kernel_agent.notebook.tables`). HTML in which another
  library wrote a table is read as one, cell by cell (``table_html`` in
  :mod:`kernel_agent.notebook.markdown`). Both pass through nh3 with a list of the ten tags and four
  attributes that they may have.

Its own HTML, SVG, JavaScript, Markdown, formulas, JSON views and widgets never go on. What they say
is shown as text where they have any, and the output's metadata names what was left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from kernel_agent.notebook.markdown import table_html
from kernel_agent.notebook.tables import render_table
from kernel_agent.records import OutputDict, as_text, error_output
from kernel_agent.safe import (
    FORMATS,
    Unreadable,
    encodable,
    harmless,
    html_text,
    one_line,
    plain,
    reencode,
    shorten,
)

MAX_TEXT = 200_000  # characters of one text; the folder's trace has all of it
MAX_HTML = 2_000_000
SIDES = (2000, 1000)  # pixels to which a picture above that is scaled down
MAX_SIDE = 10_000  # pixels at which a picture may ask to be shown
MAX_IMAGE = 4_000_000  # characters of base64; notebooks above some 25 MB trouble viewers
MAX_TRACEBACK = 40  # strings of a traceback: a recursion has a thousand
IN_TRACE = "the run's trace holds the full text"  # what is said where a text is cut

OURS = "application/vnd.kernel-agent."
VALUE_MIME = f"{OURS}value+json"
PAGE_MIME = f"{OURS}page+json"  # help and the like: a front end shows it beside the notebook
_MIME = re.compile(r"[\w.+/-]{1,80}")
# The text of these says nothing; another representation does.
_TELLS_NOTHING = re.compile(r"<(?:IPython\.core\.display\.\w+ object|Figure size [^>]*)>\s*")
_TAGS = {"div", "table", "thead", "tbody", "tfoot", "tr", "th", "td", "p", "br"}
_ATTRIBUTES = {
    "table": {"border", "class"},
    "th": {"colspan", "rowspan"},
    "td": {"colspan", "rowspan"},
}
# Viewers look for formulas in the text of elements, and a formula may hold a link.
_NO_FORMULAS = "mathjax_ignore tex2jax_ignore"
_CLASSES = {"div": _NO_FORMULAS, "p": _NO_FORMULAS, "table": f"dataframe {_NO_FORMULAS}"}


def notebook_outputs(
    outputs: Iterable[OutputDict],
    *,
    execution_count: int | None = None,
    where: str = IN_TRACE,
) -> list[OutputDict]:
    """Return the outputs of one cell as the notebook shows them.

    Parameters
    ----------
    outputs
        As recorded; every field may be anything.
    execution_count
        The cell's number in the notebook, which its result shares.
    where
        Where the full text is, of one that is too long.
    """
    kept: list[OutputDict] = []
    for output in outputs:
        match output.get("output_type"):
            case "stream":
                _add_stream(kept, output, where)
            case "error":
                kept.append(_error(output, where))
            case "display_data":
                kept.append({"output_type": "display_data", **displayable(output, where=where)})
            case "execute_result":
                numbered = {"output_type": "execute_result", "execution_count": execution_count}
                kept.append({**numbered, **displayable(output, where=where)})
    return kept


def full_text(outputs: Iterable[OutputDict]) -> str:
    """Return a step's output as the kernel keeps it under ``outputs[k]``: text, in order."""
    pieces: list[str] = []
    for output in outputs:
        if output.get("output_type") == "stream":
            pieces.append(as_text(output.get("text")))
        elif output.get("output_type") == "error":
            pieces.append(plain("\n".join(_strings(output.get("traceback")))) + "\n")
        elif text := _kept_text(_mapping(output.get("data"))):
            pieces.append(text + "\n")
    return encodable("".join(pieces))


def figure_titles(output: OutputDict) -> str:
    """Return the titles of a figure, as the kernel described it; empty text where it has none."""
    titles = _mapping(_mapping(output.get("data")).get(VALUE_MIME)).get("titles")
    return one_line(", ".join(_strings(titles)))


def _kept_text(data: Mapping[str, Any]) -> str:
    """Return what the kernel keeps of a display: its description's text, or its own."""
    described = _mapping(data.get(VALUE_MIME))
    kept = [described.get("whole"), described.get("preview"), data.get("text/plain")]
    kept += [data.get(mime) for mime in ("text/html", "text/markdown", "text/latex")]
    texts = [text for text in kept if isinstance(text, str)]
    return next((text for text in texts if not _TELLS_NOTHING.fullmatch(text)), "")


def _add_stream(kept: list[OutputDict], output: OutputDict, where: str) -> None:
    name = "stderr" if output.get("name") == "stderr" else "stdout"
    text = harmless(as_text(output.get("text")))
    if kept and kept[-1]["output_type"] == "stream" and kept[-1]["name"] == name:
        text = kept.pop()["text"] + text
    if text:
        kept.append({"output_type": "stream", "name": name, "text": _short(text, where)})


def _error(output: OutputDict, where: str) -> OutputDict:
    lines = [_short(harmless(line), where) for line in _strings(output.get("traceback"))]
    if len(lines) > MAX_TRACEBACK:
        half = MAX_TRACEBACK // 2
        left_out = f"({len(lines) - 2 * half:,} parts of the traceback left out)"
        lines = [*lines[:half], left_out, *lines[-half:]]
    ename = harmless(_string(output.get("ename")) or "Error")
    return error_output(ename, _short(harmless(_string(output.get("evalue"))), where), lines)


def displayable(output: OutputDict, *, where: str = IN_TRACE) -> dict[str, Any]:
    """Return ``data`` and ``metadata`` of a display as they may reach a browser.

    Parameters
    ----------
    output
        A display or result as the kernel sent it; every field may be anything.
    where
        Where the full text is, of one that is too long.
    """
    given = _mapping(output.get("data"))
    data: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    html = _table(given)
    if html is not None:
        data["text/html"] = html
    for mime in FORMATS:
        picture = _picture(mime, as_text(given[mime])) if mime in given else None
        if picture is not None:
            data[mime] = picture
            pixels = picture_size(output, mime)
            metadata |= {mime: pixels} if pixels else {}
    text = as_text(given.get("text/plain"))
    if not data and (not text.strip() or _TELLS_NOTHING.fullmatch(plain(text).strip("\n"))):
        text = best_text(given)
    if text:
        data["text/plain"] = _short(harmless(text), where)
    named = (m for m in sorted(given) if _MIME.fullmatch(m) and not m.startswith(OURS))
    left_out = [mime for mime in named if mime not in data]
    told: dict[str, Any] = {"left_out": left_out} if left_out else {}
    if is_page(output):
        told["page"] = True
    if told:
        metadata["kernel_agent"] = told
    return {"data": data, "metadata": metadata}


def is_page(output: OutputDict) -> bool:
    """Whether a display is for Jupyter's pager (``name?``)."""
    ours = _mapping(_mapping(output.get("metadata")).get("kernel_agent"))
    return PAGE_MIME in _mapping(output.get("data")) or ours.get("page") is True


def picture_size(output: OutputDict, mime: str) -> dict[str, int]:
    """Return the pixels at which a picture asks to be shown; seaborn states them with decimals."""
    stated = _mapping(_mapping(output.get("metadata")).get(mime))
    sides = {side: stated.get(side) for side in ("width", "height")}
    return {
        side: round(pixels)
        for side, pixels in sides.items()
        if isinstance(pixels, int | float) and 1 <= pixels <= MAX_SIDE
    }


def best_text(data: Mapping[str, Any]) -> str:
    """Return a display as text: its own, its HTML's, its source, or its types' names."""
    text = plain(as_text(data.get("text/plain"))).strip("\n")
    if text and not _TELLS_NOTHING.fullmatch(text):
        return text
    if "text/html" in data:
        return html_text(as_text(data["text/html"])[:MAX_TEXT]) or "[text/html without text]"
    for mime in ("text/markdown", "text/latex"):
        if mime in data:
            return plain(as_text(data[mime])).strip("\n")
    if "application/json" in data:
        return plain(_json_text(data["application/json"]))
    named = sorted(str(m) for m in data if _MIME.fullmatch(str(m)) and m != "text/plain")
    named = [mime for mime in named if not mime.startswith(OURS)]
    return text or f"[shown: {', '.join(named[:5]) or 'something without a readable form'}]"


def _json_text(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    except (TypeError, ValueError, RecursionError):
        return "[application/json that is too deep]"


def _table(data: Mapping[str, Any]) -> str | None:
    html = render_table(_mapping(data.get(VALUE_MIME)).get("table"))
    if html is None and "text/html" in data:
        source = as_text(data["text/html"])
        html = table_html(encodable(source)) if len(source) <= MAX_TEXT else None
    return None if html is None or len(html) > MAX_HTML else sanitise(html)


def sanitise(html: str) -> str:
    """Return our HTML with nothing in it that a table does not need, by an HTML5 parser.

    What is in it is no formula for MathJax.
    """
    import nh3

    return nh3.clean(
        html,
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        set_tag_attribute_values={tag: {"class": name} for tag, name in _CLASSES.items()},
        url_schemes=set(),
        link_rel=None,
    ).strip()


def _picture(mime: str, data: str) -> str | None:
    for max_side in (None, *SIDES):
        try:
            shown = reencode(mime, data, max_side=max_side)[0]
        except Unreadable:
            return None
        if len(shown.data) <= MAX_IMAGE:
            return shown.data
    return None


def _short(text: str, where: str) -> str:
    return shorten(text, MAX_TEXT, where=where)


def _strings(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        return {}
    return {key: item for key, item in value.items() if isinstance(key, str)}
