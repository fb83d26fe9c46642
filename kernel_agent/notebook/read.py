"""What is read first of an exported notebook, and whether it is still what was written. Pure.

Question, answer, figure and the rows that were used stand beside the code: running the code again
says nothing about them. The notebook's metadata therefore holds a fingerprint of each. It
finds what was changed by hand or mistake; whoever changes the fingerprint, too, is not found.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kernel_agent.records import as_text, role_of

READ = {"head": "head", "task": "question", "answer": "answer", "figure": "figure", "way": "way"}
"""Roles of cells that are read for what they say, with the words for them."""


def is_read(cell: Mapping[str, Any]) -> bool:
    """Whether a cell is one of those; its fingerprint is compared, and it is not run."""
    return role_of(cell) in READ


def is_about_its_run(cell: Mapping[str, Any]) -> bool:
    """Whether a cell tells of the run that was exported: it is not true of another one."""
    return is_read(cell) or role_of(cell) in ("verified", "appendix")


def fingerprints(cells: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the fingerprint of each such cell, by its role and run."""
    return {_name(cell): _fingerprint(cell) for cell in cells if is_read(cell)}


def changed_texts(notebook: Any) -> Iterator[tuple[int, str]]:
    """Yield place and words for each text that is not the one that was exported.

    Nothing where the notebook has no fingerprints: no export wrote it, or an early one.
    """
    ours = notebook.metadata.get("kernel_agent")
    written = ours.get("texts") if isinstance(ours, Mapping) else None
    left = dict(written) if isinstance(written, Mapping) else {}
    if not left:
        return
    for index, cell in enumerate(notebook.cells):
        if not is_read(cell):
            continue
        was = left.pop(_name(cell), None)
        if was != _fingerprint(cell) and not _is_emptied(cell):
            yield index, f"the {READ[role_of(cell)]} is not the text that the run gave"
    for name in left:
        role = str(name).partition(" ")[0]
        yield len(notebook.cells), f"the {READ.get(role, 'text')} that the run gave is missing"


def _name(cell: Mapping[str, Any]) -> str:
    ours = cell["metadata"]["kernel_agent"]
    return f"{role_of(cell)} {ours.get('run', 0)}"


def _is_emptied(cell: Mapping[str, Any]) -> bool:
    """Whether a figure's cell was run: a comment is left, which says nothing else."""
    is_comment = re.fullmatch(r"#[^\n]*", as_text(cell.get("source"))) is not None
    return cell.get("cell_type") == "code" and is_comment and not cell.get("outputs")


def _fingerprint(cell: Mapping[str, Any]) -> str:
    shown = [(f"output {n}", output) for n, output in enumerate(cell.get("outputs") or ())]
    bundles = dict(cell.get("attachments") or {})
    bundles |= {name: output.get("data") or {"text": output.get("text")} for name, output in shown}
    pictures = [
        [name, mime, "".join(as_text(data).split())]
        for name, bundle in sorted(bundles.items())
        for mime, data in sorted(bundle.items())
    ]
    text = json.dumps([as_text(cell.get("source")).rstrip(), pictures])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
