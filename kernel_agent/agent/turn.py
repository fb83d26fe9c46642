"""One turn of the loop so far: the model's replies in it, and their cost.

A turn that is over is a step of the trace. When the run ends before that, by a limit, a stop or an
endpoint that fails, what was written and paid until then is kept as a last step: without an action
where none was read, else with a cell that was interrupted.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from kernel_agent.records import (
    Action,
    CellError,
    CellResult,
    Event,
    Meter,
    Notice,
    Observation,
    Record,
    Reply,
    ReplyText,
    Retry,
    Step,
    Usage,
    now,
)
from kernel_agent.safe import one_line

_WHY_CHARS = 200


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """A run as a decider sees it: its budget, its trace, its listener.

    ``check_stopped`` raises when somebody has asked for the run's end.
    """

    run_id: str
    meter: Meter
    record: Callable[[Record], None]
    tell: Callable[[Event], None]
    check_stopped: Callable[[], None]


@dataclass(kw_only=True)
class Turn:
    """A turn that is under way.

    ``reply`` is the one that could be read; ``acting`` is the step once its action is carried out;
    ``model_seconds`` is how long the last reply took to come, with all before it.
    """

    ledger: Ledger
    number: int
    retries: tuple[Retry, ...] = ()
    usage: Usage = field(default_factory=Usage)
    reply: Reply | None = None
    acting: Step | None = None
    reasoning: str = ""
    model_seconds: float = 0.0
    _began: float = field(default_factory=time.monotonic)
    _pieces: list[ReplyText] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """Seconds that it has taken so far."""
        return time.monotonic() - self._began

    def hear(self, event: Event) -> None:
        """Add a piece of the reply that is being written; a notice says that it begins anew."""
        if isinstance(event, ReplyText):
            self._pieces.append(event)
        elif isinstance(event, Notice):
            self._pieces.clear()

    def take(self, reply: Reply) -> None:
        """Add a complete reply."""
        self.usage += reply.usage
        self.reasoning = reply.reasoning
        self.model_seconds = self.seconds
        self._pieces.clear()

    def step(self, action: Action | None) -> Step:
        """Return the turn as a step whose action is still to be carried out."""
        return Step(
            run_id=self.ledger.run_id,
            number=self.number,
            action=action,
            reasoning=self.reasoning,
            retries=self.retries,
            usage=self.usage,
            time=now(),
            model_seconds=self.model_seconds,
            observation=Observation(text=self.retries[-1].feedback if self.retries else ""),
        )

    def unfinished(self, why: str) -> Step | None:
        """Return the turn as a step of a run that has ended; None when nothing was written.

        Parameters
        ----------
        why
            What ended the run.
        """
        why = one_line(why, _WHY_CHARS)
        if self.acting is not None:
            return _mark_interrupted(self.acting, why)
        said, reasoning = self._get_last_text()
        retries = self.retries
        if said or reasoning:
            told = f"This was cut off, and nothing of it was run: the run had ended ({why})."
            retries = (*retries, Retry(content=said, feedback=told, cut_off=True))
        if not retries:
            return None
        cut_short = dataclasses.replace(self, retries=retries, reasoning=reasoning)
        return dataclasses.replace(cut_short.step(None), model_seconds=self.seconds)

    def _get_last_text(self) -> tuple[str, str]:
        """Return the text and the reasoning of the last reply, both perhaps cut short."""
        if self.reply is not None:
            return write_reply(self.reply), self.reply.reasoning
        said = "".join(piece.text for piece in self._pieces if not piece.reasoning)
        return said, "".join(piece.text for piece in self._pieces if piece.reasoning)


def write_reply(reply: Reply) -> str:
    """Return a reply with its calls as one text."""
    calls = "\n".join(f"{c.name}({c.arguments})" for c in reply.tool_calls)
    return "\n".join(part for part in (reply.content, calls) if part)


def _mark_interrupted(step: Step, why: str) -> Step:
    error = CellError(ename="Interrupted", evalue=f"the run had ended ({why})")
    result = CellResult(status="interrupted", error=error)
    told = f"This was not carried out to its end: the run had ended ({why})."
    return dataclasses.replace(step, result=result, observation=Observation(text=told))
