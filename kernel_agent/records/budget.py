"""Caps on a run, and a meter of the spending.

A :class:`Budget` is data: it says what a run may cost. A :class:`Meter` counts. A child's meter
also charges its parent, so that delegated work cannot spend what the parent does not have; what a
child may cost is set apart for it while it works (:meth:`Meter.shared`), so that the caps of a run
hold for it and everything beneath it together.
Reaching a cap raises :class:`~kernel_agent.errors.BudgetExceeded`, which the loop turns into an
ordinary ending. Waiting for a person stops the clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TypeVar

from kernel_agent.errors import BudgetExceeded, UsageError
from kernel_agent.records.conversation import Usage


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Caps on one run. None means no cap.

    Parameters
    ----------
    max_steps
        Turns of the loop.
    max_seconds
        Wall clock of the run, without time spent waiting for a person.
    max_tokens
        Prompt and completion tokens together, over all model calls of the run.
    max_cost
        US dollars, computed from the prices that the user configured.
    """

    max_steps: int | None = 30
    max_seconds: float | None = 900.0
    max_tokens: int | None = None
    max_cost: float | None = None

    def __post_init__(self) -> None:
        for name in ("max_steps", "max_seconds", "max_tokens", "max_cost"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UsageError(f"{name} must be greater than 0, not {value!r}")


NO_CAPS = Budget(max_steps=None, max_seconds=None)
LARGEST_SHARE = 0.5  # of what is left, for one delegated run: the one that waits goes on after it
KEPT_STEPS = 2  # of the run that delegates: the step under way, and one to answer in


class Meter:
    """The spending of one run, measured against its budget.

    Parameters
    ----------
    budget
        The caps.
    parent
        The meter of the run that delegated this one; it is charged too and its caps hold too.
    clock
        Seconds, monotonic. Tests pass their own.
    """

    def __init__(
        self,
        budget: Budget,
        *,
        parent: Meter | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.budget = budget
        self.parent = parent
        self.steps = 0
        self.usage = Usage()
        self._clock = clock
        self._started = clock()
        self._waited = 0.0  # without the wait that is under way
        self._waiting_since: float | None = None
        self._children: list[Meter] = []
        self._expected: list[float] = []  # tokens of the calls that are under way
        self._waiting = 0  # how many are waiting for a person: the clock goes on with the last

    @property
    def waited(self) -> float:
        """Seconds spent waiting for a person, a wait that is under way included."""
        since = self._waiting_since
        return self._waited + (0.0 if since is None else self._clock() - since)

    @property
    def seconds(self) -> float:
        """Wall clock since the start, without time spent waiting for a person."""
        now = self._clock() if self._waiting_since is None else self._waiting_since
        return now - self._started - self._waited

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the tightest time cap of this meter or its parents; None without one."""
        own = self.budget.max_seconds
        left = None if own is None else own - self.seconds
        above = self.parent.seconds_left if self.parent else None
        return min((s for s in (left, above) if s is not None), default=None)

    def charge(self, usage: Usage, *, seconds: float = 0.0) -> None:
        """Count a model call, here and in every parent.

        Parameters
        ----------
        usage
            What it cost.
        seconds
            What passed for it before the meter began.
        """
        self.usage += usage
        self._started -= seconds
        if self.parent:
            self.parent.charge(usage, seconds=seconds)

    @contextmanager
    def expecting(self, tokens: float) -> Iterator[None]:
        """Reserve about so many tokens for a call under way, here and in every parent.

        See :meth:`affords`.
        """
        self._expected.append(tokens)
        try:
            with self.parent.expecting(tokens) if self.parent else nullcontext():
                yield
        finally:
            self._expected.remove(tokens)

    def affords(self, tokens: float) -> bool:
        """Whether a call of about so many tokens fits beside those that are under way.

        One alone always does: what it costs is known afterwards, and the next one is refused.
        """
        wanted = sum(self._expected) + tokens
        used, caps = self.usage, self.budget
        if not self._expected or (caps.max_tokens is None and caps.max_cost is None):
            fits = True
        else:
            price = (used.cost_usd or 0.0) / max(used.total_tokens, 1)
            fits = used.total_tokens + wanted <= (caps.max_tokens or float("inf")) and (
                caps.max_cost is None or (used.cost_usd or 0.0) + price * wanted <= caps.max_cost
            )
        return fits and (self.parent is None or self.parent.affords(tokens))

    def count_step(self) -> None:
        """Count one turn of the loop, here and in every parent."""
        self.steps += 1
        if self.parent:
            self.parent.count_step()

    @contextmanager
    def shared(self, share: float = LARGEST_SHARE, *, at_most: Budget = NO_CAPS) -> Iterator[Meter]:
        """Set a delegated run's budget apart until it is over; the unspent rest comes back.

        Of steps, tokens and cost it gets ``share`` of what this run has left, and never what is
        set apart for others; time passes for all of them side by side, so it gets half of the
        seconds that are left.

        Parameters
        ----------
        share
            At most a half.
        at_most
            Caps that may ask for less, never for more.

        Raises
        ------
        BudgetExceeded
            Nothing is left.
        """
        child = Meter(self._part(share, at_most), parent=self, clock=self._clock)
        self._children.append(child)
        try:
            yield child
        finally:
            self._children.remove(child)

    def _part(self, share: float, at_most: Budget) -> Budget:
        self.check()
        share = min(max(share, 0.0), LARGEST_SHARE)
        caps = self.budget
        steps = self._grant("steps", caps.max_steps, self.steps + KEPT_STEPS, share)
        tokens = self._grant("tokens", caps.max_tokens, self.usage.total_tokens, share)
        cost = self._grant("cost", caps.max_cost, self.usage.cost_usd or 0.0, share)
        left = self.seconds_left
        seconds = None if left is None else left * LARGEST_SHARE
        return Budget(
            max_steps=_least(None if steps is None else int(steps), at_most.max_steps),
            max_seconds=_least(seconds, at_most.max_seconds),
            max_tokens=_least(None if tokens is None else int(tokens), at_most.max_tokens),
            max_cost=_least(cost, at_most.max_cost),
        )

    def _grant(self, limit: str, cap: float | None, used: float, share: float) -> float | None:
        """Return a share of what is left; at least one where things are counted, if there is one.

        Raises
        ------
        BudgetExceeded
            All that is left is set apart for others.
        """
        if cap is None:
            return None
        least = 0.0 if limit == "cost" else 1.0
        apart = sum(child.left(limit) for child in self._children)
        free = cap - used - apart
        granted = min(max(share * (cap - used), least), free)
        if granted < least or granted <= 0:
            raise BudgetExceeded(limit, used=min(used + apart, cap), cap=cap)
        return granted

    def left(self, limit: str) -> float:
        """Return the rest of the cap on ``steps``, ``tokens`` or ``cost``; 0 without one."""
        caps, cost = self.budget, self.usage.cost_usd or 0.0
        cap, used = {
            "steps": (caps.max_steps, self.steps),
            "tokens": (caps.max_tokens, self.usage.total_tokens),
            "cost": (caps.max_cost, cost),
        }[limit]
        return 0.0 if cap is None else max(cap - used, 0.0)

    def check(self) -> None:
        """Raise when a cap of this meter or of a parent is reached.

        Raises
        ------
        BudgetExceeded
            Nobody's fault; the loop calls this before every turn.
        """
        caps = self.budget
        spent: list[tuple[str, float, float | None]] = [
            ("steps", self.steps, caps.max_steps),
            ("seconds", self.seconds, caps.max_seconds),
            ("tokens", self.usage.total_tokens, caps.max_tokens),
            ("cost", self.usage.cost_usd or 0.0, caps.max_cost),
        ]
        for limit, used, cap in spent:
            if cap is not None and used >= cap:
                raise BudgetExceeded(limit, used=used, cap=cap)
        if self.parent:
            self.parent.check()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the clock, here and in every parent, while a person decides.

        Several may wait at the same time (two children of one run): it goes on with the last.
        """
        if self._waiting == 0:
            self._waiting_since = self._clock()
        self._waiting += 1
        try:
            with self.parent.paused() if self.parent else nullcontext():
                yield
        finally:
            self._waiting -= 1
            if self._waiting == 0 and self._waiting_since is not None:
                self._waited += self._clock() - self._waiting_since
                self._waiting_since = None


T = TypeVar("T", int, float)


def _least(granted: T | None, asked: T | None) -> T | None:
    return min((cap for cap in (granted, asked) if cap is not None), default=None)
