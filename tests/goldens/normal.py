"""What differs between two recordings of the same thing, and what is put in its place.

One table of regular expressions, applied in order to every recording. A number that is the same
each time stays: counts, sizes of outputs, exit codes. Tokens of a prompt do not: it names what is
installed. Versions are in ``versions.py``.
"""

from __future__ import annotations

import base64
import re
import struct
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

from goldens.versions import folders, installed, without_versions

ROOT = Path(__file__).parents[2]
PNG = re.compile(r"iVBORw0KGgo[A-Za-z0-9+/=\n\\]{400,}")

_installed = cache(installed)  # reading them takes longer than all the rest

Change = str | Callable[[re.Match[str]], str]

TABLE: tuple[tuple[str, Change], ...] = (
    # Where the code lies: what moves.
    (r"kernel_agent(?:_extension)?(?:/[a-z_]+)*/[a-z_]+\.py(:\d+)?", "<module file>"),
    (r"\bkernel_agent(?:_extension)?\.(?!formats\b|errors\b|adapters\b|ipynb\b|json\b)[a-z_]+(?:\.[a-z_]+)*",
     "<module>"),
    (r"(<module file>\S*, line )\d+", r"\1<n>"),
    # Time.
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:\+00:00|Z)", "<time>"),
    (r"20[23]\d-\d\d-\d\d \d\d:\d\d(?::\d\d)?( UTC)", r"<time>\1"),
    (r"\b20\d{6}-\d{6}(?=-)", "<time>"),
    (r'(\\?["\'](?:model_|cell_|waited_)?seconds\\?["\']: )\d[\d.e-]*(?=[,}\s])', r"\1<s>"),
    (r"(at most \d+ steps, )\d+ s", r"\1<s> s"),
    (r'(max_seconds(?:": |=))\d+\.\d{2,}', r"\1<s>"),
    # On a busy machine an interrupt needs longer, and its traceback may come before it is told.
    (r"(?:KeyboardInterrupt\n\s+)?([Ii]nterrupted after )\d+ s", r"\1<s> s"),
    (r"(trying again in )[\d.]+ s", r"\1<s> s"),
    (r"\b((?:model_|cell_)?seconds=)\d[\d.e-]*", r"\1<s>"),
    (r"· \d+\.\d of (\d+ s)\b", r"· <s> of \1"),
    (r"(\d+ steps?,? ?· |\d+ (?:step|request)s?, |took |after |, in |\(|· )\d+\.\d+ s\b",
     r"\1<s> s"),
    (r"(\(\d+% to \d+%\) (?:\| [\d.,-]+ ){3,8}\| )\d+\.\d+ ", r"\1<s> "),
    (r"(?m)^(\s+\d+\s+\w+\s+\w+\s+)\d+\.\d\d$", r"\1<s>"),
    # Tokens of prompts.
    (r'(\\?"(?:prompt_|total_)?tokens(?:_before|_after)?\\?": )\d{3,}', r"\1<n>"),
    (r"(\b(?:prompt_|total_)?tokens(?:_before|_after)?=)\d{3,}", r"\1<n>"),
    (r"(about )[\d,]{3,}( to )[\d,]{3,}( tokens)", r"\1<n>\2<n>\3"),
    (r"(?<!limit of )\b\d[\d,]{2,}((?: of [\d,]+)? tokens)", r"<n>\1"),
    # Names that are drawn by lot.
    (r'("(?:run_id|parent_id|session_id|standing_id)": ")[0-9a-f]{12}"', r'\1<id>"'),
    (r"\b((?:run|session)_id=)[0-9a-f]{12}\b", r"\1<id>"),
    (r"(?<![0-9a-zA-Z])[0-9a-f]{64}(?![0-9a-zA-Z])", "<sha256>"),
    (r"\buntrusted [0-9a-f]{8}\b", "untrusted <word>"),
    (r"0x[0-9a-f]{6,16}", "<address>"),
    (r"(127\.0\.0\.1|localhost):\d{4,5}", r"\1:<port>"),
    # Our own version, where the code says it; those of others are in versions.py.
    (r"(kernel-agent )\d+\.\d+\.\d+", r"\1<version>"),
)  # fmt: skip
COMPILED = tuple((re.compile(pattern), change) for pattern, change in TABLE)


@cache  # most of what is told is told in many places
def normal(text: str, folder: Path | None = None) -> str:
    """Return a text with the same thing in the place of what differs each time."""
    for path, name in (
        (folder, "<folder>"),
        (folder and folder.resolve(), "<folder>"),
        *folders(),
        (Path(sys.prefix), "<prefix>"),
        (ROOT, "<root>"),
    ):
        if path:
            text = text.replace(str(path), name)
    text = PNG.sub(_picture, text)
    text = without_versions(text, _installed())
    for pattern, change in COMPILED:
        text = pattern.sub(change, text)
    return text


def _picture(found: re.Match[str]) -> str:
    """Return a drawn picture's size instead of it: its bytes are those of a library's version."""
    raw = found.group().replace("\\n", "").replace("\n", "")
    head = base64.b64decode(raw[:40])
    width, height = struct.unpack(">II", head[16:24])
    return f"<png {width}x{height}>" + ("\\n" if found.group().endswith("\\n") else "")
