"""Deciders choose the loop's next action; this one asks a model.

A decider gives the next action, is told what happened, and says when the run is over. A model's
action is a reply, read in a format; where it cannot be read, it is asked for again. Words alone may
be the answer (:mod:`kernel_agent.agent.words`): the model is shown once how to give it, and what it
says then in words is taken as it is, and marked so. Cells that were written beforehand are another
decider (:mod:`kernel_agent.session.pipeline`).
"""

from __future__ import annotations

import dataclasses
from typing import Protocol

from kernel_agent.agent.context import Context
from kernel_agent.agent.outcome import Stopped, check_kernel
from kernel_agent.agent.rules import Ladder, Lower, Patience, warning
from kernel_agent.agent.turn import Ledger, Turn, write_reply
from kernel_agent.agent.window import RE_ASK_CHARS, Complete, Window
from kernel_agent.agent.words import may_answer
from kernel_agent.errors import FormatError
from kernel_agent.formats import Format
from kernel_agent.records import (
    Action,
    Answer,
    Calls,
    Code,
    Final,
    Message,
    Meter,
    Notice,
    Record,
    Reply,
    Retry,
    Step,
    now,
)
from kernel_agent.safe import shorten

OBSERVATION_CHARS = 8000  # of an observation that the model is shown
RE_ASKS = 2  # how often an unreadable reply is asked for again before it counts as a step
CUT_CHARS = 400  # of one that was cut off: all of it again would leave less room for the next


class Decider(Protocol):
    """The seam between the loop and the choice of its next action."""

    @property
    def observation_chars(self) -> int:
        """Characters of an observation that it is shown at most."""
        ...

    async def decide(self, turn: Turn) -> Action | None:
        """Return the next action, or None when none could be read; called once a turn.

        What it takes until then is kept in the turn. Cancelling must end it at once.

        Raises
        ------
        Exception
            One of :mod:`kernel_agent.agent.outcome`'s: the run is over.
        """
        ...

    def take(self, record: Record) -> None:
        """Take in what happened; called with every record of the run, in order."""
        ...

    def remark(self, step: Step, meter: Meter) -> str:
        """Return a line to add to a step's observation; called before the step is recorded."""
        ...

    def judge(self, step: Step, *, stopped: bool) -> Answer | None:
        """Return the run's answer, or None to go on; called when a step was recorded.

        Raises
        ------
        Exception
            One of :mod:`kernel_agent.agent.outcome`'s: the run is over without an answer.
        """
        ...


class ModelDecider:
    """Asks a model for each action, with the conversation so far.

    Parameters
    ----------
    complete
        Sends messages to the model and returns its reply.
    format
        How the model writes actions.
    context
        The conversation; it outlives the run when a session has several.
    lower
        Gives the format below another.
    summarise
        Asks the model for plain text, for a summary; None for a model that cannot write one.
    names
        What cells can use without defining it, beside the variables: the host tools.
    observation_chars
        Characters of an observation that the model is shown at most; fewer where its window is
        small.
    """

    def __init__(
        self,
        complete: Complete,
        *,
        format: Format,  # noqa: A002 - the project's word
        context: Context,
        lower: Lower = lambda _: None,
        summarise: Complete | None = None,
        names: frozenset[str] = frozenset(),
        observation_chars: int = OBSERVATION_CHARS,
    ) -> None:
        self._context = context
        self._window = Window(context, complete, summarise=summarise, names=names)
        self._ladder = Ladder(format, lower)
        self._patience = Patience()
        self._observation_chars = observation_chars

    @property
    def format(self) -> Format:
        """The format in which the model writes its actions now."""
        return self._ladder.format

    @property
    def observation_chars(self) -> int:
        """What was given, or less where the window is small."""
        return min(self._observation_chars, self._context.observation_chars)

    async def decide(self, turn: Turn) -> Action | None:
        """Ask for the next action; ask again for its form when it cannot be read."""
        told: tuple[Retry, ...] = ()  # those of the retries that are about this format
        shown_how = False  # to give an answer
        while True:
            reply = await self._window.ask(turn.ledger, _re_ask(told))
            turn.take(reply)
            try:
                action = self._ladder.read(reply)
            except FormatError as error:
                words = self._answer_in(error, turn.ledger.run_id)
                if words and shown_how:
                    turn.reply = reply
                    return Final(answer=words, in_words=True)
                shown_how = shown_how or bool(words)
                feedback = error.if_answer if words else error.feedback
                told = self._refuse(turn, reply, feedback, told, cut=error.kind == "truncated")
                if len(told) > RE_ASKS:
                    return None
                why = "has words alone" if words else f"could not be read ({error})"
                turn.ledger.tell(Notice(text=f"The reply {why}; asking again."))
                turn.ledger.meter.check()
            else:
                turn.reply = reply
                return action

    def _answer_in(self, error: FormatError, run_id: str) -> str:
        """Return the words of a reply that may be the answer.

        They may be before anything was tried, and after a step that ran; none while all that the
        run has tried has failed, since that is to be mended.
        """
        steps = [record for record in self._context.records if isinstance(record, Step)]
        done = [step for step in steps if isinstance(step.action, Code | Calls)]
        ran = any(step.ok for step in done)
        tried = any(step.run_id == run_id for step in done)
        may = (ran or not tried) and may_answer(error.words, ran=ran)
        return error.words if may else ""

    def _refuse(
        self, turn: Turn, reply: Reply, feedback: str, told: tuple[Retry, ...], *, cut: bool
    ) -> tuple[Retry, ...]:
        """Keep an unreadable reply; return the feedback given so far about this format."""
        retry = Retry(content=write_reply(reply), feedback=feedback)
        turn.retries = (*turn.retries, retry)
        if self._go_down(turn.ledger):
            return ()
        return (*told, _shown_again(retry, cut=cut))

    def _go_down(self, ledger: Ledger) -> bool:
        """Switch to the format that asks for less, if it is time and there is one."""
        change = self._ladder.go_down()
        if change is not None:
            ledger.record(dataclasses.replace(change, run_id=ledger.run_id, time=now()))
        return change is not None

    def take(self, record: Record) -> None:
        """Add a record to the conversation."""
        self._context.add(record)

    def remark(self, step: Step, meter: Meter) -> str:
        """Say when the next step is the last."""
        return warning(step, meter)

    def judge(self, step: Step, *, stopped: bool) -> Answer | None:
        """Return the answer, or None to go on; raise the error that ends the run."""
        if step.result is not None and step.result.answer is not None:
            return step.result.answer  # also when it came with the stop
        if stopped:
            raise Stopped
        check_kernel(step)
        self._patience.judge(step)
        return None


def _shown_again(retry: Retry, *, cut: bool) -> Retry:
    """Return an unreadable reply as the model is shown it; the trace has all of it."""
    if not cut:
        return retry
    return dataclasses.replace(retry, content=shorten(retry.content, CUT_CHARS))


def _re_ask(retries: tuple[Retry, ...]) -> list[Message]:
    """Return the last unreadable reply and what to do about it; neither enters the history."""
    if not retries:
        return []
    last = retries[-1]
    return [
        Message(role="assistant", content=last.content[:RE_ASK_CHARS] or "(empty)"),
        Message(role="user", content=last.feedback),
    ]
