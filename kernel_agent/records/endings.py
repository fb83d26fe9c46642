"""The endings of a run: a row for each, with its exit code and its words.

Terminal, page, notebook and panel read the words here, so a new ending is a row here;
``make reference`` writes it into ``docs/reference``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class ExitStatus(StrEnum):
    """The ending of a run. Every one leaves a complete trace and a notebook.

    A row has the name (in traces, at the terminal, in ``--json``), the exit code of the command
    line, a label for where there is little room, and the sentence, without its full stop.
    """

    exit_code: int
    label: str
    sentence: str

    ANSWERED = "answered", 0, "Answered", "Answered"
    STEP_LIMIT = "step_limit", 3, "Step limit", "Not answered: the step limit was reached"
    TIME_LIMIT = "time_limit", 3, "Time limit", "Not answered: the time limit was reached"
    TOKEN_LIMIT = "token_limit", 3, "Token limit", "Not answered: the token limit was reached"
    COST_LIMIT = "cost_limit", 3, "Cost limit", "Not answered: the cost limit was reached"
    LOOP_DETECTED = (
        "loop_detected", 3, "Going in circles",
        "Not answered: the same action kept failing in the same way",
    )  # fmt: skip
    INTERRUPTED = "interrupted", 130, "Stopped", "Stopped before an answer"
    DENIED = "denied", 6, "Denied", "Not answered: an action was denied"
    KERNEL_LOST = "kernel_lost", 5, "Kernel lost", "Not answered: the kernel was lost"
    MODEL_ERROR = "model_error", 4, "Model failed", "Not answered: the model failed"
    CELL_FAILED = "cell_failed", 1, "A cell failed", "Not finished: a cell failed"
    """A fixed cell failed (:mod:`kernel_agent.session.pipeline`); a model would have been told."""

    def __new__(cls, name: str, exit_code: int = 0, label: str = "", sentence: str = "") -> Self:
        """Make the member of a row; afterwards its name alone gives it."""
        status = str.__new__(cls, name)
        status._value_ = name
        status.exit_code, status.label, status.sentence = exit_code, label, sentence
        return status

    def say(self, message: str) -> str:
        """Return the sentence with what happened, and nothing twice.

        Examples
        --------
        >>> ExitStatus.KERNEL_LOST.say("the kernel was lost: exit code 3")
        'Not answered: the kernel was lost: exit code 3'
        >>> ExitStatus.STEP_LIMIT.say("the limit of 2 steps was reached")
        'Not answered: the limit of 2 steps was reached'
        """
        kind, _, told = self.sentence.partition(": ")
        if told and message.startswith((told, "the limit of ", "the same action ")):
            return f"{kind}: {message}"
        return f"{self.sentence}{': ' if message[:1].islower() else '. '}{message}"

    @property
    def words(self) -> str:
        """The name as words: ``step limit``."""
        return self.value.replace("_", " ")

    @property
    def is_fault(self) -> bool:
        """Whether something went wrong, rather than ran out or was stopped."""
        return self.exit_code not in {0, 3, 130}  # answered, a limit, stopped
