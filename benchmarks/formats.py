"""Action formats: what is read of what real models wrote, how fast, and what the prompts cost.

    python benchmarks/formats.py [--turns FOLDER] [--peer PYTHON] [--quick]

``--turns`` names the folder with the recorded turns (``shared/data/recorded-turns`` beside the
repository by default; without it that part is left out). ``--peer`` is the interpreter of an
environment with smolagents, whose parser then reads the same turns: told its tags, and with the
closing tag appended where the model left it out, as its agent does. Code is only compiled, never
run. Results go to ``benchmarks/results/formats.json``.

A reply is *cut off* when it ends inside of a block: by the tags and fences alone, not by what our
parser thinks of it. The recordings do not say how a reply ended, so ours is measured twice: as
they are, and told by the "endpoint" that every reply is whole, which is what the peer believes.

Tokens are estimated as characters / 4, the rule that the meter uses.
"""

from __future__ import annotations

import argparse
import ast
import gzip
import json
import os
import platform
import re
import subprocess
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from kernel_agent.errors import FormatError
from kernel_agent.formats import format_names, get_format, parse
from kernel_agent.models import CHARS_PER_TOKEN
from kernel_agent.records import Code, Reply, ToolCall

HERE = Path(__file__).resolve().parent
TURNS = HERE.parents[1] / "shared" / "data" / "recorded-turns"
ROWS = ("closed tag", "tag never closed", "fence instead of the tag", "bare code", "no code")

PEER = """
import json, sys
from smolagents.utils import parse_code_blobs
def read(text):
    text = text if text.strip().endswith("</execute>") else text + "</execute>"
    try:
        return parse_code_blobs(text, ("<execute>", "</execute>"))
    except ValueError:
        return None
json.dump([read(text) for text in json.load(sys.stdin)], sys.stdout)
"""


# --- what real models wrote ----------------------------------------------------------------


def turns(folder: Path) -> list[str]:
    """Return each different recorded turn of an assistant."""
    found = set()
    for path in sorted(folder.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                found |= {t["content"] for t in json.loads(line)["turns"] if t["role"] != "user"}
    return sorted(found)


def row(text: str) -> str:
    """Return the form that a turn has, by its delimiters."""
    if "<execute>" in text:
        return ROWS[0] if "</execute>" in text else ROWS[1]
    if "```" in text:
        return ROWS[2]
    return ROWS[3] if is_program(text.strip().removeprefix("Assistant:").strip()) else ROWS[4]


def is_cut_off(text: str) -> bool:
    """Whether a turn ends inside of a block."""
    inside_tag = text.rfind("<execute>") > text.rfind("</execute>")
    fences = len(re.findall(r"^\s*```", text, re.MULTILINE))
    return (inside_tag and "</" not in text[text.rfind("<execute>") :]) or fences % 2 == 1


def is_program(text: str) -> bool:
    """Whether undelimited text is Python that does something."""
    try:
        statements = ast.parse(text).body
    except (SyntaxError, ValueError):
        return False
    return not all(
        isinstance(s, ast.Expr) and not isinstance(s.value, ast.Call) for s in statements
    )


def is_python(text: str) -> bool:
    """Whether text compiles."""
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True


def corpus(folder: Path, peer: str | None) -> dict[str, Any]:
    """Count by row and by whether the reply was cut off: extracted, and valid Python."""
    texts = turns(folder)
    theirs: list[str | None] = [None] * len(texts)
    if peer:
        done = subprocess.run(
            [peer, "-W", "ignore", "-c", PEER],
            input=json.dumps(texts), capture_output=True, text=True, check=True,
        )  # fmt: skip
        theirs = json.loads(done.stdout)
    counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for text, their in zip(texts, theirs, strict=True):
        row_counts = counts[f"{row(text)}{', cut off' if is_cut_off(text) else ''}"]
        row_counts["turns"] += 1
        for said, reason in (("", None), (" if whole", "stop")):
            kind, source = found(Reply(content=text, finish_reason=reason))
            row_counts[f"extracted{said}"] += kind != "missing"
            row_counts[f"valid{said}"] += bool(source) and is_python(source)
            row_counts[f"run{said}"] += kind == "code"
        if not peer:  # what was not asked is not nought
            continue
        row_counts["peer extracts"] += their is not None
        row_counts["peer valid"] += their is not None and is_python(their)
    return {name: dict(counts[name]) for name in sorted(counts)}


def outcome(reply: Reply, name: str = "fenced") -> str:
    """Return "code", or the kind of the error."""
    return found(reply, name)[0]


def found(reply: Reply, name: str = "fenced") -> tuple[str, str]:
    """Return the same and the code that was found, whether it is run or not."""
    try:
        action = parse(reply, name)
    except FormatError as error:
        return error.kind, error.code
    return ("code", action.source) if isinstance(action, Code) else ("calls", "")


# --- how fast ------------------------------------------------------------------------------

WORST = {
    "prose": "Some words about the table. ",
    "code": "x = f(1)\n",
    "closed blocks": "```python\nx = 1\n```\n",
    "open fences": "```python\n",
    "open tags": "<execute>\n",
    "broken blocks": "<execute>\n(\n</execute>\n",
    "objects": '{"code": "x"} ',
    "open objects": '{"code": "',
    "open braces": "{",
    "call tags": "<function=f><parameter=x>1</parameter></function>",
    "open call tags": "<function=f><parameter=x>",
    "reasoning": "<think>x</think>",
    "quotes": '"',
    "backslashes": "\\",
    "magics": "%x\n",
    "indent": "    ",
}


def speed(*, quick: bool) -> dict[str, Any]:
    """Processor seconds for 1 and 10 MB of the same piece, in the text and as arguments."""
    small, large = (100_000, 1_000_000) if quick else (1_000_000, 10_000_000)
    seconds = {}
    for name in format_names()[1:]:
        for piece_name, piece in WORST.items():
            taken = [_read(name, piece, size) for size in (small, large)]
            seconds[f"{name}, {piece_name}"] = [round(t, 3) for t in taken]
    return {"mb": [small / 1e6, large / 1e6], "seconds": seconds,
            "slowest": max(seconds.items(), key=lambda item: item[1][1])}  # fmt: skip


def _read(name: str, piece: str, size: int) -> float:
    text = piece * (size // len(piece))
    native = ToolCall(id="", name="python", arguments=text)
    began = time.process_time()
    outcome(Reply(content=text), name)
    if name in ("tool", "json"):
        outcome(Reply(content="", tool_calls=(native,)), name)
    return time.process_time() - began


# --- what prompts cost ---------------------------------------------------------------------


def prompts() -> dict[str, int]:
    """Tokens of each format's prompt and request options, without tools, estimated."""
    return dict(_prompt_tokens())


def _prompt_tokens() -> Iterator[tuple[str, int]]:
    for name in format_names()[1:]:
        made = get_format(name)
        options = made.options()
        asked = json.dumps([options.response_format, options.tools], default=dict)
        yield name, (len(made.system_prompt()) + len(asked)) // CHARS_PER_TOKEN


def main() -> None:
    """Measure everything, print it, and write it down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=Path, default=TURNS)
    parser.add_argument("--peer", metavar="PYTHON")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "formats.json")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    results: dict[str, Any] = {
        "machine": {
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "python": platform.python_version(),
            "processors": os.cpu_count(),
            "load_at_start": [round(load, 2) for load in os.getloadavg()],
            "json_repair": metadata.version("json_repair"),
        },
        "prompt_tokens": prompts(),
    }
    if options.turns.is_dir():
        results["corpus"] = corpus(options.turns, options.peer)
        for name, counts in results["corpus"].items():
            print(f"{name:36}", counts)
    else:
        print(f"{options.turns} is not there: the recorded turns are left out", file=sys.stderr)
    results["speed"] = speed(quick=options.quick)
    print("prompt tokens", results["prompt_tokens"])
    for name, seconds in results["speed"]["seconds"].items():
        print(f"{name:36}", seconds)
    options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
