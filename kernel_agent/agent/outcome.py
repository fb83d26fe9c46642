"""Endings of a run: the errors that end it, the status and message of each, partial results.

Inside the loop an ending is raised; :func:`ending` translates it once, at the loop's outer edge.
Pure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kernel_agent.errors import BudgetExceeded, KernelError, ModelError
from kernel_agent.records import SHOWED_LAST, ExitStatus, Step, count_text
from kernel_agent.safe import one_line
from kernel_agent.tools import shorten_marked

PARTIAL_CHARS = 2000

LIMITS = {
    "steps": ExitStatus.STEP_LIMIT,
    "seconds": ExitStatus.TIME_LIMIT,
    "tokens": ExitStatus.TOKEN_LIMIT,
    "cost": ExitStatus.COST_LIMIT,
}


class LoopDetected(Exception):
    """The same action failed in the same way too often."""


class Denied(Exception):
    """The model's actions were denied again and again."""


class CellFailed(Exception):
    """A fixed cell failed that must not fail."""


class Stopped(Exception):
    """Somebody asked for the end of the run."""

    def __init__(self) -> None:
        super().__init__("stopped on request")


ENDINGS = {
    LoopDetected: ExitStatus.LOOP_DETECTED,
    Denied: ExitStatus.DENIED,
    CellFailed: ExitStatus.CELL_FAILED,
    Stopped: ExitStatus.INTERRUPTED,
    ModelError: ExitStatus.MODEL_ERROR,
    KernelError: ExitStatus.KERNEL_LOST,
}


def ending(error: BaseException) -> tuple[ExitStatus, str] | None:
    """Return the status and message for an error of the loop's own; None for any other."""
    if isinstance(error, BudgetExceeded):
        return LIMITS[error.limit], limit_text(error)
    status = next((ENDINGS[kind] for kind in ENDINGS if isinstance(error, kind)), None)
    return None if status is None else (status, str(error))


def cause(error: BaseException) -> str:
    """Describe in one line an error that is not the loop's own."""
    if isinstance(error, asyncio.CancelledError):
        return "the run was cancelled"
    return one_line(f"{type(error).__name__}: {error}", 300)


def limit_text(error: BudgetExceeded) -> str:
    """Say which cap was reached.

    Examples
    --------
    >>> limit_text(BudgetExceeded("cost", used=2.5, cap=2.0))
    'the limit of 2 USD was reached'
    """
    unit = {"seconds": "s", "cost": "USD"}.get(error.limit, error.limit)
    unit = unit.removesuffix("s") if error.cap == 1 and len(unit) > 3 else unit
    return f"the limit of {error.cap:g} {unit} was reached"


def check_kernel(step: Step) -> None:
    """Raise when a step took the kernel with it.

    Raises
    ------
    KernelError
        It is lost, with every variable.
    """
    if step.result is not None and step.result.status == "dead":
        error = step.result.error
        raise KernelError(f"the kernel was lost: {error.evalue if error else ''}")


def describe_progress(steps: Sequence[Step]) -> str:
    """Say what a run without an answer has achieved: counts, and its last observation.

    Only observations are quoted, never the model's own words: those are not a result.
    """
    if not steps:
        return "No step was completed."
    good = [step for step in steps if step.ok]
    stopped = sum(step.result is not None and step.result.status == "interrupted" for step in steps)
    counts = f"{len(good)} without an error{f', {stopped} stopped' if stopped else ''}"
    text = f"{count_text(len(steps), 'step')} ran, {counts}."
    if good:
        seen = shorten_marked(good[-1].observation.text, PARTIAL_CHARS)
        text += f" Step {good[-1].number}{SHOWED_LAST}{seen}"
    return text
