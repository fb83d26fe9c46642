"""Retries: how often, after what pause, and with which notice to the user.

::

    what happened                               what is done
    what may pass (EndpointError.retry)         again, max_retries times; the wait doubles
    a stream in which nothing came              at once, without streaming for the rest of the call:
                                                a server that has begun a stream cannot refuse
    streams that are ended early                the second time without streaming: a server of one
                                                request at a time then lets the others wait
    a reply in one piece that took too long     nothing: the server goes on working on each request
    refused, and it had answered before         waited for: a server that restarts, and then says
                                                503 while it loads its model

Waiting is a sleep, so that Stop, Ctrl-C and the run's limits end it at once. Pure but for the
clock.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from kernel_agent.models.errors import EndpointError

TOO_MANY = 429
STARTING = {502, 503}
"""Statuses of a server that is up again but not ready yet, or of a gateway before it."""

MAX_BACKOFF_S = 60.0

CROWD_BACKOFF = 8.0
"""How many times longer to wait when there are too many requests and the server does not say how
long: rates are counted by the minute, which four waits from 4 s on span. Likewise when a server
that serves one request at a time ended ours for another: who waits longer lets the other end."""

RESTART_PAUSE_S = 2.0
"""The longest pause between two looks whether it is back: they cost it nothing."""

EARLY_ENDS = 2
"""After so many streams of a call that were ended early the reply is asked for in one piece."""

MAX_TOLD = 3
"""Number of kinds of trouble that the last message names: the latest."""


@dataclass(frozen=True, kw_only=True)
class Transport:
    """Time limits, retries and streaming of requests.

    Parameters
    ----------
    timeout_s
        Longest silence: until the reply begins, and between two pieces of it.
    connect_timeout_s
        Longest wait for a connection.
    max_retries
        How often a failed request is made again.
    backoff_s
        Wait before the first retry; doubled for each further one, with jitter, at most a minute;
        eight times that when there are too many requests. What the server asks for, in a header or
        in words, comes before it.
    restart_s
        How long an endpoint that has answered before is waited for when it refuses the connection.
    stream
        Ask for the reply piece by piece.
    """

    timeout_s: float = 300.0
    connect_timeout_s: float = 10.0
    max_retries: int = 3
    backoff_s: float = 0.5
    restart_s: float = 60.0
    stream: bool = True


@dataclass(frozen=True, kw_only=True)
class Again:
    """A retry: the pause before it and the notice to the user."""

    pause_s: float
    notice: str = ""


class Tries:
    """The tries of one call.

    Parameters
    ----------
    transport
        How often what may pass is tried again, and how long is waited. With 0 retries nothing is
        waited for either.
    clock
        Seconds, monotonic. Tests pass their own.
    """

    def __init__(
        self, transport: Transport, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._failed = 0  # of those that are counted: not while it is waited for
        self._looks = self._ended_early = 0
        self._gone_since: float | None = None
        self.plainly = False
        """Whether to do without streaming."""
        self._met: dict[str, int] = {}  # how often which kind of it

    def after(self, error: EndpointError, *, streamed: bool, answered: bool) -> Again | None:
        """Return the retry after a failed try; None when it was the last.

        Parameters
        ----------
        error
            What went wrong.
        streamed
            Whether the reply was asked for piece by piece.
        answered
            Whether the endpoint has answered before.
        """
        self._met[error.what] = self._met.pop(error.what, 0) + 1  # the latest last
        if error.trouble == "silent" and streamed:
            self.plainly = True
            return Again(pause_s=0.0, notice=f"{error.what}: asking without streaming")
        if error.trouble == "timed out" and not streamed:
            return None
        if self._is_gone(error, answered=answered):
            return self._wait(error)
        self._failed += 1
        if not error.retry or self._failed > self._transport.max_retries:
            return None
        self._ended_early += error.trouble == "unfinished"
        self.plainly |= self._ended_early >= EARLY_ENDS
        pause_s = self._pause_s(error)
        counted = f"try {self._failed + 1} of {self._transport.max_retries + 1}"
        return Again(
            pause_s=pause_s,
            notice=f"{error.what}: trying again in {pause_s:.2g} s ({counted})",
        )

    def summary(self) -> str:
        """Return the endpoint's failures, each kind once, with its count.

        >>> tries = Tries(Transport(max_retries=0))
        >>> for what in ("broke off", "said no", "said no"):
        ...     _ = tries.after(EndpointError(what, advice=""), streamed=True, answered=False)
        >>> tries.summary()
        'broke off, then said no, 2 times'
        """
        return ", then ".join(
            what if times == 1 else f"{what}, {times} times"
            for what, times in list(self._met.items())[-MAX_TOLD:]
        )

    def _is_gone(self, error: EndpointError, *, answered: bool) -> bool:
        """Whether this is a server that went away while it was used, and may come back."""
        if error.trouble == "refused":
            return answered and self._transport.max_retries > 0
        return self._gone_since is not None and error.status in STARTING

    def _wait(self, error: EndpointError) -> Again | None:
        now = self._clock()
        if self._gone_since is None:
            self._gone_since = now
        left_s = self._gone_since + self._transport.restart_s - now
        if left_s <= 0:
            return None
        pause_s = min(self._transport.backoff_s * 2.0**self._looks, RESTART_PAUSE_S, left_s)
        self._looks += 1
        notice = (
            f"{error.what}: waiting for it to come back, {self._transport.restart_s:g} s at most"
        )
        return Again(pause_s=pause_s, notice=notice if self._looks == 1 else "")

    def _pause_s(self, error: EndpointError) -> float:
        if error.retry_after_s is not None:
            return error.retry_after_s
        # Half of the wait is random, so that clients that failed together do not return together.
        jitter = random.uniform(0.5, 1.0)  # noqa: S311 - it spreads load and guards nothing
        crowded = error.status == TOO_MANY or error.trouble == "unfinished"
        backoff_s = self._transport.backoff_s * (CROWD_BACKOFF if crowded else 1.0)
        return float(min(backoff_s * 2.0 ** (self._failed - 1), MAX_BACKOFF_S) * jitter)
