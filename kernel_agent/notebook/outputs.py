"""Recorded outputs as a notebook may carry them: what they showed, and nothing that is live.

Pure. Outputs come from a hostile kernel and will be shown in a trusted notebook: text, PNG, JPEG,
JSON, formulas without commands that link, and tables written anew. Scripts, SVG, widgets, Markdown
and other HTML are left out, and the output's metadata says so.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from kernel_agent.notebook.safe import table_html
from kernel_agent.records import OutputDict
from kernel_agent.text import encodable, harmless, plain, shorten

MAX_TEXT = 200_000  # characters of one text; the folder's trace has all of it
MAX_JSON = 200_000
MAX_IMAGE = 4_000_000  # characters of base64; notebooks above some 25 MB trouble viewers
MAX_TRACEBACK = 40  # strings of a traceback: a recursion has a thousand

OURS = "application/vnd.kernel-agent."
_MIME = re.compile(r"[\w.+/-]{1,80}")
_SIGNATURES = {"image/png": b"\x89PNG\r\n\x1a\n", "image/jpeg": b"\xff\xd8\xff"}
# Commands of MathJax and its extensions that link, load, style or define others.
_LIVE_LATEX = re.compile(
    r"\\(?:href|url|require|unicode|style|class|css|html|data|begingroup|e?def|g?let|"
    r"newcommand|renewcommand|newenvironment|includegraphics|action|toggle|bbox)",
    re.IGNORECASE,
)


def notebook_outputs(outputs: Iterable[OutputDict], *, execution_count: int) -> list[OutputDict]:
    """Return the outputs of one cell as the notebook shows them.

    Parameters
    ----------
    outputs
        As recorded; every field may be anything.
    execution_count
        The cell's number in the notebook, which its result shares.
    """
    kept: list[OutputDict] = []
    for output in outputs:
        match output.get("output_type"):
            case "stream":
                _add_stream(kept, output)
            case "error":
                kept.append(_error(output))
            case "display_data":
                kept.append({"output_type": "display_data", **_bundle(output)})
            case "execute_result":
                numbered = {"output_type": "execute_result", "execution_count": execution_count}
                kept.append({**numbered, **_bundle(output)})
    return kept


def full_text(outputs: Iterable[OutputDict]) -> str:
    """Return a step's output as the kernel keeps it under ``outputs[k]``: text, in order."""
    pieces: list[str] = []
    for output in outputs:
        if output.get("output_type") == "stream":
            pieces.append(as_text(output.get("text")))
        elif output.get("output_type") == "error":
            pieces.append(plain("\n".join(_strings(output.get("traceback")))) + "\n")
        elif isinstance(text := _mapping(output.get("data")).get("text/plain"), str):
            pieces.append(text + "\n")
    return encodable("".join(pieces))


def as_text(value: Any) -> str:
    """Return nbformat's multi-line text (a string or a list of strings) as one string."""
    return "".join(_strings(value)) if isinstance(value, list) else _string(value)


def _add_stream(kept: list[OutputDict], output: OutputDict) -> None:
    name = "stderr" if output.get("name") == "stderr" else "stdout"
    text = harmless(as_text(output.get("text")))
    if kept and kept[-1]["output_type"] == "stream" and kept[-1]["name"] == name:
        text = kept.pop()["text"] + text
    if text:
        kept.append({"output_type": "stream", "name": name, "text": _short(text)})


def _error(output: OutputDict) -> OutputDict:
    lines = [_short(harmless(line)) for line in _strings(output.get("traceback"))]
    if len(lines) > MAX_TRACEBACK:
        half = MAX_TRACEBACK // 2
        left_out = f"({len(lines) - 2 * half:,} parts of the traceback left out)"
        lines = [*lines[:half], left_out, *lines[-half:]]
    return {
        "output_type": "error",
        "ename": harmless(_string(output.get("ename")) or "Error"),
        "evalue": _short(harmless(_string(output.get("evalue")))),
        "traceback": lines,
    }


def _bundle(output: OutputDict) -> dict[str, Any]:
    """Return the representations that are kept, and in the metadata the names of the others."""
    data: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    left_out = []
    given_metadata = _mapping(output.get("metadata"))
    for mime, value in sorted(_mapping(output.get("data")).items()):
        if mime.startswith(OURS) or not _MIME.fullmatch(mime):
            continue
        kept = _representation(mime, value)
        if kept is None:
            left_out.append(mime)
            continue
        data[mime] = kept
        size = _mapping(given_metadata.get(mime))
        pixels = {k: size[k] for k in ("width", "height") if type(size.get(k)) is int}
        if pixels:
            metadata[mime] = pixels
    if left_out:
        metadata["kernel_agent"] = {"left_out": left_out}
    return {"data": data, "metadata": metadata}


def _representation(mime: str, value: Any) -> Any:
    """Return one representation as the notebook may hold it, or None."""
    match mime:
        case "text/plain":
            return _short(harmless(as_text(value)))
        case "text/html":
            html = as_text(value)
            return table_html(encodable(html)) if len(html) <= MAX_TEXT else None
        case "text/latex":
            latex = encodable(as_text(value))
            return None if _LIVE_LATEX.search(latex) or len(latex) > MAX_TEXT else latex
        case "image/png" | "image/jpeg":
            return _image(as_text(value), _SIGNATURES[mime])
        case "application/json":
            return value if len(json.dumps(value, default=str)) <= MAX_JSON else None
    return None


def _image(data: str, signature: bytes) -> str | None:
    if len(data) > MAX_IMAGE:
        return None
    try:
        raw = base64.b64decode("".join(data.split()), validate=True)
    except (binascii.Error, ValueError):
        return None
    return base64.b64encode(raw).decode("ascii") if raw.startswith(signature) else None


def _short(text: str) -> str:
    return shorten(text, MAX_TEXT, where="the run's trace holds the full text")


def _strings(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        return {}
    return {key: item for key, item in value.items() if isinstance(key, str)}
