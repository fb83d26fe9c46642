"""How a run ends, and the exit code of each ending."""

from __future__ import annotations

from enum import StrEnum


class ExitStatus(StrEnum):
    """How a run ended. Every ending leaves a complete trace and a notebook."""

    ANSWERED = "answered"
    STEP_LIMIT = "step_limit"
    TIME_LIMIT = "time_limit"
    TOKEN_LIMIT = "token_limit"
    COST_LIMIT = "cost_limit"
    LOOP_DETECTED = "loop_detected"
    INTERRUPTED = "interrupted"
    DENIED = "denied"
    KERNEL_LOST = "kernel_lost"
    MODEL_ERROR = "model_error"
    CELL_FAILED = "cell_failed"
    """A fixed cell failed (:mod:`kernel_agent.session.pipeline`); a model would have been told."""

    @property
    def exit_code(self) -> int:
        """The process exit code that the command line gives for this ending."""
        return _EXIT_CODES[self]


_EXIT_CODES = {
    ExitStatus.ANSWERED: 0,
    ExitStatus.CELL_FAILED: 1,
    ExitStatus.STEP_LIMIT: 3,
    ExitStatus.TIME_LIMIT: 3,
    ExitStatus.TOKEN_LIMIT: 3,
    ExitStatus.COST_LIMIT: 3,
    ExitStatus.LOOP_DETECTED: 3,
    ExitStatus.MODEL_ERROR: 4,
    ExitStatus.KERNEL_LOST: 5,
    ExitStatus.DENIED: 6,
    ExitStatus.INTERRUPTED: 130,
}
