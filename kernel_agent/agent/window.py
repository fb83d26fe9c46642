"""Ask a model within its window: shorten the conversation before it is too long, or after.

What a window holds is learned from the endpoint: when it refuses a conversation, and when a reply
had no room left in it. How the conversation is shortened is :mod:`kernel_agent.agent.context`'s;
here it is done, recorded, and a summary asked for where the model can write one.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable

from kernel_agent.agent.context import Context
from kernel_agent.agent.summary import ask_again, ask_longer, check, least_chars
from kernel_agent.agent.turn import Ledger
from kernel_agent.errors import BudgetExceeded, ContextLengthError, ModelError
from kernel_agent.records import Condensation, Message, Meter, Notice, Reply, Usage, now

RE_ASK_CHARS = 4000  # of a reply that is shown back to the model
LEAST_REPLY_TOKENS = 100  # a thought and a cell of a few lines
LARGER_WINDOW = "start the server with a larger context, or use another model"

Complete = Callable[[list[Message]], Awaitable[Reply]]
"""Sends messages to the model and returns its reply."""


class Window:
    """A model's window on the conversation.

    Parameters
    ----------
    context
        The conversation.
    complete
        Asks the model for an action.
    summarise
        Asks it for plain text, for a summary; None for a model that cannot write one.
    names
        What cells can use without defining it, beside the variables: a summary may name it.
    """

    def __init__(
        self,
        context: Context,
        complete: Complete,
        *,
        summarise: Complete | None = None,
        names: frozenset[str] = frozenset(),
    ) -> None:
        self._context = context
        self._complete = complete
        self._summarise = summarise
        self._names = names

    async def ask(self, ledger: Ledger, beside: list[Message]) -> Reply:
        """Ask for a reply; shorten the conversation first, and again when the model accepts less.

        Parameters
        ----------
        ledger
            The run that pays and keeps the records.
        beside
            What is sent after the conversation this time only.

        Raises
        ------
        ContextLengthError
            The conversation is too long and cannot be shortened.
        BudgetExceeded
            The time of the run is over.
        """
        await self._make_room(ledger, "it had outgrown its allowance")
        while True:
            messages = [*self._context.messages(), *beside]
            try:
                reply = await _within_time(ledger, messages, self._complete)
            except ContextLengthError as error:
                self._context.overflow(
                    limit_tokens=error.limit_tokens, used_tokens=error.used_tokens
                )
                if not await self._make_room(ledger, "it was too long for the model"):
                    if not beside:
                        raise self._without_room(error) from None
                    beside = []  # what was unreadable is asked for anew
                continue
            if not beside:
                self._context.calibrate(reply.usage)
            if reply.window_tokens:
                await self._meet(ledger, reply, reply.window_tokens, beside)
            return reply

    def _without_room(self, error: ContextLengthError) -> ContextLengthError:
        """Return the error of a conversation that is too long and cannot be shortened."""
        limit, used = error.limit_tokens, error.used_tokens
        if limit is None:
            return error
        need = used or f"more than {limit}"
        return ContextLengthError(
            f"{self._alone} need {need} tokens, the model's window is {limit}: {LARGER_WINDOW}",
            status_code=error.status_code,
            limit_tokens=limit,
            used_tokens=used,
        )

    @property
    def _alone(self) -> str:
        """The rest of a conversation that cannot be shortened further."""
        return f"the instructions{', the task and the last step' * self._context.has_steps} alone"

    async def _meet(
        self, ledger: Ledger, reply: Reply, window_tokens: int, beside: list[Message]
    ) -> None:
        """Shorten the conversation when a reply ended because the model's window was full.

        Raises
        ------
        ContextLengthError
            There is nothing to shorten, and no room for a reply.
        """
        used = reply.usage.prompt_tokens
        self._context.note_window(window_tokens, prompt_tokens=used, beside=beside)
        shorter = await self._make_room(ledger, "a reply had no room left in the model's window")
        no_room = reply.usage.completion_tokens < LEAST_REPLY_TOKENS
        if not shorter and no_room and not beside and not self._context.has_steps:
            raise ContextLengthError(
                f"{self._alone} take {used} of the {window_tokens} tokens of the model's window"
                f": {LARGER_WINDOW}",
                limit_tokens=window_tokens,
                used_tokens=used,
            )

    async def _make_room(self, ledger: Ledger, reason: str) -> bool:
        """Shorten the conversation until it fits; say whether it became shorter."""
        shorter = False
        while (planned := self._context.relief(reason)) is not None:
            if planned.kind == "summarised" and self._summarise is not None:
                planned = await self._summary(ledger, planned, self._summarise)
            ledger.record(dataclasses.replace(planned, run_id=ledger.run_id, time=now()))
            shorter = True
        return shorter

    async def _summary(
        self, ledger: Ledger, planned: Condensation, summarise: Complete
    ) -> Condensation:
        """Let the model write the summary; keep the one by rules when it cannot.

        What names a variable that does not exist is asked for again once, and then dropped; so are
        notes that are far too short for what they replace.
        """
        steps, max_chars = planned.last - planned.first + 1, self._context.summary_chars
        least = least_chars(steps, earlier=self._context.summary, max_chars=max_chars)
        messages = self._context.summary_request(planned.last)
        told = messages[-1].content
        usage = Usage()
        for is_last in (False, True):
            ledger.meter.check()
            try:
                reply = await _within_time(ledger, messages, summarise)
            except ModelError as error:
                ledger.tell(Notice(text=f"The model wrote no summary ({error})."))
                return dataclasses.replace(planned, usage=usage)
            usage += reply.usage
            checked = check(
                reply.content,
                names=self._context.variables.names | self._names,
                told=told,
                max_chars=max_chars,
            )
            if is_last or (not checked.unknown and len(checked.text) >= least):
                break
            said = Message(role="assistant", content=reply.content[:RE_ASK_CHARS])
            again = ask_again(checked.unknown) if checked.unknown else ask_longer(steps)
            messages = [*messages, said, again]
        if len(checked.text) < least:
            return dataclasses.replace(planned, usage=usage, dropped=checked.dropped)
        return dataclasses.replace(
            planned, text=checked.text, by="model", dropped=checked.dropped, usage=usage
        )


async def _within_time(ledger: Ledger, messages: list[Message], ask: Complete) -> Reply:
    """Ask the model within the time that is left, and charge what it used."""
    ledger.check_stopped()
    try:
        async with asyncio.timeout(ledger.meter.seconds_left):
            reply = await ask(messages)
    except TimeoutError:
        raise _time_is_up(ledger.meter) from None
    ledger.meter.charge(reply.usage)
    return reply


def _time_is_up(meter: Meter) -> BudgetExceeded:
    """Return the cap on time that was met: a parent's, or the run's own."""
    try:
        meter.check()
    except BudgetExceeded as error:
        return error
    cap = meter.budget.max_seconds or meter.seconds
    return BudgetExceeded("seconds", used=meter.seconds, cap=cap)
