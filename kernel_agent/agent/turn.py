"""One turn of the loop as far as it has come: what the model wrote in it, and what that cost.

A turn that is over is a step of the trace. When the run ends before that, by a limit, a stop or an
endpoint that fails, what was written and paid until then is kept as a last step: without an action
where none was read, else with a cell that was interrupted.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass, field

from kernel_agent.records import (
    CellError,
    CellResult,
    Event,
    Notice,
    Observation,
    Reply,
    ReplyText,
    Retry,
    Step,
    Usage,
)
from kernel_agent.safe import one_line

_WHY_CHARS = 200


@dataclass(kw_only=True)
class Turn:
    """What is known of a turn that is under way.

    ``reply`` is the one that could be read; ``acting`` is the step once its action is carried out.
    """

    run_id: str
    number: int
    retries: tuple[Retry, ...] = ()
    usage: Usage = field(default_factory=Usage)
    reply: Reply | None = None
    acting: Step | None = None
    _began: float = field(default_factory=time.monotonic)
    _pieces: list[ReplyText] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return time.monotonic() - self._began

    def hear(self, event: Event) -> None:
        """Take in a piece of the reply that is being written; a notice says that it begins anew."""
        if isinstance(event, ReplyText):
            self._pieces.append(event)
        elif isinstance(event, Notice):
            self._pieces.clear()

    def take(self, reply: Reply) -> None:
        """Take in a reply that is whole."""
        self.usage += reply.usage
        self._pieces.clear()

    def unfinished(self, why: str, *, time: str) -> Step | None:
        """Return the step that it is, now that the run has ended; None when nothing was written.

        Parameters
        ----------
        why
            What ended the run.
        time
            When.
        """
        why = one_line(why, _WHY_CHARS)
        if self.acting is not None:
            return _interrupted(self.acting, why)
        said, reasoning = self._written()
        retries = self.retries
        if said or reasoning:
            told = f"This was cut off, and nothing of it was run: the run had ended ({why})."
            retries = (*retries, Retry(content=said, feedback=told, cut_off=True))
        if not retries:
            return None
        return Step(
            run_id=self.run_id,
            number=self.number,
            action=None,
            reasoning=reasoning,
            retries=retries,
            usage=self.usage,
            time=time,
            model_seconds=self.seconds,
            observation=Observation(text=retries[-1].feedback),
        )

    def _written(self) -> tuple[str, str]:
        """Return what was written of the last reply and thought for it, both perhaps cut short."""
        if self.reply is not None:
            return written(self.reply), self.reply.reasoning
        said = "".join(piece.text for piece in self._pieces if not piece.reasoning)
        return said, "".join(piece.text for piece in self._pieces if piece.reasoning)


def written(reply: Reply) -> str:
    """Return a reply with its calls as one text."""
    calls = "\n".join(f"{c.name}({c.arguments})" for c in reply.tool_calls)
    return "\n".join(part for part in (reply.content, calls) if part)


def _interrupted(step: Step, why: str) -> Step:
    error = CellError(ename="Interrupted", evalue=f"the run had ended ({why})")
    result = CellResult(status="interrupted", error=error)
    told = f"This was not carried out to its end: the run had ended ({why})."
    return dataclasses.replace(step, result=result, observation=Observation(text=told))
