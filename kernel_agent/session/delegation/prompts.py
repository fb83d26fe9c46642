"""Prompts to the model, side by side, within the budget of the run."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from kernel_agent.errors import ModelError
from kernel_agent.models import estimate_usage
from kernel_agent.records import Event, Message, Meter, Notice, Reply, RequestOptions, Usage
from kernel_agent.session.delegation.scope import CurrentRun

PROMPTS_AT_ONCE = 8


class Prompts:
    """The prompts of one session that are under way: near a cap they go one after the other.

    What an answer costs is known when it has come. So that eight at a time do not spend a cap eight
    times over, each is expected to cost what it asks and the longest answer so far.
    """

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(PROMPTS_AT_ONCE)
        self._answered = asyncio.Event()
        self._longest = float("inf")  # tokens of an answer; nobody knows before the first

    @asynccontextmanager
    async def turn(self, meter: Meter, messages: list[Message]) -> AsyncIterator[None]:
        """Wait for a place, and until the budget has room beside the others.

        Raises
        ------
        BudgetExceeded
            Nothing is left.
        """
        async with self._places:
            while True:
                meter.check()
                tokens = _estimate_question(messages).prompt_tokens + self._longest
                if meter.affords(tokens):
                    break
                self._answered.clear()
                await self._answered.wait()
            with meter.expecting(tokens):
                try:
                    yield
                finally:
                    self._answered.set()

    def learn(self, reply: Reply) -> None:
        """Note the length of an answer."""
        known = 0.0 if self._longest == float("inf") else self._longest
        self._longest = max(known, reply.usage.completion_tokens)


async def ask_and_charge(
    current: CurrentRun, messages: list[Message], note: Callable[..., None]
) -> Reply:
    """Ask the model and charge the cost; for an answer that nobody awaits, only the question's."""
    usage = _estimate_question(messages, current.meter.usage)
    try:
        async with asyncio.timeout(current.meter.seconds_left):
            reply = await current.telemetry.beneath().complete(
                current.model, messages, RequestOptions(), _ignore_text(current.tell)
            )
        usage = reply.usage
    except ModelError:
        usage = Usage()
        raise
    finally:
        current.meter.charge(usage)
        note(usage=usage)
    return reply


def _estimate_question(messages: list[Message], so_far: Usage | None = None) -> Usage:
    """Return the cost of a question without its answer, at the price of earlier ones."""
    usage = estimate_usage(messages, Reply(content=""))
    if so_far is None or so_far.cost_usd is None:
        return usage
    price = so_far.cost_usd / max(so_far.total_tokens, 1)
    return dataclasses.replace(usage, cost_usd=price * usage.prompt_tokens)


def _ignore_text(tell: Callable[[Event], None]) -> Callable[[Event], None]:
    """Return a listener that passes on notices only: the reply is no part of the run's story."""

    def hear(event: Event) -> None:
        if isinstance(event, Notice):
            tell(event)

    return hear
