"""Notes of a step in the notebook: decisions, failures, what is not run again, what folds. Pure.

Markdown that folds away, for people who want to know how the answer came about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernel_agent.formats import write_call
from kernel_agent.notebook.headings import is_told
from kernel_agent.notebook.markdown import code_block, verbatim
from kernel_agent.notebook.outputs import full_text
from kernel_agent.records import (
    Calls,
    Code,
    Final,
    Retry,
    Step,
    Undone,
    decision_line,
    list_decisions,
    reason_text,
    role_of,
    source_text,
    untrusted_line,
)
from kernel_agent.safe import one_line, plain, shorten

MAX_DECISIONS = 20  # of a step, one line each
MAX_FOLDED = 4_000  # characters of the output of a step that is not run again


def decisions_note(step: Step) -> str:
    """Return a folded note on decisions and on untrusted results."""
    each = list(list_decisions(step))
    lines = [decision_line(one) for one in each[:MAX_DECISIONS]]
    if len(each) > MAX_DECISIONS:
        lines.append(f"{len(each) - MAX_DECISIONS} more decisions are in the trace.")
    lines = [
        f"- {verbatim(one_line(line, 600))}" for line in [*lines, untrusted_line(step)] if line
    ]
    if not lines:
        return ""
    denied = any(not one.decision.allowed for one in each)
    title = "Denied" if denied else "Approval" if each else "Untrusted data"
    parts = [f"<details>\n<summary>{title}</summary>", "\n".join(lines)]
    original = step.decision.original if step.decision else None
    if original is not None:
        shown = shorten(source_text(original), MAX_FOLDED)
        parts += ["The model had written:", code_block(shown, "python")]
    return "\n\n".join([*parts, "</details>"])


def failure_text(step: Step) -> str:
    """Return the sentence that says why a step failed."""
    error = step.result.error if step.result else None
    reason = f"{error.ename}: {error.evalue}" if error else "an error"
    return f"Step {step.number} failed with {verbatim(one_line(reason, 160))} (folded)."


def not_run_again(step: Step) -> str:
    """Return a step that is not a cell: folded, with its code and its output."""
    if isinstance(step.action, Code):
        status = step.result.status if step.result else "dead"
        ended = {
            "timeout": "took longer than a cell may take and was interrupted",
            "interrupted": "was interrupted by the user",
            "dead": "ended with the kernel, and all variables were lost",
            "error": "was refused or ended by the guard",
        }.get(status, "has no place among the cells")
        if step.decision is not None and not step.decision.allowed:
            ended = "was denied and never ran"
        summary = f"Step {step.number} {ended}: its code is not run again"
        output = full_text(step.result.outputs) if step.result else ""
        return _fold(summary, step.code, output)
    if isinstance(step.action, Calls):
        ended = step.result.status if step.result else "dead"
        summary = f"Step {step.number} was given up ({ended}): its calls are not made again"
        made = [write_call(call) for call in step.action.calls]
        return _fold(summary, "\n".join(made), step.observation.text)
    if isinstance(step.action, Final):
        return ""
    if step.action is None:
        replies = "\n\n".join(_reply(retry) for retry in step.retries)
        why = f"Step {step.number} had no readable action: nothing was run"
        return _fold(why, shorten(plain(replies), MAX_FOLDED), "", language="")
    shown = plain(step.observation.text).strip()
    return code_block(shorten(shown, MAX_FOLDED)) if shown else ""


def undone_note(step: Step, undone: Undone) -> str:
    """Return a step that the person took back: folded, with its code and its output."""
    why = undo_reason(undone)
    summary = f"Step {step.number} was undone by the user: its code is not run again"
    if isinstance(step.action, Calls):
        code = "\n".join(write_call(call) for call in step.action.calls)
    else:
        code = step.code
    folded = _fold(summary, code, step.observation.text)
    return f"*Undone by the user:* {why}.\n\n{folded}" if why else folded


def _fold(summary: str, code: str, output: str, *, language: str = "python") -> str:
    parts = [f"<details>\n<summary>{summary}</summary>"]
    if code.strip():
        parts.append(code_block(plain(code), language))
    if output.strip():
        shown = shorten(plain(output).strip("\n"), MAX_FOLDED)
        parts += ["It had put out:", code_block(shown)]
    return "\n\n".join([*parts, "</details>"])


def _reply(retry: Retry) -> str:
    return f"{retry.content.strip()} […cut off]" if retry.cut_off else retry.content


def undo_reason(undone: Undone) -> str:
    """Return why a person took steps back, as Markdown; empty without a reason."""
    return verbatim(plain(reason_text(undone)).removeprefix(": "))


# --- tags ---------------------------------------------------------------------------------------

# As JupyterLab, Jupyter Book and nbconvert (with `remove_input_tags`) read them.
HIDDEN: dict[str, Any] = {
    "tags": ["hide-input", "remove-input"],
    "jupyter": {"source_hidden": True},
}
SHOWN_ONLY: dict[str, Any] = {  # nbclient leaves such a cell as it is
    **HIDDEN,
    "tags": ["skip-execution", *HIDDEN["tags"]],
}
FAILED: dict[str, Any] = {
    "tags": ["raises-exception"],
    "collapsed": True,
    "jupyter": {"source_hidden": True, "outputs_hidden": True},
}
_ANSWERED: dict[str, Any] = {
    "tags": ["hide-output", "remove-output"],
    "jupyter": {"outputs_hidden": True},
}

_TOLD: dict[str, Any] = {
    "tags": [*HIDDEN["tags"], *_ANSWERED["tags"]],
    "jupyter": {**HIDDEN["jupyter"], **_ANSWERED["jupyter"]},
}


def step_tags(step: Step, outputs: Sequence[dict[str, Any]]) -> Mapping[str, Any]:
    """Return what folds a step's cell: one that failed, or that says only what stands above."""
    if step.result is not None and not step.result.ok:
        return FAILED
    if not _shows_answer(outputs):
        return {}
    return _TOLD if is_told(step.code) else _ANSWERED


def _shows_answer(outputs: Sequence[dict[str, Any]]) -> bool:
    """Whether a cell shows the answer and nothing else: it stands at the top already."""
    return len(outputs) == 1 and role_of(outputs[0]) == "answer"
